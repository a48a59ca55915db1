package memory

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// registry is what the process knows of live agents beside the store: when something last happened, which answers are being made, who
// watches. It can be lost with the process without losing anything that was acknowledged.
type registry struct {
	mu     sync.RWMutex
	agents map[agentKey]*liveAgent
}

// agentKey names an agent: two projects may use the same id where clients choose it.
type agentKey struct{ project, id string }

func keyOf(a Agent) agentKey { return agentKey{a.Project, a.ID} }

type liveAgent struct {
	active   atomic.Int64 // Unix ns of the last activity
	mu       sync.Mutex
	flights  []*flight
	watchers map[chan struct{}]struct{}
	live     bool // false for an entry that only a watcher keeps
	// silenced tells that the running silence has been broken by us; a restart forgets it and may break it once more.
	silenced atomic.Bool
}

// flight is an answer in the making.
type flight struct {
	turn  atomic.Int64 // noTurn until it is known
	phase atomic.Int32
	cut   func(error)
	once  sync.Once
	done  chan struct{} // closed when the answer is settled
}

// noTurn is the turn of a flight whose turn is not decided yet.
const noTurn = -1

func newRegistry() *registry { return &registry{agents: map[agentKey]*liveAgent{}} }

func (r *registry) get(k agentKey) *liveAgent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[k]
}

// add gives the agent's entry, made where there is none.
func (r *registry) add(k agentKey, now time.Time) *liveAgent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agents[k]
	if a == nil {
		a = &liveAgent{}
		a.active.Store(now.UnixNano())
		r.agents[k] = a
	}
	a.live = true
	return a
}

// remove forgets an agent that has ended; its watchers are told, and find that out.
func (r *registry) remove(k agentKey) {
	r.mu.Lock()
	a := r.agents[k]
	if a != nil {
		a.live = false
		a.mu.Lock()
		if len(a.watchers) == 0 {
			delete(r.agents, k)
		}
		a.mu.Unlock()
	}
	r.mu.Unlock()
}

func (r *registry) touch(k agentKey, now time.Time) {
	if a := r.get(k); a != nil {
		a.active.Store(now.UnixNano())
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

// activity gives when something last happened; now if the agent is not known yet. An answer in flight is activity now.
func (r *registry) activity(k agentKey, now time.Time) time.Time {
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
	return time.Unix(0, a.active.Load())
}

func (r *registry) changed(k agentKey) {
	a := r.get(k)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.watchers {
		select {
		case c <- struct{}{}:
		default: // one is waiting already
		}
	}
}

func (r *registry) watch(k agentKey) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	r.mu.Lock()
	a := r.agents[k]
	if a == nil {
		a = &liveAgent{}
		a.active.Store(time.Now().UnixNano())
		r.agents[k] = a
	}
	a.mu.Lock()
	if a.watchers == nil {
		a.watchers = map[chan struct{}]struct{}{}
	}
	a.watchers[c] = struct{}{}
	a.mu.Unlock()
	r.mu.Unlock()
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, c)
		if !a.live && len(a.watchers) == 0 && r.agents[k] == a {
			delete(r.agents, k)
		}
	}
}

func (r *registry) launch(k agentKey, cut func(error), now time.Time) *flight {
	f := &flight{cut: cut, done: make(chan struct{})}
	f.turn.Store(noTurn)
	a := r.add(k, now)
	a.mu.Lock()
	a.flights = append(a.flights, f)
	a.mu.Unlock()
	return f
}

func (r *registry) land(k agentKey, f *flight, now time.Time) {
	a := r.get(k)
	if a == nil {
		return
	}
	a.active.Store(now.UnixNano())
	a.mu.Lock()
	for i, g := range a.flights {
		if g == f {
			a.flights = append(a.flights[:i:i], a.flights[i+1:]...)
			break
		}
	}
	a.mu.Unlock()
	close(f.done)
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

// cutFlights cuts the answers in flight of the turns that which picks, waits until they are stored (at most SettleWait) and gives their turns.
func (s *Service) cutFlights(ctx context.Context, k agentKey, cause error, which func(turn int64) bool) []int64 {
	var turns []int64
	var cut []*flight
	for _, f := range s.live.flying(k) {
		if turn := f.turn.Load(); which(turn) {
			f.once.Do(func() { f.cut(cause) })
			cut, turns = append(cut, f), append(turns, turn)
		}
	}
	if len(cut) == 0 {
		return nil
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

// Busy tells whether an answer is being made, and how far the one that is furthest has come.
func (s *Service) Busy(project, id string) (Phase, bool) {
	flights := s.live.flying(agentKey{project, id})
	phase := Thinking
	for _, f := range flights {
		phase = max(phase, Phase(f.phase.Load()))
	}
	return phase, len(flights) > 0
}

// Cut cuts whatever answer is in flight, with one of the Err values as the cause, and waits until it is stored.
func (s *Service) Cut(ctx context.Context, project, id string, cause error) {
	s.cutFlights(ctx, agentKey{project, id}, cause, func(int64) bool { return true })
}

// WaitIdle waits until no answer is in flight; it fails with the context's error.
func (s *Service) WaitIdle(ctx context.Context, project, id string) error {
	for _, f := range s.live.flying(agentKey{project, id}) {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
