package memory

import (
	"context"
	"slices"
	"sync"

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

// Bounds of a join's own keys.
const (
	MaxKeys   = 16
	MaxKeyLen = 256
)

// KeyTaken is the refusal of a second live agent with a key.
func KeyTaken(key, agentID string) error {
	return &NameTakenError{AgentID: agentID, Err: fault.At(fault.Conflict, "properties.heardlog.keys", "a running agent has the key %q already", key)}
}

// ByKey returns the agent with a key: the newest live one, else the newest. It returns
// fault.NotFound if there is none.
func (s *Service) ByKey(ctx context.Context, project, key string) (Agent, error) {
	k := agentKey{project, key}
	if id := s.keys.get(k); id != "" {
		if h, err := s.cfg.Store.Head(ctx, project, id); err == nil && !h.Agent.Status.Ended() && slices.Contains(h.Agent.Settings.Call.Keys, key) {
			return h.Agent, nil
		}
		s.keys.drop(k)
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
		s.keys.put(k, id)
	}
	return h.Agent, nil
}

// maxKnownKeys is how many own keys are remembered beside the store.
const maxKnownKeys = 1 << 14

// keyCache caches which agents keys belong to, so that later requests of a call do not query the
// store. Results are checked with the agent itself.
type keyCache struct {
	mu  sync.RWMutex
	ids map[agentKey]string
}

func (c *keyCache) get(k agentKey) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ids[k]
}

func (c *keyCache) put(k agentKey, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[agentKey]string{}
	}
	if len(c.ids) >= maxKnownKeys {
		for old := range c.ids { // any: it costs its call one look at the store
			delete(c.ids, old)
			break
		}
	}
	c.ids[k] = id
}

func (c *keyCache) drop(k agentKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, k)
}
