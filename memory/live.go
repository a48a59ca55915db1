package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/memory/heard"
)

// registry is what the process knows of live agents beside the store: when something last happened, which answers are being made, who
// watches. It can be lost with the process without losing anything that was acknowledged.
type registry struct {
	mu     sync.RWMutex
	agents map[agentKey]*liveAgent
	feeds  map[agentKey]int // how many there are of agents that are followed
	aloft  atomic.Int64     // flights
	shared bool             // other processes may write, too
}

// agentKey names an agent: two projects may use the same id where clients choose it.
type agentKey struct{ project, id string }

func keyOf(a Agent) agentKey { return agentKey{a.Project, a.ID} }

type liveAgent struct {
	asked  atomic.Int64 // Unix ns of the last request for the agent, or of the last message
	spoken atomic.Int64 // Unix ns of the last message, or of the end of an answer: what a silence counts from

	mu       sync.Mutex
	flights  []*flight
	feeds    []*Feed
	farewell time.Time // when the farewell is over; zero if none is said
	live     bool      // false for an entry that is kept only while it has flights or feeds
	// silenced tells that the running silence has been broken by us; a restart forgets it and may break it once more.
	silenced atomic.Bool
	learnt   Seen  // what other processes have seen, or was assumed of the agent when it was taken up; under mu
	rev      int64 // of the last change that is known here, where other processes may write; under mu
	// warned is when it is asked again whether anybody wants to know of the agent's expiry, Unix ns; 0 = not asked yet, -1 = it was announced.
	warned atomic.Int64
}

// flight is an answer in the making.
type flight struct {
	agent *liveAgent
	turn  atomic.Int64 // noTurn until it is known
	phase atomic.Int32
	began int64 // Unix ms
	cut   func(error)
	made  func() string // what is made of the answer so far; may be nil, and is after landing; under agent.mu
	once  sync.Once     // for cut
	done  chan struct{} // closed when the answer is settled
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

// entry gives the agent's entry, made where there is none. The caller holds r.mu for writing.
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

// drop forgets an entry that nothing needs any more: anybody may ask for an agent that is none. The caller holds r.mu for writing and a.mu.
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

// takeUp notes an agent as live that was made by another process, or before this one was started: that is nothing that was seen of it here.
func (s *Service) takeUp(k agentKey, now time.Time) {
	s.live.add(k, now)
	if a := s.live.get(k); a != nil {
		a.mu.Lock()
		a.learnt = Seen{AskedMS: a.asked.Load() / 1e6, SpokenMS: a.spoken.Load() / 1e6}
		a.mu.Unlock()
	}
}

// bidden gives until when the agent was told here to say its farewell; zero where it was not.
func (r *registry) bidden(k agentKey) time.Time {
	a := r.get(k)
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.farewell
}

// remove forgets an agent that has ended, once its last answer has landed and its last watcher has gone.
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

// silence sets whether the running silence has been broken by us, and gives what held before.
func (r *registry) silence(k agentKey, broken bool) bool {
	a := r.get(k)
	return a != nil && a.silenced.Swap(broken)
}

func (r *registry) silenced(k agentKey) bool {
	a := r.get(k)
	return a != nil && a.silenced.Load()
}

// warn notes that nothing more is to be said of the agent's expiry, or, with a time, nothing until then.
func (r *registry) warn(k agentKey, again time.Time) {
	at := int64(-1)
	if !again.IsZero() {
		at = again.UnixNano()
	}
	if a := r.get(k); a != nil {
		a.warned.Store(at)
	}
}

// warned tells whether nothing more is to be said of the agent's expiry, and else the time before which nothing is; the zero time for none.
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

// activity gives when somebody last had to do with the agent; now if it is not known yet. An answer in flight and an open live tail
// are activity now.
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

// conversation gives when something was last said; now while an answer is in flight or the agent is not known yet. Requests do not count.
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

// bid sets when the agent's farewell is over.
func (r *registry) bid(k agentKey, until time.Time) {
	if a := r.get(k); a != nil {
		a.mu.Lock()
		a.farewell = until
		a.mu.Unlock()
	}
}

// farewell gives when the agent's farewell is over: at once when nothing is being said any more.
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

func (r *registry) launch(k agentKey, cut func(error), made func() string, now time.Time) *flight {
	f := &flight{began: now.UnixMilli(), cut: cut, made: made, done: make(chan struct{})}
	r.aloft.Add(1)
	f.turn.Store(noTurn)
	r.mu.RLock() // nobody drops the entry meanwhile
	known := r.agents[k]
	if known != nil {
		known.board(f)
	}
	r.mu.RUnlock()
	if known == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entry(k, now).board(f)
	}
	return f
}

// board puts a flight among the agent's. The caller holds the registry's mu, at least for reading.
func (a *liveAgent) board(f *flight) {
	f.agent = a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flights = append(a.flights, f)
}

// land ends a flight, whatever has become of its agent. The flight may live on in a Turn: it lets go of what it could have cut.
func (r *registry) land(k agentKey, f *flight, now time.Time) {
	r.aloft.Add(-1)
	f.agent.asked.Store(now.UnixNano())
	f.agent.spoken.Store(now.UnixNano())
	f.agent.mu.Lock()
	if i := slices.Index(f.agent.flights, f); i >= 0 {
		f.agent.flights = slices.Delete(f.agent.flights, i, i+1)
	}
	live := f.agent.live
	f.made = nil
	f.agent.stir()
	f.agent.mu.Unlock()
	if !live { // all calls meet at r.mu, and only an agent that has ended needs it here
		r.mu.Lock()
		f.agent.mu.Lock()
		r.drop(k, f.agent)
		f.agent.mu.Unlock()
		r.mu.Unlock()
	}
	f.once.Do(func() {}) // nobody cuts it from here on
	f.cut = nil
	close(f.done)
}

// says tells whether the heard text may be a part of the answer as far as it is made; what nothing is known of may hold anything.
func (f *flight) says(text *string) bool {
	if text == nil || *text == "" {
		return true
	}
	f.agent.mu.Lock()
	made := f.made
	f.agent.mu.Unlock()
	if made == nil {
		return true
	}
	_, ok := heard.Align(made(), *text)
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

// answering tells whether an answer to the turn is being made.
func (r *registry) answering(k agentKey, turn int64) bool {
	a := r.get(k)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flights {
		if f.turn.Load() == turn {
			return true
		}
	}
	return false
}

// cutFlights cuts the answers in flight that which picks, waits until they are stored (at most SettleWait) and gives their turns.
func (s *Service) cutFlights(ctx context.Context, k agentKey, cause error, which func(f *flight) bool) []int64 {
	return s.settled(ctx, s.stopFlights(k, cause, which))
}

// stopFlights cuts the answers in flight that which picks, and gives them.
func (s *Service) stopFlights(k agentKey, cause error, which func(f *flight) bool) (cut []*flight) {
	for _, f := range s.live.flying(k) {
		if which(f) {
			f.stop(cause)
			cut = append(cut, f)
		}
	}
	return cut
}

// settled waits until what was cut is stored, at most SettleWait, and gives the turns.
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

// Busy tells whether an answer is being made, by any process, and how far the one that is furthest has come.
func (s *Service) Busy(ctx context.Context, project, id string) (Phase, bool) {
	k := agentKey{project, id}
	if phase, busy := s.busyHere(k); busy {
		return phase, true
	}
	r := s.elsewhere(ctx, k, nil, nil, nil)
	return r.Phase, len(r.Turns) > 0
}

// busyHere is Busy for this process.
func (s *Service) busyHere(k agentKey) (Phase, bool) {
	flights := s.live.flying(k)
	phase := Thinking
	for _, f := range flights {
		phase = max(phase, Phase(f.phase.Load()))
	}
	return phase, len(flights) > 0
}

// Cut cuts whatever answer is in flight, with one of the Err values as the cause, and waits until it is stored.
func (s *Service) Cut(ctx context.Context, project, id string, cause error) {
	k := agentKey{project, id}
	if cut := s.cutFlights(ctx, k, cause, func(*flight) bool { return true }); len(cut) == 0 {
		s.elsewhere(ctx, k, cause, nil, nil)
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
	for len(s.elsewhere(ctx, k, nil, nil, nil).Turns) > 0 { // each question takes its moment
		select {
		case <-time.After(tailEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
