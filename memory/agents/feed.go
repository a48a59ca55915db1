package agents

import (
	"maps"
	"slices"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// rev returns the revision after the change.
func revAfter(c *memory.Change, rev int64) int64 {
	if c.Agent != nil {
		rev = max(rev, c.Agent.Rev)
	}
	for _, list := range [2][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			rev = max(rev, list[i].Rev)
		}
	}
	return rev
}

// wakeFollowers wakes the agent's followers. The caller holds a.mu.
func (a *liveAgent) wakeFollowers() {
	for _, f := range a.feeds {
		f.Poke()
	}
}

// publish passes a stored change to the agent's followers.
func (r *registry) publish(ref memory.Ref, prev int64, c *memory.Change) {
	a := r.get(ref)
	if a == nil {
		return
	}
	if c.Agent == nil && len(c.Append) == 0 && len(c.Replace) == 0 {
		return
	}
	rev := revAfter(c, prev)
	a.mu.Lock()
	defer a.mu.Unlock()
	missed := r.shared && a.rev != 0 && prev > a.rev // another process was in between
	a.rev = max(a.rev, rev)
	if len(a.feeds) == 0 {
		return
	}
	w := &memory.Written{Prev: prev, Rev: rev, Agent: c.Agent, Append: c.Append, Replace: c.Replace}
	if missed {
		w = nil
	}
	for _, f := range a.feeds {
		f.Put(w)
		f.Poke()
	}
}

// changed informs the agent's followers of a change that only the store knows.
func (r *registry) changed(ref memory.Ref) {
	a := r.get(ref)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.feeds {
		f.Put(nil)
		f.Poke()
	}
}

func (r *registry) follow(ref memory.Ref, now time.Time) *memory.Feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.entry(ref, now)
	f := memory.NewFeed(func(f *memory.Feed) {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.feeds = slices.DeleteFunc(slices.Clone(a.feeds), func(o *memory.Feed) bool { return o == f })
		if r.feeds[ref]--; r.feeds[ref] == 0 {
			delete(r.feeds, ref)
		}
		r.drop(ref, a)
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.feeds = append(slices.Clone(a.feeds), f)
	r.feeds[ref]++
	return f
}

// followed returns the agents that are followed.
func (r *registry) followed() []memory.Ref {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.feeds))
}

// knows reports whether the agent's followers have all changes up to the revision, and assumes so
// from then on.
func (r *registry) knows(ref memory.Ref, rev int64) bool {
	a := r.get(ref)
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
func (s *Messages) Follow(project, id string) *memory.Feed {
	return s.live.follow(memory.Ref{Project: project, ID: id}, s.cfg.Now())
}

// Changed informs the agent's followers that it was changed or erased by another party, such as
// another server on the same store. Drivers call it. It is cheap if the agent has no followers, may
// be called from any goroutine and does not block.
func (s *Messages) Changed(project, id string) { s.live.changed(memory.Ref{Project: project, ID: id}) }

// Searched informs the agent's followers of a search with this many hits.
func (s *Messages) Searched(project, id string, hits int) {
	a := s.live.get(memory.Ref{Project: project, ID: id})
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.feeds {
		f.AddNote(memory.Note{Action: memory.ActionSearched, Count: hits})
		f.Poke()
	}
}
