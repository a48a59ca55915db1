package agents

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// KeepKnown stores what is known of an agent's caller, unless the agent has something stored
// already, and returns what the agent has then. It fails with fault.NotFound if the agent has
// ended.
func (s *Service) KeepKnown(ctx context.Context, project, id string, k memory.Known) (memory.Known, error) {
	err := s.update(ctx, memory.Ref{Project: project, ID: id}, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
			return memory.Change{}, err
		}
		a := *h.Agent
		if there := a.Settings.Memory.Known; there != nil {
			k = *there
			return memory.Change{}, nil
		}
		a.Settings.Memory.Known, a.Rev = &k, h.Rev+1
		return memory.Change{Agent: &a}, nil
	})
	return k, err
}
