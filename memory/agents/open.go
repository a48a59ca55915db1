package agents

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

// openAnswer is an answer that is being generated, from Begin to Settle. Its turn and its place in
// the ledger become known while Begin stores the turn.
type openAnswer struct {
	agent *liveAgent
	turn  atomic.Int64 // noTurn until it is decided
	// place is the Seq reserved for the answer, or the next one where none could be; 0 until
	// it is decided. It is the order in which answers began, on all processes: the ledger reserves
	// each Seq once. It may still change until placeStored is closed.
	place       atomic.Int64
	placeStored chan struct{}
	// order is the order in which this process decided the turns: answers without a reserved Seq
	// may have the same place.
	order    atomic.Int64
	inLedger atomic.Bool // the answer is in the ledger
	passed   atomic.Bool // the turn goes on without the store
	// Config.Away keeps the changes of the agent until it is released.
	mustRelease atomic.Bool
	phase       atomic.Int32
	startMS     int64       // Unix ms
	cut         func(error) // see TurnRequest.Cut
	// Returns the text so far; may be nil, and is nil after the end; under agent.mu.
	generated func() string
	once      sync.Once     // for cut
	settled   chan struct{} // closed when the answer is settled
	// amendments are applied when the answer is stored, and closed is set then; under agent.mu.
	amendments []Amendment
	closed     bool
}

// noTurn is the turn of an open answer whose turn is not decided yet.
const noTurn = -1

// open registers an answer that is being generated.
func (r *registry) open(ref memory.Ref, cut func(error), generated func() string, now time.Time) *openAnswer {
	o := &openAnswer{startMS: now.UnixMilli(), cut: cut, generated: generated, placeStored: make(chan struct{}), settled: make(chan struct{})}
	r.openCount.Add(1)
	o.turn.Store(noTurn)
	r.mu.RLock() // keeps the entry from being dropped
	known := r.agents[ref]
	if known != nil {
		known.addAnswer(o)
	}
	r.mu.RUnlock()
	if known == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entry(ref, now).addAnswer(o)
	}
	return o
}

// addAnswer adds an open answer to the agent. The caller holds the registry's mu, at least for
// reading.
func (a *liveAgent) addAnswer(o *openAnswer) {
	o.agent = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = append(a.answers, o)
}

// end ends an open answer, whatever happened to its agent. It may live on in a Turn, so it drops
// its callbacks.
func (r *registry) end(ref memory.Ref, o *openAnswer, now time.Time) {
	r.openCount.Add(-1)
	o.agent.asked.Store(now.UnixNano())
	o.agent.spoken.Store(now.UnixNano())
	o.agent.mu.Lock()
	if i := slices.Index(o.agent.answers, o); i >= 0 {
		o.agent.answers = slices.Delete(o.agent.answers, i, i+1)
	}
	live := o.agent.live
	o.generated = nil
	o.agent.wakeFollowers()
	o.agent.mu.Unlock()
	if !live { // all calls meet at r.mu, and only an agent that has ended needs it here
		r.mu.Lock()
		o.agent.mu.Lock()
		r.drop(ref, o.agent)
		o.agent.mu.Unlock()
		r.mu.Unlock()
	}
	o.once.Do(func() {}) // cut is not called after this
	o.cut = nil
	close(o.settled)
}

// says reports whether the text may be part of the answer generated so far. If that is unknown, any
// text may be.
func (o *openAnswer) says(text *string) bool {
	if text == nil || *text == "" {
		return true
	}
	o.agent.mu.Lock()
	generated := o.generated
	o.agent.mu.Unlock()
	if generated == nil {
		return true
	}
	_, ok := heard.Align(generated(), *text)
	return ok
}

// stop calls cut, at most once and never after it has ended.
func (o *openAnswer) stop(cause error) {
	o.once.Do(func() { o.cut(cause) })
}

// openAnswers returns the open answers of an agent.
func (r *registry) openAnswers(ref memory.Ref) []*openAnswer {
	a := r.get(ref)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*openAnswer(nil), a.answers...)
}

// placedBefore returns the open answers that have a place in the ledger below before. It waits for
// those whose place is being stored: another process may have seen it in the ledger already.
func (r *registry) placedBefore(ctx context.Context, ref memory.Ref, before int64) (list []*openAnswer) {
	for _, o := range r.openAnswers(ref) {
		if place := o.place.Load(); place == 0 || place >= before {
			continue // a place only moves up
		}
		select {
		case <-o.placeStored:
			if o.place.Load() < before {
				list = append(list, o)
			}
		case <-o.settled:
		case <-ctx.Done():
			return list
		}
	}
	return list
}

// isAnswering reports whether an answer to the turn is being generated.
func (r *registry) isAnswering(ref memory.Ref, turn int64) bool {
	a := r.get(ref)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.answers {
		if o.turn.Load() == turn && !o.inLedger.Load() {
			return true
		}
	}
	return false
}

// lastTurn returns the highest turn whose answer is being generated, or -1. It exceeds the ledger's
// while the agent speaks without being asked.
func (r *registry) lastTurn(ref memory.Ref) int64 {
	last := int64(noTurn)
	a := r.get(ref)
	if a == nil {
		return last
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.answers {
		last = max(last, o.turn.Load())
	}
	return last
}
