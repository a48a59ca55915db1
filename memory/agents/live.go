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
	mu       sync.RWMutex
	agents   map[agentKey]*liveAgent
	feeds    map[agentKey]int // how many there are of agents that are followed
	inFlight atomic.Int64     // flights
	// decisions counts the turns that were decided.
	decisions atomic.Int64
	shared    bool // other processes may write, too
}

// agentKey names an agent: two projects may use the same id where clients choose it.
type agentKey struct{ project, id string }

func keyOf(a *memory.Agent) agentKey { return agentKey{a.Project, a.ID} }

type liveAgent struct {
	asked atomic.Int64 // Unix ns of the last request for the agent, or of the last message
	// Unix ns of the last message, or of the end of an answer: what a silence counts from.
	spoken atomic.Int64

	mu       sync.Mutex
	flights  []*flight
	feeds    []*feed.Feed
	farewell time.Time // when the farewell ends; zero if there is none
	live     bool      // false for an entry that is kept only while it has flights or feeds
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

// flight is an answer in the making.
type flight struct {
	agent *liveAgent
	turn  atomic.Int64 // noTurn until it is decided
	// place is the Seq reserved for the answer, or the next one where none could be; 0 until
	// it is decided. It is the order in which answers began, on all processes: the ledger reserves
	// each Seq once. It may still change until stored is closed.
	place  atomic.Int64
	stored chan struct{}
	// decided is the order in which this process decided the turns: answers without a reserved Seq
	// may have the same place.
	decided atomic.Int64
	ended   atomic.Bool // the answer is in the ledger
	// The turn goes on without the store; Away holds it.
	passed, held atomic.Bool
	phase        atomic.Int32
	began        int64 // Unix ms
	cut          func(error)
	// Returns the text so far; may be nil, and is nil after landing; under agent.mu.
	generated func() string
	once      sync.Once     // for cut
	done      chan struct{} // closed when the answer is settled
	// amendments are applied when the answer is stored, and closed is set then; under agent.mu.
	amendments []Amendment
	closed     bool
}

// noTurn is the turn of a flight whose turn is not decided yet.
const noTurn = -1

func newRegistry() *registry {
	return &registry{agents: map[agentKey]*liveAgent{}, feeds: map[agentKey]int{}}
}

func (r *registry) get(k agentKey) *liveAgent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[k]
}

// entry returns the agent's entry, and creates it if there is none. The caller holds r.mu for
// writing.
func (r *registry) entry(k agentKey, now time.Time) *liveAgent {
	a := r.agents[k]
	if a == nil {
		a = &liveAgent{}
		a.asked.Store(now.UnixNano())
		a.spoken.Store(now.UnixNano())
		r.agents[k] = a
	}
	return a
}

// drop removes an entry that is no longer needed. The caller holds r.mu for writing and a.mu.
func (r *registry) drop(k agentKey, a *liveAgent) {
	if !a.live && len(a.flights) == 0 && len(a.feeds) == 0 && r.agents[k] == a {
		delete(r.agents, k)
	}
}

// add notes an agent as live.
func (r *registry) add(k agentKey, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.entry(k, now)
	a.mu.Lock()
	a.live = true
	a.mu.Unlock()
}

// adopt adds a live agent that was created by another process, or before this one started. That is
// not activity.
func (s *Service) adopt(k agentKey, now time.Time) {
	s.live.add(k, now)
	if a := s.live.get(k); a != nil {
		a.mu.Lock()
		a.learnt = memory.Seen{AskedMS: a.asked.Load() / 1e6, SpokenMS: a.spoken.Load() / 1e6}
		a.mu.Unlock()
	}
}

// farewellEnd returns when the farewell ends that the agent was asked for here, or the zero time.
func (r *registry) farewellEnd(k agentKey) time.Time {
	a := r.get(k)
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.farewell
}

// remove drops an agent that has ended, once its last answer has landed and its last follower is
// gone.
func (r *registry) remove(k agentKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[k]; a != nil {
		a.mu.Lock()
		a.live = false
		r.drop(k, a)
		a.mu.Unlock()
	}
}

func (r *registry) touch(k agentKey, now time.Time) {
	if a := r.get(k); a != nil {
		a.asked.Store(now.UnixNano())
	}
}

// spoke notes that a message was stored.
func (r *registry) spoke(k agentKey, now time.Time) {
	if a := r.get(k); a != nil {
		a.spoken.Store(now.UnixNano())
	}
}

// silence sets whether the server has broken the running silence, and returns the previous value.
func (r *registry) silence(k agentKey, broken bool) bool {
	a := r.get(k)
	return a != nil && a.silenced.Swap(broken)
}

func (r *registry) silenced(k agentKey) bool {
	a := r.get(k)
	return a != nil && a.silenced.Load()
}

// warn sets that the agent's expiry was announced or, with a time, when to check again.
func (r *registry) warn(k agentKey, again time.Time) {
	at := int64(-1)
	if !again.IsZero() {
		at = again.UnixNano()
	}
	if a := r.get(k); a != nil {
		a.warned.Store(at)
	}
}

// warned reports whether the agent's expiry needs no announcement anymore, and otherwise when to
// check again.
func (r *registry) warned(k agentKey) (again time.Time, done bool) {
	a := r.get(k)
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
func (r *registry) activity(k agentKey, now time.Time) time.Time {
	a := r.get(k)
	if a == nil {
		return now
	}
	a.mu.Lock()
	busy := len(a.flights)+len(a.feeds) > 0
	a.mu.Unlock()
	if busy {
		return now
	}
	return time.Unix(0, a.asked.Load())
}

// conversation returns when something was last said: now if unknown, or while an answer is
// generated. Requests do not count.
func (r *registry) conversation(k agentKey, now time.Time) time.Time {
	a := r.get(k)
	if a == nil {
		return now
	}
	a.mu.Lock()
	busy := len(a.flights) > 0
	a.mu.Unlock()
	if busy {
		return now
	}
	return time.Unix(0, a.spoken.Load())
}

// setFarewell sets when the agent's farewell is over.
func (r *registry) setFarewell(k agentKey, until time.Time) {
	if a := r.get(k); a != nil {
		a.mu.Lock()
		a.farewell = until
		a.mu.Unlock()
	}
}

// farewell returns when the agent's farewell ends; at once if no answer is being generated.
func (r *registry) farewell(k agentKey) time.Time {
	a := r.get(k)
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.flights) == 0 {
		return time.Time{}
	}
	return a.farewell
}

func (r *registry) launch(k agentKey, cut func(error), generated func() string, now time.Time) *flight {
	f := &flight{began: now.UnixMilli(), cut: cut, generated: generated, stored: make(chan struct{}), done: make(chan struct{})}
	r.inFlight.Add(1)
	f.turn.Store(noTurn)
	r.mu.RLock() // keeps the entry from being dropped
	known := r.agents[k]
	if known != nil {
		known.addFlight(f)
	}
	r.mu.RUnlock()
	if known == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entry(k, now).addFlight(f)
	}
	return f
}

// addFlight adds a flight to the agent. The caller holds the registry's mu, at least for reading.
func (a *liveAgent) addFlight(f *flight) {
	f.agent = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flights = append(a.flights, f)
}

// land ends a flight, whatever happened to its agent. The flight may live on in a Turn, so it drops
// its callbacks.
func (r *registry) land(k agentKey, f *flight, now time.Time) {
	r.inFlight.Add(-1)
	f.agent.asked.Store(now.UnixNano())
	f.agent.spoken.Store(now.UnixNano())
	f.agent.mu.Lock()
	if i := slices.Index(f.agent.flights, f); i >= 0 {
		f.agent.flights = slices.Delete(f.agent.flights, i, i+1)
	}
	live := f.agent.live
	f.generated = nil
	f.agent.wakeFollowers()
	f.agent.mu.Unlock()
	if !live { // all calls meet at r.mu, and only an agent that has ended needs it here
		r.mu.Lock()
		f.agent.mu.Lock()
		r.drop(k, f.agent)
		f.agent.mu.Unlock()
		r.mu.Unlock()
	}
	f.once.Do(func() {}) // cut is not called after this
	f.cut = nil
	close(f.done)
}

// says reports whether the text may be part of the answer generated so far. If that is unknown, any
// text may be.
func (f *flight) says(text *string) bool {
	if text == nil || *text == "" {
		return true
	}
	f.agent.mu.Lock()
	generated := f.generated
	f.agent.mu.Unlock()
	if generated == nil {
		return true
	}
	_, ok := heard.Align(generated(), *text)
	return ok
}

// stop calls cut, at most once for a flight and never after it has landed.
func (f *flight) stop(cause error) {
	f.once.Do(func() { f.cut(cause) })
}

func (r *registry) flying(k agentKey) []*flight {
	a := r.get(k)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*flight(nil), a.flights...)
}

// placed returns the flights whose answers have a place in the ledger below before. It waits for
// those whose place is being stored: another process may have seen it in the ledger already.
func (r *registry) placed(ctx context.Context, k agentKey, before int64) (list []*flight) {
	for _, f := range r.flying(k) {
		if place := f.place.Load(); place == 0 || place >= before {
			continue // a place only moves up
		}
		select {
		case <-f.stored:
			if f.place.Load() < before {
				list = append(list, f)
			}
		case <-f.done:
		case <-ctx.Done():
			return list
		}
	}
	return list
}

// answering reports whether an answer to the turn is being generated.
func (r *registry) answering(k agentKey, turn int64) bool {
	a := r.get(k)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flights {
		if f.turn.Load() == turn && !f.ended.Load() {
			return true
		}
	}
	return false
}

// lastTurn returns the highest turn whose answer is being generated, or -1. It exceeds the ledger's
// while the agent speaks without being asked.
func (r *registry) lastTurn(k agentKey) int64 {
	last := int64(noTurn)
	a := r.get(k)
	if a == nil {
		return last
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flights {
		last = max(last, f.turn.Load())
	}
	return last
}

// cutFlights cuts the flights that which selects, waits until they are stored (at most SettleWait)
// and returns their turns.
func (s *Service) cutFlights(ctx context.Context, k agentKey, cause error, which func(f *flight) bool) []int64 {
	return s.settled(ctx, s.stopFlights(k, cause, which))
}

// stopFlights cuts the flights that which selects, and returns them.
func (s *Service) stopFlights(k agentKey, cause error, which func(f *flight) bool) (cut []*flight) {
	for _, f := range s.live.flying(k) {
		if which(f) {
			f.stop(cause)
			cut = append(cut, f)
		}
	}
	return cut
}

// settled waits until the flights are stored, at most SettleWait, and returns their turns.
func (s *Service) settled(ctx context.Context, cut []*flight) (turns []int64) {
	if len(cut) == 0 {
		return nil
	}
	for _, f := range cut {
		turns = append(turns, f.turn.Load())
	}
	wait, stop := context.WithTimeout(ctx, s.cfg.SettleWait)
	defer stop()
	for _, f := range cut {
		select {
		case <-f.done:
		case <-wait.Done():
			return turns
		}
	}
	return turns
}

// Busy reports whether any process is generating an answer, and the phase of the one that has come
// furthest.
func (s *Service) Busy(ctx context.Context, project, id string) (memory.Phase, bool) {
	k := agentKey{project, id}
	if phase, busy := s.busyHere(k); busy {
		return phase, true
	}
	r := s.askIfPending(ctx, k, nil, nil, nil)
	return r.Phase, len(r.Turns) > 0
}

// busyHere is Busy for this process. An answer that is in the ledger is no longer being generated,
// even before its flight has landed: a caller that read it there finds the agent idle.
func (s *Service) busyHere(k agentKey) (phase memory.Phase, busy bool) {
	for _, f := range s.live.flying(k) {
		if !f.ended.Load() {
			phase, busy = max(phase, memory.Phase(f.phase.Load())), true
		}
	}
	return phase, busy
}

// Answering reports whether this process is generating an answer.
func (s *Service) Answering(project, id string) bool {
	return len(s.live.flying(agentKey{project, id})) > 0
}

// Cut cuts all answers that are being generated, with one of the Err values as the cause, and waits
// until they are stored.
func (s *Service) Cut(ctx context.Context, project, id string, cause error) {
	k := agentKey{project, id}
	if cut := s.cutFlights(ctx, k, cause, func(*flight) bool { return true }); len(cut) == 0 {
		s.askIfPending(ctx, k, cause, nil, nil)
	}
}

// WaitIdle waits until no answer is in flight; it fails with the context's error.
func (s *Service) WaitIdle(ctx context.Context, project, id string) error {
	k := agentKey{project, id}
	for _, f := range s.live.flying(k) {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for len(s.askIfPending(ctx, k, nil, nil, nil).Turns) > 0 { // each question takes its moment
		select {
		case <-time.After(tailEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
