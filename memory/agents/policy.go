package agents

import (
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Policies decides how much of a memory a model is given. A policy has up to three levels, the
// server's, the agent's and the request's, of which the more specific one wins field by field.
type Policies struct {
	server  window.Policy
	counter func(tokens string) (window.Counter, error) // nil always uses the estimate
}

// Server returns the server's policy with every field set.
func (s *Policies) Server() window.Policy { return s.server.Full() }

// Of returns the policy that applies to an agent, with every field set. It merges the
// server's, the agent's and, if not nil, the request's, the more specific one winning field by
// field. llm.max_history, unless it is the default, is the agent's max_messages if its policy has
// neither that nor a preset.
func (s *Policies) Of(a *memory.Agent, request *window.Policy) window.Policy {
	levels := make([]window.Policy, 1, 4)
	levels[0] = s.server
	if n := a.Settings.LLM.MaxHistory; n > 0 && (n != memory.DefaultMaxHistory || s.isDefault()) {
		levels = append(levels, window.Policy{MaxMessages: &n})
	}
	if own := a.Settings.Memory.Policy; own != nil {
		levels = append(levels, *own)
	}
	if request != nil {
		levels = append(levels, *request)
	}
	return window.Merge(levels...)
}

// isDefault reports whether the server's own policy is the default.
func (s *Policies) isDefault() bool {
	return s.server.IsZero() || s.server == window.Policy{Preset: window.DefaultPreset}
}

// differsFor reports whether an agent's context is made by another policy than the default with
// the agent's max_history, which needs no reading.
func (s *Policies) differsFor(a *memory.Agent, request *window.Policy) bool {
	return !s.isDefault() || a.Settings.Memory.Policy != nil || request != nil
}

// Counter returns the token counter of a policy that has every field set.
func (s *Policies) Counter(p *window.Policy) (window.Counter, error) {
	if s.counter == nil || p.Tokens == window.Estimate {
		return window.Estimated{}, nil
	}
	return s.counter(p.Tokens)
}

// Check returns fault.Invalid for a policy that this server cannot follow. field is its path.
func (s *Policies) Check(field string, p *window.Policy) error {
	if p == nil {
		return nil
	}
	if err := p.Validate(field); err != nil {
		return err
	}
	if p.Tokens == "" || p.Tokens == window.Estimate {
		return nil
	}
	if s.counter == nil {
		return fault.At(fault.Invalid, field+".tokens", "%q: this server counts by the estimate only", p.Tokens)
	}
	_, err := s.counter(p.Tokens) // reads the vocabulary now, and not in the first turn
	return err
}
