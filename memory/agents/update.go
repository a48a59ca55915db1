package agents

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// UpdateRequest changes a live agent; a nil field stays as it is.
type UpdateRequest struct {
	Token          *string
	SystemMessages *[]json.RawMessage // replaces
	Params         json.RawMessage    // replaces llm.params
	MLLMParams     json.RawMessage    // replaces mllm.params
	// Policy replaces the agent's own policy if PolicySet is true; nil removes it.
	Policy    *window.Policy
	PolicySet bool
	// Labels sets labels by name, and removes those whose value is nil.
	Labels map[string]*string
}

// Update changes a live agent. fault.NotFound if there is none or it has ended.
func (s *Agents) Update(ctx context.Context, project, id string, r UpdateRequest) (memory.Agent, error) {
	var out memory.Agent
	err := s.messages.update(ctx, memory.Ref{Project: project, ID: id}, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
			return memory.Change{}, err
		}
		a := *h.Agent
		r := r // a decision may run twice
		if err := r.restore(&a); err != nil {
			return memory.Change{}, err
		}
		props, err := r.properties(a.Properties)
		if err != nil {
			return memory.Change{}, err
		}
		a.Properties, a.Rev = props, h.Rev+1
		if r.SystemMessages != nil {
			a.Settings.LLM.SystemMessages = *r.SystemMessages
		}
		if r.Params != nil {
			a.Settings.LLM.Params = r.Params
		}
		if r.PolicySet {
			a.Settings.Memory.Policy = r.Policy
		}
		if err := a.Settings.CheckTemplates(); err != nil {
			return memory.Change{}, err
		}
		if len(r.Labels) > 0 {
			if a.Settings.Labels = r.labels(a.Settings.Labels); len(a.Settings.Labels) > memory.MaxLabels {
				return memory.Change{}, fault.At(fault.Invalid, "labels", "would be %d; at most %d are allowed", len(a.Settings.Labels), memory.MaxLabels)
			}
			a = a.Redacted(s.messages.Redactor(&a))
		}
		out = a
		return memory.Change{Agent: &a}, nil
	})
	return out, err
}

// labels returns an agent's labels with the update applied.
func (r *UpdateRequest) labels(old map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, old)
	for name, value := range r.Labels {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = *value
		}
	}
	return out
}

// restore puts the stored values in the place of masked secrets, so that a client may send back
// what another product has shown it.
func (r *UpdateRequest) restore(a *memory.Agent) error {
	if r.Token != nil && secret.IsMask(*r.Token) {
		r.Token = nil
	}
	var missing string
	if r.Params, missing = secret.Restore(r.Params, a.Settings.LLM.Params); missing != "" {
		return notStored("llm.params." + missing)
	}
	if r.MLLMParams == nil {
		return nil
	}
	top, err := object(a.Properties)
	if err != nil {
		return err
	}
	mllm, err := object(top["mllm"])
	if err != nil {
		return err
	}
	if r.MLLMParams, missing = secret.Restore(r.MLLMParams, mllm["params"]); missing != "" {
		return notStored("mllm.params." + missing)
	}
	return nil
}

func notStored(field string) error {
	return fault.At(fault.Invalid, field, "must not be %q, which stands for a stored value: none is stored", secret.Mask)
}

// properties returns the join's properties with the update applied.
func (r UpdateRequest) properties(old json.RawMessage) (json.RawMessage, error) {
	top, err := object(old)
	if err != nil {
		return nil, err
	}
	set := func(outer, key string, v json.RawMessage) error {
		in, err := object(top[outer])
		if err != nil {
			return err
		}
		in[key] = v
		top[outer], err = json.Marshal(in)
		return err
	}
	var errs []error
	if r.Token != nil {
		b, err := json.Marshal(*r.Token)
		top["token"], errs = b, append(errs, err)
	}
	if r.SystemMessages != nil {
		b, err := json.Marshal(*r.SystemMessages)
		errs = append(errs, err, set("llm", "system_messages", b))
	}
	if r.Params != nil {
		errs = append(errs, set("llm", "params", r.Params))
	}
	if r.PolicySet {
		b, err := json.Marshal(r.Policy)
		errs = append(errs, err, set("heardlog", "policy", b))
	}
	if r.MLLMParams != nil {
		errs = append(errs, set("mllm", "params", r.MLLMParams))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.Marshal(top)
}

func object(b json.RawMessage) (map[string]json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	if len(b) == 0 || string(b) == "null" {
		return m, nil
	}
	return m, json.Unmarshal(b, &m)
}
