package agents

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/feed"
	"github.com/heardlog/heardlog/memory/heard"
)

// registry is what this process knows about live agents beyond the store: the last activity, the
// answers that are being generated, and the followers. Losing it with the process loses nothing
// that was acknowledged.
type registry struct {
	mu        sync.RWMutex
	agents    map[memory.Ref]*liveAgent
	feeds     map[memory.Ref]int // how many there are of agents that are followed
	openCount atomic.Int64       // open answers
	// decisions counts the turns that were decided.
	decisions atomic.Int64
	shared    bool // other processes may write, too
}

type liveAgent struct {
	asked atomic.Int64 // Unix ns of the last request for the agent, or of the last message
	// Unix ns of the last message, or of the end of an answer: what a silence counts from.
	spoken atomic.Int64

	mu       sync.Mutex
	answers  []*openAnswer
	feeds    []*feed.Feed
	farewell time.Time // when the farewell ends; zero if there is none
	live     bool      // false for an entry that is kept only while it has answers or feeds
	// silenced is set once the server has broken the running silence. After a restart it may break
	// it once more.
	silenced atomic.Bool
	// What other processes have seen, or was assumed of the agent when it was taken up; under mu.
	learnt memory.Seen
	rev    int64 // of the last change that is known here, if other processes may write; under mu
	// warned is when to check again whether the announcement of the agent's expiry is wanted, Unix
	// ns; 0 is not checked yet, -1 is announced.
	warned atomic.Int64
}

// openAnswer is an answer that is being generated, from Begin to Settle. What it is called in the
// ledger (turn, place) becomes known while the turn is stored.
type openAnswer struct {
	agent *liveAgent
	turn  atomic.Int64 // noTurn until it is decided
	// place is the Seq reserved for the answer, or the next one where none could be; 0 until
	// it is decided. It is the order in which answers began, on all processes: the ledger reserves
	// each Seq once. It may still change until stored is closed.
	place       atomic.Int64
	placeStored chan struct{}
	// decided is the order in which this process decided the turns: answers without a reserved Seq
	// may have the same place.
	order    atomic.Int64
	inLedger atomic.Bool // the answer is in the ledger
	// The turn goes on without the store; Away holds it.
	passed, mustRelease atomic.Bool
	phase               atomic.Int32
	startMS             int64 // Unix ms
	cut                 func(error)
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

func newRegistry() *registry {
	return &registry{agents: map[memory.Ref]*liveAgent{}, feeds: map[memory.Ref]int{}}
}

func (r *registry) get(ref memory.Ref) *liveAgent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[ref]
}

// entry returns the agent's entry, and creates it if there is none. The caller holds r.mu for
// writing.
func (r *registry) entry(ref memory.Ref, now time.Time) *liveAgent {
	a := r.agents[ref]
	if a == nil {
		a = &liveAgent{}
		a.asked.Store(now.UnixNano())
		a.spoken.Store(now.UnixNano())
		r.agents[ref] = a
	}
	return a
}

// drop removes an entry that is no longer needed. The caller holds r.mu for writing and a.mu.
func (r *registry) drop(ref memory.Ref, a *liveAgent) {
	if !a.live && len(a.answers) == 0 && len(a.feeds) == 0 && r.agents[ref] == a {
		delete(r.agents, ref)
	}
}

// add notes an agent as live.
func (r *registry) add(ref memory.Ref, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.entry(ref, now)
	a.mu.Lock()
	a.live = true
	a.mu.Unlock()
}

// adopt adds a live agent that was created by another process, or before this one started. That is
// not activity.
func (s *Service) adopt(ref memory.Ref, now time.Time) {
	s.live.add(ref, now)
	if a := s.live.get(ref); a != nil {
		a.mu.Lock()
		a.learnt = memory.Seen{AskedMS: a.asked.Load() / 1e6, SpokenMS: a.spoken.Load() / 1e6}
		a.mu.Unlock()
	}
}

// farewellEnd returns when the farewell ends that the agent was asked for here, or the zero time.
func (r *registry) farewellEnd(ref memory.Ref) time.Time {
	a := r.get(ref)
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.farewell
}

// remove drops an agent that has ended, once its last answer has ended and its last follower is
// gone.
func (r *registry) remove(ref memory.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[ref]; a != nil {
		a.mu.Lock()
		a.live = false
		r.drop(ref, a)
		a.mu.Unlock()
	}
}

func (r *registry) touch(ref memory.Ref, now time.Time) {
	if a := r.get(ref); a != nil {
		a.asked.Store(now.UnixNano())
	}
}

// spoke notes that a message was stored.
func (r *registry) spoke(ref memory.Ref, now time.Time) {
	if a := r.get(ref); a != nil {
		a.spoken.Store(now.UnixNano())
	}
}

// silence sets whether the server has broken the running silence, and returns the previous value.
func (r *registry) silence(ref memory.Ref, broken bool) bool {
	a := r.get(ref)
	return a != nil && a.silenced.Swap(broken)
}

func (r *registry) silenced(ref memory.Ref) bool {
	a := r.get(ref)
	return a != nil && a.silenced.Load()
}

// warn sets that the agent's expiry was announced or, with a time, when to check again.
func (r *registry) warn(ref memory.Ref, again time.Time) {
	at := int64(-1)
	if !again.IsZero() {
		at = again.UnixNano()
	}
	if a := r.get(ref); a != nil {
		a.warned.Store(at)
	}
}

// warned reports whether the agent's expiry needs no announcement anymore, and otherwise when to
// check again.
func (r *registry) warned(ref memory.Ref) (again time.Time, done bool) {
	a := r.get(ref)
	if a == nil {
		return time.Time{}, true
	}
	at := a.warned.Load()
	if at > 0 {
		again = time.Unix(0, at)
	}
	return again, at < 0
}

// activity returns when the agent was last active: now if unknown, or while an answer is generated
// or the agent is followed.
func (r *registry) activity(ref memory.Ref, now time.Time) time.Time {
	a := r.get(ref)
	if a == nil {
		return now
	}
	a.mu.Lock()
	busy := len(a.answers)+len(a.feeds) > 0
	a.mu.Unlock()
	if busy {
		return now
	}
	return time.Unix(0, a.asked.Load())
}

// conversation returns when something was last said: now if unknown, or while an answer is
// generated. Requests do not count.
func (r *registry) conversation(ref memory.Ref, now time.Time) time.Time {
	a := r.get(ref)
	if a == nil {
		return now
	}
	a.mu.Lock()
	busy := len(a.answers) > 0
	a.mu.Unlock()
	if busy {
		return now
	}
	return time.Unix(0, a.spoken.Load())
}

// setFarewell sets when the agent's farewell is over.
func (r *registry) setFarewell(ref memory.Ref, until time.Time) {
	if a := r.get(ref); a != nil {
		a.mu.Lock()
		a.farewell = until
		a.mu.Unlock()
	}
}

// farewell returns when the agent's farewell ends; at once if no answer is being generated.
func (r *registry) farewell(ref memory.Ref) time.Time {
	a := r.get(ref)
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) == 0 {
		return time.Time{}
	}
	return a.farewell
}

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

// answering reports whether an answer to the turn is being generated.
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

// cutAnswers cuts the open answers that which selects, waits until they are stored (at most
// SettleWait) and returns their turns.
func (s *Service) cutAnswers(ctx context.Context, ref memory.Ref, cause error, which func(o *openAnswer) bool) []int64 {
	return s.waitStored(ctx, s.stopAnswers(ref, cause, which))
}

// stopAnswers cuts the open answers that which selects, and returns them.
func (s *Service) stopAnswers(ref memory.Ref, cause error, which func(o *openAnswer) bool) (cut []*openAnswer) {
	for _, o := range s.live.openAnswers(ref) {
		if which(o) {
			o.stop(cause)
			cut = append(cut, o)
		}
	}
	return cut
}

// waitStored waits until the answers are stored, at most SettleWait, and returns their turns.
func (s *Service) waitStored(ctx context.Context, cut []*openAnswer) (turns []int64) {
	if len(cut) == 0 {
		return nil
	}
	for _, o := range cut {
		turns = append(turns, o.turn.Load())
	}
	wait, stop := context.WithTimeout(ctx, s.cfg.SettleWait)
	defer stop()
	for _, o := range cut {
		select {
		case <-o.settled:
		case <-wait.Done():
			return turns
		}
	}
	return turns
}

// Busy reports whether any process is generating an answer, and the phase of the one that has come
// furthest.
func (s *Service) Busy(ctx context.Context, project, id string) (memory.Phase, bool) {
	ref := memory.Ref{Project: project, ID: id}
	if phase, busy := s.busyHere(ref); busy {
		return phase, true
	}
	r := s.askIfPending(ctx, ref, nil, nil, nil)
	return r.Phase, len(r.Turns) > 0
}

// busyHere is Busy for this process. An answer that is in the ledger is no longer being generated,
// even before it has ended: a caller that has read it there finds the agent idle.
func (s *Service) busyHere(ref memory.Ref) (phase memory.Phase, busy bool) {
	for _, o := range s.live.openAnswers(ref) {
		if !o.inLedger.Load() {
			phase, busy = max(phase, memory.Phase(o.phase.Load())), true
		}
	}
	return phase, busy
}

// Answering reports whether this process is generating an answer.
func (s *Service) Answering(project, id string) bool {
	return len(s.live.openAnswers(memory.Ref{Project: project, ID: id})) > 0
}

// Cut cuts all answers that are being generated, with one of the Err values as the cause, and waits
// until they are stored.
func (s *Service) Cut(ctx context.Context, project, id string, cause error) {
	ref := memory.Ref{Project: project, ID: id}
	if cut := s.cutAnswers(ctx, ref, cause, func(*openAnswer) bool { return true }); len(cut) == 0 {
		s.askIfPending(ctx, ref, cause, nil, nil)
	}
}

// WaitIdle waits until no answer is being generated; it fails with the context's error.
func (s *Service) WaitIdle(ctx context.Context, project, id string) error {
	ref := memory.Ref{Project: project, ID: id}
	for _, o := range s.live.openAnswers(ref) {
		select {
		case <-o.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for len(s.askIfPending(ctx, ref, nil, nil, nil).Turns) > 0 { // each question takes its moment
		select {
		case <-time.After(tailEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
