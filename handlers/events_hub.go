package handlers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// TailLimits bounds the live tails. A zero field means its default.
type TailLimits struct {
	Readers      int           // of the whole server
	AgentReaders int           // of one agent
	Heartbeat    time.Duration // keeps proxies from closing a quiet tail
	Write        time.Duration // a reader that takes nothing for so long is let go
	Behind       time.Duration // and so is one that was up to date and has been behind for so long
}

// The defaults of TailLimits.
const (
	DefaultTailReaders      = 10_000
	DefaultTailAgentReaders = 2_000
	tailHeartbeat           = 15 * time.Second
	tailWrite               = 10 * time.Second
	tailBehind              = time.Minute
)

func (l TailLimits) withDefaults() TailLimits {
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&l.Heartbeat, tailHeartbeat)
	or(&l.Write, tailWrite)
	or(&l.Behind, tailBehind)
	if l.Readers == 0 {
		l.Readers = DefaultTailReaders
	}
	if l.AgentReaders == 0 {
		l.AgentReaders = DefaultTailAgentReaders
	}
	return l
}

// What a hub keeps for its readers: those behind it read the store.
const (
	ringBytes  = 1 << 20
	ringFrames = 4096
	ringMost   = 8 << 20 // bytes, of the newest change alone
	tailPage   = 200
	// catchUpBytes is how much of the store's part is held at a time, and catchUps how many readers do so at once.
	catchUpBytes = 1 << 20
	catchUps     = 16
	maxPassing   = 64 // events without a place that are kept
)

// Readers are woken some at a time: a thousand that become runnable at once would stand between a writer and its processor.
const (
	wakeBurst = 8
	wakePause = time.Millisecond
)

// tailRetry is how long a hub waits before it asks a failing store again.
const tailRetry = 250 * time.Millisecond

// tailHubs are the agents that are watched.
type tailHubs struct {
	api     *API
	limits  TailLimits
	readers atomic.Int64
	slots   chan struct{} // for catching up

	mu   sync.Mutex
	hubs map[[2]string]*tailHub
}

// tailHub makes the events of one watched agent, once for all who watch it. One goroutine follows the agent, makes each change's events and wakes the
// readers; each reader writes the shared bytes to its own socket. A writer only leaves its change in the feed.
type tailHub struct {
	all         *tailHubs
	project, id string
	// ready is closed when its beginning is read; stop is nil then where that failed.
	ready chan struct{}
	feed  *memory.Feed
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.RWMutex
	floor   place   // the ring holds everything behind it
	ring    []frame // in order of place
	bytes   int
	head    place // where the ring ends
	ended   bool  // the agent has
	erased  bool
	broken  bool
	passing []passing // events without a place, the newest
	passed  int64     // the number of the newest
	state   []byte    // what the agent is doing
	stateNo int64

	readers map[*tailReader]struct{}
}

// passing is an event that is told to those who are there and to nobody else.
type passing struct {
	no    int64
	kind  int
	bytes []byte
}

// tailReader is one who watches.
type tailReader struct {
	hub  *tailHub
	wake chan struct{}
}

func newTailHubs(a *API, l TailLimits) *tailHubs {
	return &tailHubs{api: a, limits: l.withDefaults(), slots: make(chan struct{}, catchUps), hubs: map[[2]string]*tailHub{}}
}

// join adds a reader to the agent's hub, which is made where there is none. The agent's head is at least as old as now: the hub begins at it, or before.
func (t *tailHubs) join(ctx context.Context, project, id string) (*tailReader, error) {
	if n := t.readers.Add(1); n > int64(t.limits.Readers) {
		t.readers.Add(-1)
		t.api.Metrics.tail.refused.WithLabelValues("server").Inc()
		return nil, fault.New(fault.Unavailable, "the server has %d live tails open, as many as it takes; read the ledger, or try again later", t.limits.Readers)
	}
	r, err := t.enter(ctx, project, id)
	if err != nil {
		t.readers.Add(-1)
		return nil, err
	}
	t.api.Metrics.tail.readers.Inc()
	return r, nil
}

// enter waits for nobody's store but that of its own agent: the lock over all hubs is not held while a head is read.
func (t *tailHubs) enter(ctx context.Context, project, id string) (*tailReader, error) {
	k := [2]string{project, id}
	for {
		t.mu.Lock()
		h := t.hubs[k]
		first := h == nil
		if first {
			h = &tailHub{all: t, project: project, id: id, ready: make(chan struct{}), done: make(chan struct{}), readers: map[*tailReader]struct{}{}}
			t.hubs[k] = h
		}
		r, err := h.seat(t.limits.AgentReaders)
		t.mu.Unlock()
		switch {
		case err != nil:
			t.api.Metrics.tail.refused.WithLabelValues("agent").Inc()
			return nil, err
		case first:
			if err := h.begin(ctx); err != nil {
				t.mu.Lock()
				delete(t.hubs, k)
				t.mu.Unlock()
				close(h.ready)
				return nil, err
			}
			close(h.ready)
			return r, nil
		}
		select {
		case <-h.ready:
			if h.stop != nil {
				return r, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			// Who made it failed, perhaps because its own caller went away.
		case <-ctx.Done():
			if r.rise() { // all others have come and gone meanwhile
				h.end()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// seat adds a reader.
func (h *tailHub) seat(most int) (*tailReader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) >= most {
		return nil, fault.New(fault.RateLimited, "agent %s has %d live tails open, as many as it may; let readers share one, or try again later", h.id, most)
	}
	r := &tailReader{hub: h, wake: make(chan struct{}, 1)}
	h.readers[r] = struct{}{}
	return r, nil
}

// begin reads the agent's head and follows it from there.
func (h *tailHub) begin(ctx context.Context) error {
	h.feed = h.all.api.Memory.Follow(h.project, h.id)
	head, err := h.all.api.Memory.Head(ctx, h.project, h.id) // after the feed has begun, so that nothing falls between the two
	if err != nil {
		h.feed.Close()
		return err
	}
	h.mu.Lock()
	h.floor, h.head, h.ended = whole(head.Rev), whole(head.Rev), head.Agent.Status.Ended()
	h.mu.Unlock()
	h.look()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	go h.run(run, head.Rev, &head.Agent) // ended and awaited by leave
	return nil
}

// rise takes the reader away and tells whether it was the last one, whose hub is gone then.
func (r *tailReader) rise() bool {
	h, t := r.hub, r.hub.all
	t.mu.Lock()
	defer t.mu.Unlock()
	h.mu.Lock()
	delete(h.readers, r)
	last := len(h.readers) == 0
	h.mu.Unlock()
	if k := [2]string{h.project, h.id}; last && t.hubs[k] == h {
		delete(t.hubs, k)
	}
	return last
}

// leave takes a reader away that has entered; the last one ends the hub.
func (r *tailReader) leave() {
	t := r.hub.all
	t.readers.Add(-1)
	t.api.Metrics.tail.readers.Dec()
	if r.rise() {
		r.hub.end()
	}
}

// end stops a hub that nobody reads any more, nor will, and waits for it.
func (h *tailHub) end() {
	<-h.ready
	if h.stop != nil {
		h.stop()
		h.feed.Close()
		<-h.done
	}
}

// run follows the agent until the last reader has left.
func (h *tailHub) run(ctx context.Context, rev int64, agent *memory.Agent) {
	defer close(h.done)
	defer func() {
		if p := recover(); p != nil {
			h.all.api.Log.Error().Str("panic", fmt.Sprint(p)).Msg("a live tail panicked")
			h.mu.Lock()
			h.broken = true
			h.mu.Unlock()
			h.wakeAll(ctx)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.feed.Wake():
		}
		fed := h.feed.Take()
		var err error
		for rev, agent, err = h.take(ctx, fed, rev, agent); err != nil && ctx.Err() == nil; {
			if fault.Is(err, fault.NotFound) {
				h.mu.Lock()
				h.erased = true
				h.mu.Unlock()
				h.wakeAll(ctx)
				return
			}
			wait(ctx, tailRetry)
			rev, agent, err = h.take(ctx, memory.Fed{Lost: true}, rev, agent)
		}
		h.look()
		h.wakeAll(ctx)
	}
}

// take makes the events of what was fed and gives the revision up to which they are made.
func (h *tailHub) take(ctx context.Context, fed memory.Fed, rev int64, agent *memory.Agent) (int64, *memory.Agent, error) {
	for _, n := range fed.Notes {
		count := n.Count
		if b, err := appendJSON(nil, memoryEvent{Action: n.Action, Count: &count}); err == nil {
			h.pass(tailMemory, sse("memory", nil, b))
		}
	}
	slices.SortFunc(fed.Written, func(a, b memory.Written) int { return whole(a.Rev).compare(whole(b.Rev)) })
	for i := range fed.Written {
		w := &fed.Written[i]
		switch {
		case w.Rev <= rev:
			continue
		case w.Prev != rev || fed.Lost: // some are missing: the store knows
			return h.read(ctx, rev, agent)
		}
		if w.Agent != nil {
			agent = w.Agent
		}
		f := framer{from: whole(rev), upTo: w.Rev, kinds: tailAll, live: !agent.Status.Ended(), base: agent.Settings.Memory.BaseSeq}
		for _, list := range [2][]memory.Message{w.Append, w.Replace} {
			for j := range list {
				if err := f.message(&list[j]); err != nil {
					return rev, agent, err
				}
			}
		}
		if w.Agent != nil {
			if err := f.agent(w.Agent); err != nil {
				return rev, agent, err
			}
		}
		h.publish(&f, agent)
		rev = w.Rev
	}
	if fed.Lost {
		return h.read(ctx, rev, agent)
	}
	return rev, agent, nil
}

// read makes the events of what the store has behind the ring.
func (h *tailHub) read(ctx context.Context, rev int64, agent *memory.Agent) (int64, *memory.Agent, error) {
	for at := h.head; ; { // which no other goroutine writes
		f, head, err := h.all.load(ctx, h.project, h.id, at, tailAll)
		if err != nil {
			return rev, agent, err
		}
		agent = &head.Agent
		if head.Rev > rev {
			h.all.api.Metrics.tail.reads.WithLabelValues("hub").Inc()
		}
		if at = h.publish(f, agent); !f.cut {
			return max(rev, head.Rev), agent, nil
		}
	}
}

// load reads from the store what an agent's events behind a place are made of, catchUpBytes of them at most: the framer is cut then.
func (t *tailHubs) load(ctx context.Context, project, id string, from place, kinds int) (*framer, memory.Head, error) {
	head, err := t.api.Memory.Head(ctx, project, id)
	if err != nil {
		return nil, head, err
	}
	f := &framer{from: from, upTo: head.Rev, kinds: kinds, live: !head.Agent.Status.Ended(), base: head.Agent.Settings.Memory.BaseSeq, limit: catchUpBytes}
	if from.since() >= head.Rev {
		return f, head, nil
	}
	for seq := int64(0); ; {
		msgs, err := t.api.Memory.Messages(ctx, project, id, memory.MessageQuery{AfterSeq: seq, AfterRev: from.since(), Limit: tailPage})
		if err != nil {
			return nil, head, err
		}
		for i := range msgs {
			if err := f.message(&msgs[i]); err != nil {
				return nil, head, err
			}
		}
		if len(msgs) < tailPage || f.passedBy(msgs) {
			return f, head, f.agent(&head.Agent)
		}
		seq = msgs[len(msgs)-1].Seq
	}
}

// publish puts events into the ring and gives its end.
func (h *tailHub) publish(f *framer, agent *memory.Agent) place {
	frames, end := f.done()
	h.all.api.Metrics.tail.made.Add(float64(len(frames)))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fr := range frames {
		h.ring = append(h.ring, fr)
		h.bytes += len(fr.bytes)
	}
	n := 0
	for ; n < len(h.ring) && (h.bytes > ringMost || h.ring[n].at.rev < end.rev && (len(h.ring)-n > ringFrames || h.bytes > ringBytes)); n++ {
		h.bytes -= len(h.ring[n].bytes)
		h.floor = h.ring[n].at
	}
	if n > 0 {
		h.ring = slices.Clone(h.ring[n:])
	}
	h.head, h.ended = end, agent.Status.Ended()
	return end
}

// pass tells those who are there of something that stands in no ledger.
func (h *tailHub) pass(kind int, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passed++
	h.passing = append(h.passing[max(0, len(h.passing)-maxPassing+1):len(h.passing):len(h.passing)], passing{h.passed, kind, b})
}

// look sees what the agent is doing, and tells it if it is something new.
func (h *tailHub) look() {
	e := stateEvent{State: "listening"}
	if p, turn, ok := h.all.api.Memory.Doing(h.project, h.id); ok {
		e.State, e.TurnID = "thinking", &turn
		if p == memory.Speaking {
			e.State = "speaking"
		}
	}
	data, err := appendJSON(nil, e)
	if err != nil {
		return
	}
	b := sse("state", nil, data)
	h.mu.Lock()
	defer h.mu.Unlock()
	if string(b) != string(h.state) {
		h.state, h.stateNo = b, h.stateNo+1
	}
}

// wakeAll wakes the readers, some at a time. It runs on the hub's own goroutine.
func (h *tailHub) wakeAll(ctx context.Context) {
	h.mu.RLock()
	readers := make([]*tailReader, 0, len(h.readers))
	for r := range h.readers {
		readers = append(readers, r)
	}
	h.mu.RUnlock()
	for i, r := range readers {
		if i > 0 && i%wakeBurst == 0 && !wait(ctx, wakePause) {
			return
		}
		select {
		case r.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// wait waits; false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// seen is what a reader has had.
type seen struct {
	at      place
	passed  int64
	stateNo int64
}

// news is what there is for a reader.
type news struct {
	frames  []frame // shared; to be written and not to be changed
	extra   [][]byte
	next    seen
	more    bool // there is more than was given
	behind  bool // what follows stands in the store alone
	ended   bool // the agent has, and the reader will have everything
	dropped string
}

// maxTaken is how many events a reader takes at a time.
const maxTaken = 128

// news gives what a reader has not had yet.
func (h *tailHub) news(s seen, kinds int) news {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := news{next: s}
	switch {
	case h.erased:
		n.dropped = droppedErased
		return n
	case h.broken:
		n.dropped = droppedError
		return n
	case s.at.compare(h.floor) < 0:
		n.behind = true
		return n
	}
	i, found := slices.BinarySearchFunc(h.ring, s.at, func(f frame, p place) int { return f.at.compare(p) })
	if found {
		i++
	}
	for ; i < len(h.ring) && len(n.frames) < maxTaken; i++ {
		if h.ring[i].kind&kinds != 0 {
			n.frames = append(n.frames, h.ring[i])
		}
		n.next.at = h.ring[i].at
	}
	if n.more = i < len(h.ring); n.more {
		return n
	}
	if n.next.at.compare(h.head) < 0 {
		n.next.at = h.head
	}
	if s.passed < h.passed {
		for _, p := range h.passing {
			if p.no > s.passed && p.kind&kinds != 0 {
				n.extra = append(n.extra, p.bytes)
			}
		}
		n.next.passed = h.passed
	}
	if s.stateNo < h.stateNo && !h.ended {
		if kinds&tailState != 0 {
			n.extra = append(n.extra, h.state)
		}
		n.next.stateNo = h.stateNo
	}
	n.ended = h.ended
	return n
}

// sees gives where a reader that has just come begins: at a place of its own, with nothing of what is passing.
func (h *tailHub) sees(at place) seen {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return seen{at: at, passed: h.passed}
}
