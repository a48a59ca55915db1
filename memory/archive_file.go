package memory

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// fileTries is how often File looks again when another call made the agent meanwhile.
const fileTries = 3

// File files a notice about an agent that runs at Agora; it is on disk when File returns. Notices may come in any order and more than once: the record is the
// same in the end. The first one makes the agent, whatever it tells; no limit on running agents holds. changed is false for one that tells nothing new.
//
// It fails with fault.Conflict for the id of an agent that runs here: its record is better than any notice about it; and with fault.Stopped for an unknown agent that
// is past the retention by what the notice tells: what was erased does not come back with a repeat.
func (s *Service) File(ctx context.Context, project string, n Notice) (changed bool, err error) {
	for range fileTries {
		changed, err = s.fileKnown(ctx, project, n)
		if !fault.Is(err, fault.NotFound) {
			return changed, err
		}
		if err = s.fileNew(ctx, project, n); !fault.Is(err, fault.Conflict) {
			return err == nil, err
		}
	}
	return false, err
}

// fileNew makes the agent of its first notice.
func (s *Service) fileNew(ctx context.Context, project string, n Notice) error {
	if s.forgotten(n) {
		return fault.New(fault.Stopped, "it tells of an agent that is past the retention")
	}
	facts, _ := Archive{}.merge(n)
	a := facts.agent(Agent{ID: n.AgentID, Project: project, Rev: 1, Properties: json.RawMessage("{}")}, n, s.nowMS())
	c := Change{Append: facts.record(n.History, a.StartMS)}
	for i := range c.Append {
		c.Append[i].Seq, c.Append[i].Rev = int64(i+1), 1
	}
	if _, _, err := s.cfg.Store.Create(ctx, a, 0, c); err != nil {
		return err
	}
	if !a.Status.Ended() {
		s.live.add(keyOf(a), s.cfg.Now())
		s.timers.poke(s.dueOf(NewHead(a, nil, 0)), project, a.ID)
	}
	return nil
}

// forgotten tells whether the agent of a notice would have been erased by now: it ended before the retention began, or, where no end is told, the longest time that
// one may run is over since its start, or since the notice was first told.
func (s *Service) forgotten(n Notice) bool {
	if s.cfg.Retention <= 0 {
		return false
	}
	var end int64
	switch {
	case n.StopMS != 0:
		end = n.StopMS
	case n.StartMS != 0:
		end = n.StartMS + Lifetime.Milliseconds()
	case n.ToldMS != 0:
		end = n.ToldMS + Lifetime.Milliseconds()
	default:
		return false
	}
	return end < s.nowMS()-s.cfg.Retention.Milliseconds()
}

// fileKnown adds the notice to an agent that is there.
func (s *Service) fileKnown(ctx context.Context, project string, n Notice) (changed bool, err error) {
	var now Agent
	err = s.cfg.Store.Update(ctx, project, n.AgentID, func(view AgentView) (Change, error) {
		changed = false
		h := view.Head()
		if !h.Agent.Archived() {
			return Change{}, fault.At(fault.Conflict, "agent_id", "%q is an agent that runs here, whose record is its own", n.AgentID)
		}
		if slices.Contains(h.Agent.Settings.Archive.Notices, n.ID) {
			return Change{}, nil
		}
		c, err := s.fileIn(view, n)
		if err == nil {
			err = mark(view, &c)
		}
		if err == nil && !c.Empty() {
			changed, now = true, *c.Agent
		}
		return c, err
	})
	if err != nil || !changed {
		return false, err
	}
	s.live.changed(keyOf(now))
	if now.Status.Ended() {
		s.live.remove(keyOf(now))
	}
	return true, nil
}

// fileIn gives the change that a notice makes.
func (s *Service) fileIn(view AgentView, n Notice) (Change, error) {
	h := view.Head()
	old := h.Agent.Settings.Archive
	facts, better := old.merge(n)
	a := facts.agent(h.Agent, n, s.nowMS())
	a.Rev = h.Rev + 1
	c := Change{Agent: &a}
	if !better && a.StartMS == h.Agent.StartMS && slices.Equal(facts.Turns, old.Turns) && slices.Equal(facts.Errors, old.Errors) {
		return c, nil // nothing that the messages are made of: they need not be read while other writers wait
	}
	stored, err := view.Last(old.Messages)
	if err != nil {
		return Change{}, err
	}
	base := old.base(stored)
	if better {
		base = n.History
	}
	for i, m := range facts.record(base, a.StartMS) {
		m.Seq, m.Rev = int64(i+1), a.Rev
		switch {
		case i >= len(stored):
			c.Append = append(c.Append, m)
		case m.differs(stored[i]):
			c.Replace = append(c.Replace, m)
		}
	}
	return c, nil
}

// expire ends an agent that runs elsewhere and whose end nobody told within the longest time that one may run. A notice that comes later still counts.
func (s *Service) expire(ctx context.Context, project, id string) error {
	err := s.cfg.Store.Update(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		if h.Agent.Status.Ended() {
			return Change{}, nil
		}
		a := h.Agent
		a.Status, a.Message, a.Name = Stopped, EndLifetime, a.Settings.Archive.Name
		a.StopMS, a.Rev = a.StartMS+Lifetime.Milliseconds(), h.Rev+1
		return Change{Agent: &a}, nil
	})
	if err != nil {
		return err
	}
	s.live.changed(agentKey{project, id})
	s.live.remove(agentKey{project, id})
	return nil
}
