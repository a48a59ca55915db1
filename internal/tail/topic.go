package tail

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What a topic keeps. A reader that is further behind reads the store.
const (
	ringBytes    = 1 << 20
	ringEvents   = 4096
	maxRingBytes = 8 << 20 // of the newest revision alone
	maxNotes     = 64      // events without an ID
)

// Readers are woken a few at a time: a thousand that become runnable at once would delay the
// writer.
const (
	wakeBurst = 8
	wakePause = time.Millisecond
)

// retryPause is the time before a topic asks a failing store again.
const retryPause = 250 * time.Millisecond

// topic holds the newest events of one agent. One goroutine follows the agent, makes the events of
// each change and wakes the readers; each reader writes the shared bytes to its own connection.
type topic struct {
	hub  *Hub
	key  memory.Ref
	feed *memory.Feed
	// ready is closed when the topic has read its start; cancel is nil then if that failed.
	ready  chan struct{}
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex
	floor  position // the ring holds every event after it
	ring   []event  // in order
	bytes  int      // of the ring
	head   position // end of the ring
	ended  bool     // the agent has ended
	erased bool
	failed bool
	notes  []note // the newest events without an ID
	noted  int64  // number of the newest
	state  []byte // event that says what the agent is doing
	states int64  // how often that changed

	subs map[*subscription]struct{}
}

// note is an event without an ID: it goes to those who are connected, and is not repeated.
type note struct {
	no    int64
	kind  Kinds
	bytes []byte
}

// subscription is a reader's place in a topic. wake receives when there may be something new.
type subscription struct {
	topic *topic
	wake  chan struct{}
}

func newTopic(h *Hub, k memory.Ref) *topic {
	return &topic{hub: h, key: k, ready: make(chan struct{}), done: make(chan struct{}), subs: map[*subscription]struct{}{}}
}

// add adds a subscription. It fails with fault.RateLimited if there are limit of them.
func (t *topic) add(limit int) (*subscription, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.subs) >= limit {
		return nil, fault.New(fault.RateLimited, "agent %s has %d live tails open, which is the limit; let readers share one, or retry later", t.key.ID, limit)
	}
	s := &subscription{topic: t, wake: make(chan struct{}, 1)}
	t.subs[s] = struct{}{}
	return s, nil
}

// start reads the agent's head and follows the agent from there, until stop.
func (t *topic) start(ctx context.Context) error {
	t.feed = t.hub.Memory.Messages.Follow(t.key.Project, t.key.ID)
	// The feed is open already, so that no change falls between it and the head.
	head, err := t.hub.Memory.Messages.Head(ctx, t.key.Project, t.key.ID)
	if err != nil {
		t.feed.Close()
		return err
	}
	t.mu.Lock()
	t.floor, t.head, t.ended = endOf(head.Rev), endOf(head.Rev), head.Agent.Status.Ended()
	t.mu.Unlock()
	t.updateState()
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	go t.run(run, head.Rev, head.Agent)
	return nil
}

// stop ends a topic that has no subscription and will get none, and waits for it.
func (t *topic) stop() {
	<-t.ready
	if t.cancel != nil {
		t.cancel()
		t.feed.Close()
		<-t.done
	}
}

// run follows the agent until ctx is done.
func (t *topic) run(ctx context.Context, rev int64, agent *memory.Agent) {
	defer close(t.done)
	defer func() {
		if p := recover(); p != nil {
			t.hub.Log.Error().Str("panic", fmt.Sprint(p)).Msg("live tail panicked")
			t.mu.Lock()
			t.failed = true
			t.mu.Unlock()
			t.wakeAll(ctx)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.feed.Wake():
		}
		fed := t.feed.Take()
		var err error
		for rev, agent, err = t.process(ctx, fed, rev, agent); err != nil && ctx.Err() == nil; {
			if fault.Is(err, fault.NotFound) {
				t.mu.Lock()
				t.erased = true
				t.mu.Unlock()
				t.wakeAll(ctx)
				return
			}
			pause(ctx, retryPause)
			rev, agent, err = t.process(ctx, memory.Fed{Lost: true}, rev, agent)
		}
		t.updateState()
		t.wakeAll(ctx)
	}
}

// process makes the events of what the feed brought. It returns the revision that the ring reaches
// then, and the agent as it is at that revision.
func (t *topic) process(ctx context.Context, fed memory.Fed, rev int64, agent *memory.Agent) (int64, *memory.Agent, error) {
	for _, n := range fed.Notes {
		if b := frameOf("memory", memoryEvent{Action: n.Action, Count: &n.Count}); b != nil {
			t.addNote(kindMemory, b)
		}
	}
	slices.SortFunc(fed.Written, func(a, b memory.Written) int { return endOf(a.Rev).compare(endOf(b.Rev)) })
	for i := range fed.Written {
		w := &fed.Written[i]
		switch {
		case w.Rev <= rev:
			continue
		case w.Prev != rev || fed.Lost: // changes are missing; the store has them
			return t.read(ctx, rev, agent)
		}
		if w.Agent != nil {
			agent = w.Agent
		}
		c := newCollector(t.hub.Encode, agent, endOf(rev), w.Rev, allKinds)
		for _, list := range [2][]memory.Message{w.Append, w.Replace} {
			for j := range list {
				if err := c.message(&list[j]); err != nil {
					return rev, agent, err
				}
			}
		}
		if w.Agent != nil {
			if err := c.agent(w.Agent); err != nil {
				return rev, agent, err
			}
		}
		t.publish(c, agent)
		rev = w.Rev
	}
	if fed.Lost {
		return t.read(ctx, rev, agent)
	}
	return rev, agent, nil
}

// read makes the events of what the store has after the end of the ring.
func (t *topic) read(ctx context.Context, rev int64, agent *memory.Agent) (int64, *memory.Agent, error) {
	for at := t.head; ; { // no other goroutine writes head
		c, head, err := t.hub.load(ctx, t.key, at, allKinds)
		if err != nil {
			return rev, agent, err
		}
		agent = head.Agent
		if head.Rev > rev {
			t.hub.Metrics.reads.WithLabelValues("hub").Inc()
		}
		if at = t.publish(c, agent); !c.cut {
			return max(rev, head.Rev), agent, nil
		}
	}
}

// publish appends events to the ring and returns its end.
func (t *topic) publish(c *collector, agent *memory.Agent) position {
	events, end := c.finish()
	t.hub.Metrics.made.Add(float64(len(events)))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		t.ring = append(t.ring, e)
		t.bytes += len(e.bytes)
	}
	n := 0 // events to drop
	for n < len(t.ring) {
		tooMany := len(t.ring)-n > ringEvents || t.bytes > ringBytes
		if t.bytes <= maxRingBytes && (t.ring[n].at.rev >= end.rev || !tooMany) {
			break
		}
		t.bytes -= len(t.ring[n].bytes)
		t.floor = t.ring[n].at
		n++
	}
	if n > 0 {
		t.ring = slices.Clone(t.ring[n:])
	}
	t.head, t.ended = end, agent.Status.Ended()
	return end
}

// addNote keeps an event without an ID for those who are connected.
func (t *topic) addNote(kind Kinds, b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noted++
	// The full slice expression makes append copy: readers may hold the old list.
	t.notes = append(t.notes[max(0, len(t.notes)-maxNotes+1):len(t.notes):len(t.notes)], note{t.noted, kind, b})
}

// updateState asks what the agent is doing and keeps it if it changed.
func (t *topic) updateState() {
	e := stateEvent{State: "listening"}
	if phase, turn, ok := t.hub.Memory.Turns.Doing(t.key.Project, t.key.ID); ok {
		e.State, e.TurnID = "thinking", &turn
		if phase == memory.Speaking {
			e.State = "speaking"
		}
	}
	b := frameOf("state", e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if string(b) != string(t.state) {
		t.state, t.states = b, t.states+1
	}
}

// wakeAll wakes the readers, a few at a time.
func (t *topic) wakeAll(ctx context.Context) {
	t.mu.RLock()
	subs := make([]*subscription, 0, len(t.subs))
	for s := range t.subs {
		subs = append(subs, s)
	}
	t.mu.RUnlock()
	for i, s := range subs {
		if i > 0 && i%wakeBurst == 0 && !pause(ctx, wakePause) {
			return
		}
		select {
		case s.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// pause waits for d. It reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// progress is how far a reader is.
type progress struct {
	at     position
	noted  int64 // number of the last note
	states int64 // number of the last state
}

// batch is what a reader sends next.
type batch struct {
	events  []event // shared; not to be changed
	extra   [][]byte
	next    progress
	more    bool   // there is more than this batch holds
	behind  bool   // what follows is in the store alone
	ended   bool   // the agent has ended, and with this batch the reader has everything
	dropped string // why the stream must end; "" if it goes on
}

// maxBatch is how many events a batch holds.
const maxBatch = 128

// next returns what a reader has not had yet.
func (t *topic) next(p progress, kinds Kinds) batch {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b := batch{next: p}
	switch {
	case t.erased:
		b.dropped = droppedErased
		return b
	case t.failed:
		b.dropped = droppedError
		return b
	case p.at.compare(t.floor) < 0:
		b.behind = true
		return b
	}
	i, found := slices.BinarySearchFunc(t.ring, p.at, func(e event, at position) int { return e.at.compare(at) })
	if found {
		i++
	}
	for ; i < len(t.ring) && len(b.events) < maxBatch; i++ {
		if t.ring[i].kind&kinds != 0 {
			b.events = append(b.events, t.ring[i])
		}
		b.next.at = t.ring[i].at
	}
	if b.more = i < len(t.ring); b.more {
		return b
	}
	if b.next.at.compare(t.head) < 0 {
		b.next.at = t.head
	}
	for _, n := range t.notes {
		if n.no > p.noted && n.kind&kinds != 0 {
			b.extra = append(b.extra, n.bytes)
		}
	}
	b.next.noted = t.noted
	if p.states < t.states && !t.ended {
		if kinds&kindState != 0 {
			b.extra = append(b.extra, t.state)
		}
		b.next.states = t.states
	}
	b.ended = t.ended
	return b
}

// begin returns the progress of a reader that starts at a position: it gets no old notes, and the
// state as it is.
func (t *topic) begin(at position) progress {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return progress{at: at, noted: t.noted}
}
