package memory

import (
	"context"
	"slices"

	"github.com/maypok86/otter/v2"

	"github.com/heardlog/heardlog/internal/fault"
)

// Call is how a platform identifies the conversation. It finds the agent if a request does not name
// one.
type Call struct {
	// Keys are the agent's own: no other live agent of the project has one of them. Shared keys may
	// belong to several agents, as a channel does.
	Keys   []string `json:"keys,omitempty"`
	Shared []string `json:"shared,omitempty"`
	// Previous is the id of the agent that had the first key before; "" = none.
	Previous string `json:"previous,omitempty"`
	// Weak is set if the agent was found, and created, by something that does not identify one call
	// for certain.
	Weak bool `json:"weak,omitempty"`
}

// KeyTaken is the refusal of a second live agent with a key.
func KeyTaken(key, agentID string) error {
	return &NameTakenError{AgentID: agentID, Err: fault.At(fault.Conflict, "properties.heardlog.keys", "a running agent has the key %q already", key)}
}

// ByKey returns the agent with a key: the newest live one, else the newest. It returns
// fault.NotFound if there is none.
func (s *Service) ByKey(ctx context.Context, project, key string) (Agent, error) {
	k := agentKey{project, key}
	if id, ok := s.keys.GetIfPresent(k); ok {
		if h, err := s.cfg.Store.Head(ctx, project, id); err == nil && !h.Agent.Status.Ended() && slices.Contains(h.Agent.Settings.Call.Keys, key) {
			return h.Agent, nil
		}
		s.keys.Invalidate(k)
	}
	id, err := s.cfg.Store.ByKey(ctx, project, key)
	if err != nil {
		return Agent{}, err
	}
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Agent{}, err
	}
	if !h.Agent.Status.Ended() && slices.Contains(h.Agent.Settings.Call.Keys, key) {
		s.keys.Set(k, id)
	}
	return h.Agent, nil
}

// maxKnownKeys is how many call keys are cached. A cached ID is checked against the agent itself.
const maxKnownKeys = 1 << 14

func newKeyCache() *otter.Cache[agentKey, string] {
	return otter.Must(&otter.Options[agentKey, string]{MaximumSize: maxKnownKeys})
}
