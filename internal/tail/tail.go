// Package tail streams what happens to an agent, while it happens, as server-sent events.
//
// A Hub follows every watched agent and encodes each change once, however many
// watch. A Reader is one open stream: it sends what the Hub keeps, and reads the store when it is
// further behind than that. Writers of an agent never wait for its readers.
//
// An event that stands in the ledger has an ID, which is its position in the agent's stream. With
// it a client that lost its connection resumes without a gap and without a repeat, on any server.
package tail

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Limits bounds the streams. A zero field means its default.
type Limits struct {
	Readers        int           // open streams of the whole server
	ProjectReaders int           // open streams of one project
	AgentReaders   int           // open streams of one agent
	Heartbeat      time.Duration // time between the comments that keep a quiet connection open
	Write          time.Duration // timeout of one write to a reader
	Behind         time.Duration // how long a reader that was up to date may stay behind
}

// Defaults of Limits.
const (
	DefaultReaders        = 10_000
	DefaultProjectReaders = 5_000
	DefaultAgentReaders   = 2_000
	DefaultHeartbeat      = 15 * time.Second
	DefaultWrite          = 10 * time.Second
	DefaultBehind         = time.Minute
)

func (l Limits) withDefaults() Limits {
	if l.Readers == 0 {
		l.Readers = DefaultReaders
	}
	if l.ProjectReaders == 0 {
		l.ProjectReaders = DefaultProjectReaders
	}
	if l.AgentReaders == 0 {
		l.AgentReaders = DefaultAgentReaders
	}
	if l.Heartbeat == 0 {
		l.Heartbeat = DefaultHeartbeat
	}
	if l.Write == 0 {
		l.Write = DefaultWrite
	}
	if l.Behind == 0 {
		l.Behind = DefaultBehind
	}
	return l
}

// Config holds the parts of a Hub. Limits and Done may be left out.
type Config struct {
	Memory *agents.Service
	// Encode returns a message's JSON as the ledger shows it. live reports whether the agent still
	// runs, so that its last answers may be provisional; base is the first Seq of its memory.
	Encode  func(m *memory.Message, live bool, base int64) ([]byte, error)
	Limits  Limits
	Metrics *Metrics
	Log     zerolog.Logger
	Now     func() time.Time
	Done    <-chan struct{} // closed when the server begins to stop; streams end then
}

// maxCatchUps is how many readers may read the store at the same time.
const maxCatchUps = 16

// Hub holds the agents that are watched. Its methods are safe for concurrent use.
type Hub struct {
	Config
	readers  atomic.Int64
	catchUps chan struct{} // holds a value for each reader that reads the store

	mu        sync.Mutex
	topics    map[memory.Ref]*topic
	byProject map[string]int // open streams
}

// New returns a Hub that follows no agent yet.
func New(c Config) *Hub {
	c.Limits = c.Limits.withDefaults()
	return &Hub{Config: c, catchUps: make(chan struct{}, maxCatchUps), topics: map[memory.Ref]*topic{}, byProject: map[string]int{}}
}

// Open starts a stream of the agent's events of the given kinds. after is the ID of the last event
// that the client has; "" starts with the agent as it is now. Open returns nil without an error if
// the agent has ended and the client has everything. Otherwise the caller must close the Reader.
//
// It fails with fault.NotFound for an unknown agent, fault.Invalid for an ID that is not one,
// fault.RateLimited if the agent or the project has too many readers and fault.Unavailable if the
// server has.
func (h *Hub) Open(ctx context.Context, project, id string, kinds Kinds, after string) (*Reader, error) {
	var start position
	if after != "" {
		var err error
		if start, err = parsePosition(after); err != nil {
			return nil, err
		}
	}
	head, err := h.Memory.Messages.Head(ctx, project, id)
	if err != nil {
		return nil, err
	}
	now := endOf(head.Rev)
	if after == "" || start.compare(now) > 0 { // an ID from the future would never come
		start = now
	}
	if after != "" && start == now && head.Agent.Status.Ended() {
		return nil, nil
	}
	if n := h.readers.Add(1); n > int64(h.Limits.Readers) {
		h.readers.Add(-1)
		h.Metrics.refused.WithLabelValues("server").Inc()
		return nil, fault.New(fault.Unavailable, "the server has %d live tails open, which is the limit; read the ledger instead, or retry later", h.Limits.Readers)
	}
	if err := h.enter(project); err != nil {
		h.readers.Add(-1)
		return nil, err
	}
	s, err := h.subscribe(ctx, memory.Ref{Project: project, ID: id})
	if err != nil {
		h.readers.Add(-1)
		h.leave(project)
		return nil, err
	}
	h.Metrics.readers.Inc()
	r := &Reader{hub: h, sub: s, kinds: kinds, sent: start}
	if after == "" && kinds&kindAgent != 0 {
		r.first = head.Agent
	}
	return r, nil
}

// enter counts a stream of the project. It fails with fault.RateLimited if there are too many.
func (h *Hub) enter(project string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byProject[project] >= h.Limits.ProjectReaders {
		h.Metrics.refused.WithLabelValues("project").Inc()
		return fault.New(fault.RateLimited, "the project has %d live tails open, which is its limit (HEARDLOG_TAIL_PROJECT_READERS); let readers share one, or retry later", h.Limits.ProjectReaders)
	}
	h.byProject[project]++
	return nil
}

// leave takes back what enter counted.
func (h *Hub) leave(project string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byProject[project]--; h.byProject[project] == 0 {
		delete(h.byProject, project)
	}
}

// Readers returns how many streams of the project are open, and how many may be.
func (h *Hub) Readers(project string) (open, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byProject[project], h.Limits.ProjectReaders
}

// subscribe adds a subscription to the agent's topic, which it creates if there is none. It waits
// for no other agent's store: the hub's lock is not held while a head is read.
func (h *Hub) subscribe(ctx context.Context, k memory.Ref) (*subscription, error) {
	for {
		h.mu.Lock()
		t := h.topics[k]
		first := t == nil
		if first {
			t = newTopic(h, k)
			h.topics[k] = t
		}
		s, err := t.add(h.Limits.AgentReaders)
		h.mu.Unlock()
		switch {
		case err != nil:
			h.Metrics.refused.WithLabelValues("agent").Inc()
			return nil, err
		case first:
			if err := t.start(ctx); err != nil {
				h.mu.Lock()
				delete(h.topics, k)
				h.mu.Unlock()
				close(t.ready)
				return nil, err
			}
			close(t.ready)
			return s, nil
		}
		select {
		case <-t.ready:
			if t.cancel != nil {
				return s, nil
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			// The request that created the topic failed, perhaps because its own client left.
		case <-ctx.Done():
			if h.remove(s) { // every other reader left in the meantime
				t.stop()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// unsubscribe removes the subscription. The last one stops its topic.
func (h *Hub) unsubscribe(s *subscription) {
	h.readers.Add(-1)
	h.leave(s.topic.key.Project)
	h.Metrics.readers.Dec()
	if h.remove(s) {
		s.topic.stop()
	}
}

// remove takes the subscription out of its topic. It reports whether it was the last one; the hub
// has forgotten the topic then.
func (h *Hub) remove(s *subscription) (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := s.topic
	t.mu.Lock()
	delete(t.subs, s)
	last = len(t.subs) == 0
	t.mu.Unlock()
	if last && h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
	return last
}

// storePage is how many messages are read from the store at a time.
const storePage = 200

// load reads from the store what the events after a position are made of. It keeps about
// maxCollected bytes of them; the collector is cut then.
func (h *Hub) load(ctx context.Context, k memory.Ref, from position, kinds Kinds) (*collector, memory.Head, error) {
	head, err := h.Memory.Messages.Head(ctx, k.Project, k.ID)
	if err != nil {
		return nil, head, err
	}
	c := newCollector(h.Encode, head.Agent, from, head.Rev, kinds)
	c.limit = maxCollected
	if from.wholeRev() >= head.Rev {
		return c, head, nil
	}
	for seq := int64(0); ; {
		msgs, err := h.Memory.Messages.Page(ctx, k.Project, k.ID, memory.MessageQuery{AfterSeq: seq, AfterRev: from.wholeRev(), Limit: storePage})
		if err != nil {
			return nil, head, err
		}
		for i := range msgs {
			if err := c.message(&msgs[i]); err != nil {
				return nil, head, err
			}
		}
		if len(msgs) < storePage || c.full(msgs) {
			return c, head, c.agent(head.Agent)
		}
		seq = msgs[len(msgs)-1].Seq
	}
}
