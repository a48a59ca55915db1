package ingest

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Service files notices about agents that run elsewhere.
type Service struct{ Memory *agents.Service }

// maxTries is how often File tries again after another call created the agent, or erased it.
const maxTries = 3

// File adds a notice to its agent's record; the record is on disk when File returns. The first
// notice creates the agent, whatever it reports. changed is false if the notice was already filed.
//
// It returns fault.Conflict if the ID belongs to an agent that runs here, because that agent's own
// record is better. It returns fault.Stopped for an unknown agent that is past the retention, so
// that a repeated notification does not bring back what was erased.
func (s Service) File(ctx context.Context, project string, n Notice) (changed bool, err error) {
	for range maxTries {
		changed, err = s.update(ctx, project, n)
		if !fault.Is(err, fault.NotFound) {
			return changed, err
		}
		if err = s.create(ctx, project, n); !fault.Is(err, fault.Conflict) {
			return err == nil, err
		}
	}
	return false, err
}

// create stores a new agent with what its first notice reports.
func (s Service) create(ctx context.Context, project string, n Notice) error {
	if s.pastRetention(n) {
		return fault.New(fault.Stopped, "its agent is past the retention")
	}
	f, _ := facts{}.merge(n)
	a := f.agent(memory.Agent{ID: n.AgentID, Project: project, Rev: 1, Properties: json.RawMessage("{}")}, n, s.Memory.Messages.NowMS())
	msgs := f.messages(n.History, &a)
	for i := range msgs {
		msgs[i].Seq, msgs[i].Rev = int64(i+1), 1
	}
	return s.Memory.Agents.CreateArchived(ctx, a, msgs)
}

// pastRetention reports whether the agent of a notice would have been erased by now. If the notice
// does not report the end, that is at most memory.Lifetime after the start, or after the
// notification itself.
func (s Service) pastRetention(n Notice) bool {
	switch {
	case n.StopMS != 0:
		return s.Memory.Agents.PastRetention(n.StopMS)
	case n.StartMS != 0:
		return s.Memory.Agents.PastRetention(n.StartMS + memory.Lifetime.Milliseconds())
	case n.ToldMS != 0:
		return s.Memory.Agents.PastRetention(n.ToldMS + memory.Lifetime.Milliseconds())
	}
	return false
}

// update adds a notice to a stored agent.
func (s Service) update(ctx context.Context, project string, n Notice) (changed bool, err error) {
	err = s.Memory.Agents.UpdateArchived(ctx, project, n.AgentID, func(view memory.AgentView) (memory.Change, error) {
		changed = false
		h := view.Head()
		if slices.Contains(h.Agent.Settings.Archive.Notices, n.ID) {
			return memory.Change{}, nil
		}
		c, err := s.change(view, &h, n)
		changed = err == nil
		return c, err
	})
	return changed && err == nil, err
}

// change returns the change that a notice makes to a stored agent.
func (s Service) change(view memory.AgentView, h *memory.Head, n Notice) (memory.Change, error) {
	old := facts(*h.Agent.Settings.Archive)
	f, better := old.merge(n)
	a := f.agent(*h.Agent, n, s.Memory.Messages.NowMS())
	a.Rev = h.Rev + 1
	c := memory.Change{Agent: &a}
	if !better && a.StartMS == h.Agent.StartMS && a.Settings.Scope == h.Agent.Settings.Scope && slices.Equal(f.Turns, old.Turns) && slices.Equal(f.Errors, old.Errors) {
		return c, nil // nothing that the messages derive from has changed
	}
	stored, err := view.Last(old.Messages)
	if err != nil {
		return memory.Change{}, err
	}
	history := n.History
	if !better {
		history = old.history(stored)
	}
	for i, m := range f.messages(history, &a) {
		m.Seq, m.Rev = int64(i+1), a.Rev
		switch {
		case i >= len(stored):
			c.Append = append(c.Append, m)
		case differ(m, stored[i]):
			c.Replace = append(c.Replace, m)
		}
	}
	return c, nil
}
