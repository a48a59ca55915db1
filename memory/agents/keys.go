package agents

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// ByKey returns the agent with a key: the newest live one, else the newest. It returns
// fault.NotFound if there is none.
func (s *Agents) ByKey(ctx context.Context, project, key string) (memory.Agent, error) {
	known := [2]string{project, key}
	if id, ok := s.keys.Get(known); ok {
		h, _, err := s.turns.HeadForTurn(ctx, project, id)
		if err == nil && !h.Agent.Status.Ended() && slices.Contains(h.Agent.Settings.Call.Keys, key) {
			return *h.Agent, nil
		}
		if fault.Is(err, fault.Unavailable) {
			return memory.Agent{}, err
		}
		s.keys.Remove(known)
	}
	id, err := s.cfg.Ledger.ByKey(ctx, project, key)
	if err != nil {
		return memory.Agent{}, err
	}
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, err
	}
	if !h.Agent.Status.Ended() && slices.Contains(h.Agent.Settings.Call.Keys, key) {
		s.keys.Set(known, id)
	}
	return *h.Agent, nil
}

// maxKnownKeys is how many call keys are cached. A cached ID is checked against the agent itself.
const maxKnownKeys = 1 << 14
