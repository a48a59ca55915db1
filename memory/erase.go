package memory

import "context"

// Erase takes an agent away with all that belongs to it, whatever its status: what is being answered is cut first, nothing more is sent, and afterwards the
// agent is not found. No event tells of it: who wants the final memory sent calls Leave before. fault.NotFound if there is no such agent.
func (s *Service) Erase(ctx context.Context, project, id string) error {
	k := agentKey{project, id}
	if _, err := s.cfg.Store.Head(ctx, project, id); err != nil {
		return err
	}
	s.Cut(ctx, project, id, ErrLeave)
	if err := s.cfg.Store.Erase(ctx, project, id); err != nil {
		return err
	}
	if s.cfg.Summaries != nil {
		s.cfg.Summaries.Ended(project, id)
	}
	for _, f := range s.erased {
		f(project, id)
	}
	s.live.changed(k) // who watches it finds nothing
	s.live.remove(k)
	return nil
}

// OnErase registers a function that is called after an agent was erased. It must be called before the
// Service is used.
func (s *Service) OnErase(f func(project, id string)) { s.erased = append(s.erased, f) }

// Clear empties an agent's memory. The summary stays (reference/memory-semantics.md 001-25), and so does the ledger: what was said was said. It costs the same
// however much there was. fault.Stopped if the agent takes nothing more.
func (s *Service) Clear(ctx context.Context, project, id string) (Agent, error) {
	return s.remember(ctx, project, id, func(h *Head, m *Memory) (Change, error) {
		m.BaseSeq = h.NextSeq
		return Change{}, nil
	})
}
