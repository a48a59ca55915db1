package memory

import (
	"slices"
	"strings"

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

// Platform returns the voice platform of a call, such as vapi: what stands before the point in the
// first of its keys. It returns "" if no platform is known.
func (a *Agent) Platform() string {
	if a.Archived() {
		return a.Home()
	}
	for _, key := range append(slices.Clone(a.Settings.Call.Keys), a.Settings.Call.Shared...) {
		kind, _, ok := strings.Cut(key, ":")
		if name, _, dotted := strings.Cut(kind, "."); ok && dotted {
			return name
		}
	}
	return ""
}

// KeyTaken is the refusal of a second live agent with a key.
func KeyTaken(key, agentID string) error {
	return &NameTakenError{AgentID: agentID, Err: fault.At(fault.Conflict, "properties.heardlog.keys", "a running agent has the key %q already", key)}
}
