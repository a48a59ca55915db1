package facts

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// EraseCall deletes the facts that rest on a call alone, which is about to be erased. A fact that
// was said again in another call, or that a client reinforced or accepted, stays and loses its
// source. EraseCall returns how many it has deleted. It may be repeated. It fails with fault.Held
// if a caller of the call is under hold.
func (s *Service) EraseCall(ctx context.Context, project, agentID string) (deleted int, err error) {
	h, err := s.cfg.Ledger.Head(ctx, project, agentID)
	if err != nil {
		return 0, err
	}
	users, err := s.usersOf(ctx, h.Agent)
	if err != nil {
		return 0, err
	}
	for _, user := range users {
		n, err := s.eraseCall(ctx, project, user, agentID)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// usersOf returns the users whose facts may rest on a call.
func (s *Service) usersOf(ctx context.Context, a *memory.Agent) (users []string, err error) {
	add := func(user string) {
		if user != "" && !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	add(a.Settings.Scope.UserID)
	for _, user := range a.RemoteUIDs() {
		add(user)
	}
	err = memory.EachPage(memory.MessageQuery{Limit: 500}, func(q memory.MessageQuery) ([]memory.Message, error) {
		return s.cfg.Ledger.Messages(ctx, a.Project, a.ID, q)
	}, func(page []memory.Message) error {
		for i := range page {
			add(page[i].Filed().Scope.UserID)
		}
		return nil
	})
	if fault.Is(err, fault.Unavailable) && a.Cold != nil { // an archive that is away does not keep the call
		err = nil
	}
	return users, err
}

// eraseCall is EraseCall for the facts of one caller, a few at a time.
func (s *Service) eraseCall(ctx context.Context, project, user, agentID string) (deleted int, err error) {
	for more := true; more; {
		gone := 0
		err := s.update(ctx, project, user, func(t *change) error {
			gone, more = 0, false
			for _, f := range t.list(func(f *Fact) bool { return f.restsOn(agentID) }) {
				if len(t.puts)+len(t.drops) == atOnce {
					more = true
					return nil
				}
				if left := f.without(agentID); left != nil {
					t.puts[f.ID] = left
				} else {
					t.drops = append(t.drops, f.ID)
					gone++
				}
			}
			return nil
		})
		if fault.Is(err, fault.NotFound) {
			return deleted, nil
		}
		if deleted += gone; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// restsOn reports whether a call is among what a fact rests on.
func (f *Fact) restsOn(agentID string) bool {
	return f.Source != nil && f.Source.AgentID == agentID || slices.ContainsFunc(f.History, func(e Event) bool { return e.Call == agentID })
}

// without returns the fact without what it has from a call, or nil if it rests on nothing else.
func (f *Fact) without(agentID string) *Fact {
	f = edit(f)
	f.History = slices.Clone(f.History)
	own := f.Source != nil && f.Source.AgentID == agentID
	if own {
		f.Source = nil
	}
	f.History = slices.DeleteFunc(f.History, func(e Event) bool { return e.Call == agentID })
	rests := f.Source != nil || f.Accepted || f.Hits > 0
	for i := range f.History {
		e := &f.History[i]
		if own && e.Name == EventAdded {
			e.Cause = "" // it may have words of the call
		}
		rests = rests || e.Name == EventReinforced
	}
	if !rests {
		return nil
	}
	return f
}
