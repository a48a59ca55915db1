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
	agents map[string]*liveAgent
}

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

func newRegistry() *registry { return &registry{agents: map[string]*liveAgent{}} }

func (r *registry) get(id string) *liveAgent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[id]
}

// add gives the agent's entry, made where there is none.
func (r *registry) add(id string, now time.Time) *liveAgent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agents[id]
	if a == nil {
		a = &liveAgent{}
		a.active.Store(now.UnixNano())
		r.agents[id] = a
	}
	a.live = true
	return a
}

// remove forgets an agent that has ended; its watchers are told, and find that out.
func (r *registry) remove(id string) {
	r.mu.Lock()
	a := r.agents[id]
	if a != nil {
		a.live = false
		a.mu.Lock()
		if len(a.watchers) == 0 {
			delete(r.agents, id)
		}
		a.mu.Unlock()
	}
	r.mu.Unlock()
}

func (r *registry) touch(id string, now time.Time) {
	if a := r.get(id); a != nil {
		a.active.Store(now.UnixNano())
	}
}

// silence sets whether the running silence has been broken by us, and gives what held before.
func (r *registry) silence(id string, broken bool) bool {
	a := r.get(id)
	return a != nil && a.silenced.Swap(broken)
}

func (r *registry) silenced(id string) bool {
	a := r.get(id)
	return a != nil && a.silenced.Load()
}

// activity gives when something last happened; now if the agent is not known yet. An answer in flight is activity now.
func (r *registry) activity(id string, now time.Time) time.Time {
	a := r.get(id)
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

func (r *registry) changed(id string) {
	a := r.get(id)
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

func (r *registry) watch(id string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	r.mu.Lock()
	a := r.agents[id]
	if a == nil {
		a = &liveAgent{}
		a.active.Store(time.Now().UnixNano())
		r.agents[id] = a
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
		if !a.live && len(a.watchers) == 0 && r.agents[id] == a {
			delete(r.agents, id)
		}
	}
}

func (r *registry) launch(id string, cut func(error), now time.Time) *flight {
	f := &flight{cut: cut, done: make(chan struct{})}
	f.turn.Store(noTurn)
	a := r.add(id, now)
	a.mu.Lock()
	a.flights = append(a.flights, f)
	a.mu.Unlock()
	return f
}

func (r *registry) land(id string, f *flight, now time.Time) {
	a := r.get(id)
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

func (r *registry) flying(id string) []*flight {
	a := r.get(id)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*flight(nil), a.flights...)
}

// answering tells whether an answer to the turn is being made.
func (r *registry) answering(id string, turn int64) bool {
	a := r.get(id)
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
func (s *Service) cutFlights(ctx context.Context, id string, cause error, which func(turn int64) bool) []int64 {
	var turns []int64
	var cut []*flight
	for _, f := range s.live.flying(id) {
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
func (s *Service) Busy(id string) (Phase, bool) {
	flights := s.live.flying(id)
	phase := Thinking
	for _, f := range flights {
		phase = max(phase, Phase(f.phase.Load()))
	}
	return phase, len(flights) > 0
}

// Cut cuts whatever answer is in flight, with one of the Err values as the cause, and waits until it is stored.
func (s *Service) Cut(ctx context.Context, id string, cause error) {
	s.cutFlights(ctx, id, cause, func(int64) bool { return true })
}
