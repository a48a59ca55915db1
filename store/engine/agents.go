package engine

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// agents knows the agents that have calls or queued writes at the moment. It is split into stripes,
// so that calls for different agents seldom wait for each other.
type agents struct {
	seed    maphash.Seed
	stripes [64]stripe
}

type stripe struct {
	mu    sync.Mutex
	byRef map[memory.Ref]*agent
	// changes counts commits and erasures of the stripe's agents. What was read from the store
	// while it changed may be out of date and is not kept in memory.
	changes uint64
}

// agent is one that has calls or queued writes.
type agent struct {
	ref    memory.Ref
	stripe *stripe
	turn   chan struct{} // holds a token while a decision runs

	// The rest is guarded by stripe.mu.
	users int       // calls and queued writes that refer to it
	tip   *snapshot // what the newest queued write makes of the agent; nil: nothing is queued
	last  *write    // that write
	early *write    // the newest queued write whose caller has gone on
	// fails counts failed writes. A write that was decided on what failed carries an older count
	// and is not stored.
	fails   int
	failure error // the last one

	// Guarded by queue.mu.
	first, end *write     // its writes that wait for a commit, linked by next
	ringed     bool       // it is in a ring of the queue
	by         *committer // commits writes of it just now; nil: none
}

func (s *agents) init() {
	s.seed = maphash.MakeSeed()
	for i := range s.stripes {
		s.stripes[i].byRef = map[memory.Ref]*agent{}
	}
}

func (s *agents) stripe(ref memory.Ref) *stripe {
	return &s.stripes[maphash.Comparable(s.seed, ref)%uint64(len(s.stripes))]
}

// seen returns the stripe's count of changes, for Engine.keep.
func (s *agents) seen(ref memory.Ref) uint64 {
	st := s.stripe(ref)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.changes
}

// enter returns the agent for a call, which ends with leave.
func (s *agents) enter(ref memory.Ref) *agent {
	st := s.stripe(ref)
	st.mu.Lock()
	defer st.mu.Unlock()
	a := st.byRef[ref]
	if a == nil {
		a = &agent{ref: ref, stripe: st, turn: make(chan struct{}, 1)}
		st.byRef[ref] = a
	}
	a.users++
	return a
}

func (s *agents) leave(a *agent) {
	a.stripe.mu.Lock()
	defer a.stripe.mu.Unlock()
	a.release()
}

// release ends one use of the agent. The caller holds the stripe.
func (a *agent) release() {
	if a.users--; a.users == 0 {
		delete(a.stripe.byRef, a.ref)
	}
}

// early returns the newest queued write of the agent whose caller has gone on, if there is one.
func (s *agents) early(ref memory.Ref) *write {
	st := s.stripe(ref)
	st.mu.Lock()
	defer st.mu.Unlock()
	if a := st.byRef[ref]; a != nil {
		return a.early
	}
	return nil
}

// lock takes the agent's turn. Callers get it in the order in which they came, and none waits for
// longer than wait.
func (a *agent) lock(ctx context.Context, wait time.Duration) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Ended(ctx)
	case <-late.C:
		return errSlow
	}
}

func (a *agent) unlock() { <-a.turn }

// queued returns the newest queued write, if there is one.
func (a *agent) queued() *write {
	a.stripe.mu.Lock()
	defer a.stripe.mu.Unlock()
	return a.last
}

// base returns what the next decision builds on: the tip with its write, or neither if nothing is
// queued; and the count of fails that goes with it.
func (a *agent) base() (tip *snapshot, last *write, fails int) {
	a.stripe.mu.Lock()
	defer a.stripe.mu.Unlock()
	return a.tip, a.last, a.fails
}
