// Package engine implements memory.Ledger over a memory.Store. An Engine runs decisions, groups
// what they write into commits, keeps recently used agents in memory and decides again when a write
// turns out to be stale. A store below it only compares and sets.
//
// One update goes like this:
//
//  1. The caller takes the agent's turn, a lock within the process, so that no
//     caller of a busy agent starves.
//  2. The decision runs on the agent's tip: what is on disk and what is already queued behind it.
//  3. The change is checked, encoded and queued with the version that it was decided on, and the
//     turn is passed on.
//  4. A committer hands everything that is queued to Store.Apply, which answers each write.
//  5. A write that is answered with memory.ErrStale is decided again on what the store holds now.
//
// Nothing is decided inside the store's transaction.
package engine

import (
	"context"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Options sets an engine's bounds. Zero values mean the defaults.
type Options struct {
	// CacheBytes bounds the memory that is used for agents and their newest messages. 64 MiB by
	// default.
	CacheBytes int64
	// QueueLen is how many writes of one project may wait for a commit, and a quarter of how many
	// may wait in all. Further ones fail with fault.Unavailable. 4096 by default.
	QueueLen int
	// MaxGroup is how many writes may share a commit. 512 by default; 1 commits each by itself.
	MaxGroup int
	// MaxGroupBytes is about how many bytes of encoded messages may share a commit; each message
	// counts 256 more. A write of more than a quarter is committed by itself. 256 KiB by default.
	MaxGroupBytes int
	// Committers is how many commits may be under way at once, always of different agents. 1 by
	// default.
	Committers int
	// Timeout bounds a commit, and the wait for it. 10 s by default.
	Timeout time.Duration
	// Shared says that other processes write to the store, which counts memory.Version.Ver then.
	// What is kept in memory is checked against the store whenever it is used, and no update
	// returns early.
	Shared bool
	// Epoch, if not nil, is called before each decision. Its result travels in memory.Write.Epoch.
	Epoch func() int64
	// Observe, if not nil, is called after each commit. It must be quick.
	Observe func(Commit)
	// Remember keeps what was known of agents when the store failed, for Known: up to CacheBytes
	// more.
	Remember bool
}

// Commit describes one call of Store.Apply, for metrics.
type Commit struct {
	Items    int           // writes that shared it
	Messages int           // messages appended or replaced
	Took     time.Duration // from the call to the store's answer
	Err      error         // why the whole commit failed
}

func (o Options) withDefaults() Options {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.QueueLen <= 0 {
		o.QueueLen = 4096
	}
	if o.MaxGroup <= 0 {
		o.MaxGroup = 512
	}
	if o.MaxGroupBytes <= 0 {
		o.MaxGroupBytes = 256 << 10
	}
	if o.Committers <= 0 {
		o.Committers = 1
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Epoch == nil {
		o.Epoch = func() int64 { return 0 }
	}
	if o.Observe == nil {
		o.Observe = func(Commit) {}
	}
	return o
}

// Engine is a memory.Ledger over a store. Its methods are safe for concurrent use.
type Engine struct {
	store      memory.Store
	o          Options
	cache      *cache.Cache[memory.Ref, *snapshot]
	lost       *cache.Cache[memory.Ref, *snapshot] // see Options.Remember; nil without it
	agents     agents
	waiting    *queue
	committers []*committer
	calls      sync.RWMutex // held for reading by every call, for writing by Close
	closed     bool
	work       sync.WaitGroup // commits and callbacks in goroutines of their own
}

var _ memory.Ledger = (*Engine)(nil)

// New returns an engine over a store, which it closes with itself.
func New(store memory.Store, o Options) *Engine {
	o = o.withDefaults()
	e := &Engine{store: store, o: o, cache: cache.New[memory.Ref](int64(o.CacheBytes), (*snapshot).size)}
	if o.Remember {
		e.lost = cache.New[memory.Ref](int64(o.CacheBytes), (*snapshot).size)
	}
	e.agents.init()
	e.waiting = newQueue(&e.o)
	for range o.Committers {
		e.committers = append(e.committers, &committer{e: e})
	}
	return e
}

// begin starts a call. Without an error the caller runs e.calls.RUnlock at its end.
func (e *Engine) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	e.calls.RLock()
	if e.closed {
		e.calls.RUnlock()
		return fault.New(fault.Unavailable, "the store is closed")
	}
	return nil
}

// errSlow refuses a call that has waited for so long that there is hardly time left for it.
var errSlow = fault.New(fault.Unavailable, "the store is too slow just now; nothing was written; try again")

// Close waits for what is queued to be committed and closes the store.
func (e *Engine) Close() error {
	e.calls.Lock()
	was := e.closed
	e.closed = true
	e.calls.Unlock()
	if was {
		return nil
	}
	e.work.Wait()
	return e.store.Close()
}

// Create implements memory.Ledger.
func (e *Engine) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (memory.Agent, bool, error) {
	if err := e.begin(ctx); err != nil {
		return memory.Agent{}, false, err
	}
	defer e.calls.RUnlock()
	if c.Agent != nil {
		return memory.Agent{}, false, fault.New(fault.Internal, "a new agent's change holds an agent")
	}
	ref := memory.Ref{Project: a.Project, ID: a.ID}
	w := memory.Write{Ref: ref, Change: c, Epoch: e.o.Epoch()}
	if err := encode(&w, nil, &a); err != nil {
		return memory.Agent{}, false, err
	}
	h := memory.NewHead(a, nil, 0)
	var err error
	if c.Tally, err = tally(nil, &h, c); err != nil {
		return memory.Agent{}, false, err
	}
	fresh := newSnapshot(memory.Stored{Head: h}, 1).apply(c)
	w.Head = &fresh.head
	seen := e.agents.seen(ref)
	no, existing, err := e.store.Create(ctx, w, limit)
	if err != nil {
		return memory.Agent{}, false, err
	}
	if existing == "" {
		if fresh.no = no; e.o.Shared {
			fresh.ver = 1
		}
		e.keep(ref, fresh, seen)
		return a, true, nil
	}
	s, err := e.current(ctx, memory.Ref{Project: a.Project, ID: existing}, 0)
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.Unavailable, "the agent of the join key is just being erased; try again")
	}
	if err != nil {
		return memory.Agent{}, false, err
	}
	return *s.head.Agent, false, nil
}

// Erase implements memory.Ledger.
func (e *Engine) Erase(ctx context.Context, project, id string) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.calls.RUnlock()
	a := e.agents.enter(memory.Ref{Project: project, ID: id})
	defer e.agents.leave(a)
	if err := a.lock(ctx, e.o.Timeout); err != nil {
		return err
	}
	defer a.unlock()
	if last := a.queued(); last != nil {
		select {
		case <-last.done:
		case <-ctx.Done():
			return fault.Ended(ctx)
		}
	}
	_, err := e.store.Erase(ctx, memory.Erasure{Ref: a.ref})
	e.forget(a.ref) // also after an error: the agent may be gone
	return err
}

// Sweep implements memory.Ledger.
func (e *Engine) Sweep(ctx context.Context, beforeMS int64, limit int) (int, error) {
	if err := e.begin(ctx); err != nil {
		return 0, err
	}
	defer e.calls.RUnlock()
	if limit <= 0 {
		return 0, nil
	}
	gone, err := e.store.Erase(ctx, memory.Erasure{BeforeMS: beforeMS, Limit: limit})
	for _, ref := range gone {
		e.forget(ref)
	}
	return len(gone), err
}

// Ping implements memory.Ledger.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.calls.RUnlock()
	return e.store.Ping(ctx)
}
