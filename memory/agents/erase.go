package agents

import (
	"context"

	"github.com/heardlog/heardlog/memory"
)

// Erase removes an agent, in any status, with everything that belongs to it. Its answers are cut
// first, and after that nothing more is sent. No event is sent about it; call Leave first to have
// the final memory delivered. It returns fault.NotFound if there is no such agent,
// and fault.Held if it is under hold.
func (s *Agents) Erase(ctx context.Context, project, id string) error {
	ref := memory.Ref{Project: project, ID: id}
	if err := s.MayErase(ctx, project, id); err != nil {
		return err
	}
	s.turns.Cut(ctx, project, id, ErrLeave)
	if err := s.cfg.Forget(ctx, project, id); err != nil {
		return err
	}
	if err := s.cfg.Ledger.Erase(ctx, project, id); err != nil {
		return err
	}
	if s.cfg.Summaries != nil {
		s.cfg.Summaries.Ended(project, id)
	}
	for _, f := range s.erased {
		f(project, id)
	}
	s.live.changed(ref) // followers find that it is gone
	s.live.remove(ref)
	return nil
}

// MayErase returns what Erase would refuse an agent with, and erases nothing.
func (s *Agents) MayErase(ctx context.Context, project, id string) error {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err == nil && s.cfg.Held != nil {
		err = s.cfg.Held(ctx, &h)
	}
	return err
}

// OnErase registers a function that is called after an agent was erased. It must be called before
// the Service is used.
func (s *Agents) OnErase(f func(project, id string)) { s.erased = append(s.erased, f) }
