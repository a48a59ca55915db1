package agents

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// PastRetention reports whether an agent that ended at endMS would have been erased by now.
func (s *Agents) PastRetention(endMS int64) bool {
	return s.cfg.Retention > 0 && endMS < s.messages.NowMS()-s.cfg.Retention.Milliseconds()
}

// CreateArchived stores an archived agent and its messages. The limit on live agents does not
// apply. It returns fault.Conflict if the ID is taken.
func (s *Agents) CreateArchived(ctx context.Context, a memory.Agent, msgs []memory.Message) error {
	c := memory.Change{Append: msgs}
	err := s.messages.checked(ctx, a.Project, func(l *redact.Lookup) error {
		c.Append = msgs
		if l == nil {
			return s.messages.redact(ctx, &c, nil, s.messages.Redactor(&a))
		}
		of := a
		of.Settings.Names = l.Begin(a.Settings.Names)
		if err := s.messages.redact(ctx, &c, nil, s.messages.Redactor(&of)); err != nil {
			return err
		}
		a.Settings.Names, _ = l.End()
		return unchecked(l)
	})
	if err != nil {
		return err
	}
	a.Settings.Memory.NoteInstructions(&c)
	if _, _, err := s.cfg.Ledger.Create(ctx, a, 0, c); err != nil {
		return err
	}
	if !a.Status.Ended() {
		s.live.add(a.Ref(), s.cfg.Now())
		h := memory.NewHead(a, nil, 0)
		s.timers.poke(s.timers.dueOf(&h), a.Ref())
	}
	return nil
}

// UpdateArchived changes an archived agent. Nothing happens here because of the change: no events
// are sent, and policies and limits do not apply. It returns fault.NotFound for an unknown agent,
// and fault.Conflict for one that runs here.
func (s *Agents) UpdateArchived(ctx context.Context, project, id string, decide memory.Decision) error {
	var updated *memory.Agent
	err := s.messages.plain(ctx, project, id, func(view memory.AgentView) (memory.Change, error) {
		updated = nil
		if h := view.Head(); !h.Agent.Archived() {
			return memory.Change{}, fault.At(fault.Conflict, "agent_id", "%q is an agent that runs here, whose record is its own", id)
		}
		c, err := decide(view)
		if err == nil {
			h := view.Head()
			if err = s.messages.redact(ctx, &c, view, s.messages.Redactor(h.Agent)); err == nil {
				err = c.Mark(view)
			}
			c.MarkMemory(&h)
		}
		if err == nil {
			updated = c.Agent
		}
		return c, err
	})
	if err != nil || updated == nil {
		return err
	}
	ref := memory.Ref{Project: project, ID: id}
	s.live.changed(ref)
	if updated.Status.Ended() {
		s.live.remove(ref)
	}
	return nil
}

// expireArchived ends an archived agent whose end was never reported within the longest time that
// an agent may run. A notification that arrives later still counts.
func (s *Agents) expireArchived(ctx context.Context, ref memory.Ref) error {
	return s.UpdateArchived(ctx, ref.Project, ref.ID, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if h.Agent.Status.Ended() {
			return memory.Change{}, nil
		}
		a := *h.Agent
		a.Status, a.Message, a.Name = memory.Stopped, memory.EndLifetime, a.Settings.Archive.Name
		a.StopMS, a.Rev = a.StartMS+memory.Lifetime.Milliseconds(), h.Rev+1
		return memory.Change{Agent: &a}, nil
	})
}
