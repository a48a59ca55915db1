package agents

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/memory"
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
	feeds    []*memory.Feed
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
func (r *registry) adopt(ref memory.Ref, now time.Time) {
	r.add(ref, now)
	if a := r.get(ref); a != nil {
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

// Touch records that the agent was asked for, so that it is not idle.
func (s *Messages) Touch(project, id string) {
	s.live.touch(memory.Ref{Project: project, ID: id}, s.cfg.Now())
}
