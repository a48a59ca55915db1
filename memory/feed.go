package memory

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Written is a change as stored. Its messages are shared with the store: do not change them.
type Written struct {
	Prev, Rev       int64 // of the agent before and with this change
	Agent           *Agent
	Append, Replace []Message
}

// Limits of what waits in a feed until it is taken; beyond them it is Lost.
const (
	maxFed      = 256
	maxFedBytes = 1 << 20
	maxFedNotes = 64
)

// Note is something that happened to an agent and left nothing in its ledger.
type Note struct {
	Action string // ActionSearched
	Count  int    // how many messages it was about
}

// Fed is what a Feed returns.
type Fed struct {
	// Written are the changes since the last Take, in the order in which their calls returned. They
	// may be out of order, and changes by other servers are missing. A reader that needs all of
	// them reads the store where Rev has a gap.
	Written []Written
	// Lost is set if there were more changes than the feed keeps, or one that is not among them.
	// The store has them.
	Lost  bool
	Notes []Note
}

// Feed receives what happens to one agent. Writers never wait for it: what is not taken in time is
// lost.
type Feed struct {
	wake  chan struct{}
	close func()

	mu    sync.Mutex
	fed   Fed
	bytes int
	bare  bool // wakes and keeps nothing
}

// Wake receives when there is something to take, or when an answer has made progress. Events that
// are close together may share one.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns what has happened since the last call.
func (f *Feed) Take() Fed {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.fed
	f.fed, f.bytes = Fed{}, 0
	return out
}

// Close ends the feed.
func (f *Feed) Close() { f.close() }

func (f *Feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// put adds a change; nil is a change that is not known here.
func (f *Feed) put(w *Written) {
	if f.bare {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fed.Lost {
		return
	}
	if w != nil {
		f.bytes += w.size()
	}
	if w == nil || len(f.fed.Written) >= maxFed || f.bytes > maxFedBytes && len(f.fed.Written) > 0 {
		f.fed.Written, f.fed.Lost = nil, true
		return
	}
	f.fed.Written = append(f.fed.Written, *w)
}

func (f *Feed) note(n Note) {
	if f.bare {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fed.Notes) < maxFedNotes {
		f.fed.Notes = append(f.fed.Notes, n)
	}
}

// size estimates what the change holds on to, in bytes.
func (w *Written) size() int {
	n := 256
	for _, list := range [2][]Message{w.Append, w.Replace} {
		for i := range list {
			m := &list[i]
			n += 512 + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.Parts) + len(m.ToolCalls)
		}
	}
	return n
}

// rev returns the revision after the change.
func (c *Change) rev(rev int64) int64 {
	if c.Agent != nil {
		rev = max(rev, c.Agent.Rev)
	}
	for _, list := range [2][]Message{c.Append, c.Replace} {
		for i := range list {
			rev = max(rev, list[i].Rev)
		}
	}
	return rev
}

// stir wakes the agent's followers. The caller holds a.mu.
func (a *liveAgent) stir() {
	for _, f := range a.feeds {
		f.poke()
	}
}

// wrote passes a stored change to the agent's followers.
func (r *registry) wrote(k agentKey, prev int64, c *Change) {
	a := r.get(k)
	if a == nil {
		return
	}
	if c.Agent == nil && len(c.Append) == 0 && len(c.Replace) == 0 {
		return
	}
	rev := c.rev(prev)
	a.mu.Lock()
	defer a.mu.Unlock()
	missed := r.shared && a.rev != 0 && prev > a.rev // another process was in between
	a.rev = max(a.rev, rev)
	if len(a.feeds) == 0 {
		return
	}
	w := &Written{Prev: prev, Rev: rev, Agent: c.Agent, Append: c.Append, Replace: c.Replace}
	if missed {
		w = nil
	}
	for _, f := range a.feeds {
		f.put(w)
		f.poke()
	}
}

// changed informs the agent's followers of a change that only the store knows.
func (r *registry) changed(k agentKey) {
	a := r.get(k)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.feeds {
		f.put(nil)
		f.poke()
	}
}

func (r *registry) follow(k agentKey, now time.Time, bare bool) *Feed {
	f := &Feed{wake: make(chan struct{}, 1), bare: bare}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.entry(k, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.feeds = append(slices.Clone(a.feeds), f)
	r.feeds[k]++
	f.close = sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.feeds = slices.DeleteFunc(slices.Clone(a.feeds), func(o *Feed) bool { return o == f })
		if r.feeds[k]--; r.feeds[k] == 0 {
			delete(r.feeds, k)
		}
		r.drop(k, a)
	})
	return f
}

// followed returns the agents that are followed.
func (r *registry) followed() []agentKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.feeds))
}

// knows reports whether the agent's followers have all changes up to the revision, and assumes so
// from then on.
func (r *registry) knows(k agentKey, rev int64) bool {
	a := r.get(k)
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.rev >= rev && rev >= 0
	a.rev = max(a.rev, rev)
	return known
}

// Follow returns a feed of what happens to an agent from now on, until it is closed. Each feed
// costs every write, so use one for an agent, not one for a reader. A followed agent is not idle.
func (s *Service) Follow(project, id string) *Feed {
	return s.live.follow(agentKey{project, id}, s.cfg.Now(), false)
}

// Watch returns a channel that receives after each change of the agent, until stop is called.
// Changes that are close together may share one.
func (s *Service) Watch(project, id string) (changed <-chan struct{}, stop func()) {
	f := s.live.follow(agentKey{project, id}, s.cfg.Now(), true)
	return f.wake, f.Close
}

// Changed informs the agent's followers that it was changed or erased by another party, such as
// another server on the same store. Drivers call it. It is cheap if the agent has no followers, may
// be called from any goroutine and does not block.
func (s *Service) Changed(project, id string) { s.live.changed(agentKey{project, id}) }

// Searched informs the agent's followers of a search with this many hits.
func (s *Service) Searched(project, id string, hits int) {
	a := s.live.get(agentKey{project, id})
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.feeds {
		f.note(Note{Action: ActionSearched, Count: hits})
		f.poke()
	}
}

// Doing returns the phase of the answer that is being generated, of several the one that has come
// furthest, and its turn. ok is false if there is none whose turn is decided.
func (s *Service) Doing(project, id string) (p Phase, turn int64, ok bool) {
	for _, f := range s.live.flying(agentKey{project, id}) {
		t, phase := f.turn.Load(), Phase(f.phase.Load())
		if t != noTurn && (!ok || phase > p || phase == p && t > turn) {
			p, turn, ok = phase, t, true
		}
	}
	return p, turn, ok
}
