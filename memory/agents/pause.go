package agents

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a pause.
const (
	DefaultPause = 5 * time.Minute
	MaxPause     = time.Hour
)

// pausedArguments stand for the arguments of a tool call, which must be a JSON object.
const pausedArguments = `{"text":"[paused]"}`

// Pause stops the storing of texts for d. A pause that is longer already stays as it is. It returns
// fault.NotFound if the agent has ended.
func (s *Agents) Pause(ctx context.Context, project, id string, d time.Duration) (memory.Agent, error) {
	return s.setPause(ctx, memory.Ref{Project: project, ID: id}, func(until, now int64) int64 { return max(until, now+d.Milliseconds()) })
}

// Resume ends a pause, if there is one. It returns fault.NotFound if the agent has ended.
func (s *Agents) Resume(ctx context.Context, project, id string) (memory.Agent, error) {
	return s.setPause(ctx, memory.Ref{Project: project, ID: id}, func(until, now int64) int64 { return min(until, now) })
}

func (s *Agents) setPause(ctx context.Context, ref memory.Ref, end func(until, now int64) int64) (memory.Agent, error) {
	var a memory.Agent
	err := s.messages.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
			return memory.Change{}, err
		}
		a = *h.Agent
		until := &a.Settings.PausedUntilMS
		was := *until
		if *until = end(was, s.messages.NowMS()); *until == was {
			return memory.Change{}, nil
		}
		a.Rev = h.Rev + 1
		return memory.Change{Agent: &a}, nil
	})
	return a, err
}

// PausedUntil returns when the agent's pause ends, Unix ms, or 0 if it is not paused.
func (s *Messages) PausedUntil(a *memory.Agent) int64 {
	if !a.Status.Active() || !s.paused(a) {
		return 0
	}
	return a.Settings.PausedUntilMS
}

// paused reports whether texts are not stored. What comes in late, after the agent has ended within
// its pause, is not stored either.
func (s *Messages) paused(a *memory.Agent) bool { return a.Settings.PausedUntilMS > s.NowMS() }

// asStored returns a new message of the agent as it is stored.
func (s *Messages) asStored(a *memory.Agent, m memory.Message) memory.Message {
	if m = m.Redacted(s.Redactor(a)); s.paused(a) {
		m = withoutTexts(m)
	}
	return m
}

// hidePaused removes the texts that a change brings while the agent is paused, and those that would
// come back into messages that were stored without. A message from before the pause keeps its text,
// but gets no newer one.
func hidePaused(c *memory.Change, view memory.AgentView, paused bool) error {
	if paused && !c.Copies {
		c.Append = slices.Clone(c.Append) // the decision may have kept it
		for i := range c.Append {
			c.Append[i] = withoutTexts(c.Append[i])
		}
	}
	c.Replace = slices.Clone(c.Replace)
	for i := range c.Replace {
		m := &c.Replace[i]
		old, err := view.Seq(m.Seq)
		if err != nil {
			return err
		}
		if old.Paused() || paused && m.Original() != "" && m.Original() != old.Original() {
			*m = withoutTexts(*m)
		}
	}
	return nil
}

// withoutTexts returns the message with PausedText in the place of its texts.
func withoutTexts(m memory.Message) memory.Message {
	hide := func(s *string) {
		if *s != "" {
			*s = memory.PausedText
		}
	}
	if len(m.Parts) > 0 && m.Content == "" {
		m.Content = memory.PausedText
	}
	hide(&m.Content)
	hide(&m.Generated)
	if m.Content != "" {
		m.Generated = ""
	}
	m.Sent, m.Parts, m.Metadata, m.Chars = "", nil, nil, 0
	m.ToolCalls = withoutArguments(m.ToolCalls)
	if m.Failure != nil {
		m.Failure = withoutText(m.Failure)
	}
	if m.Details != nil {
		m.Amend(func(r *memory.Details) {
			hide(&r.Filler)
			r.WithThoughts, r.Members, r.Category, r.Raw, r.Earlier, r.Playback, r.Request, r.Was = "", "", "", "", nil, nil, nil, nil
			if r.Item != nil {
				item := *r.Item
				item.Extra = nil
				r.Item = &item
			}
		})
	}
	return m
}

func withoutText(f *memory.Failure) *memory.Failure {
	if f == nil {
		return nil
	}
	out := *f
	out.Message = memory.PausedText
	return &out
}

// withoutArguments returns a tool_calls array with nothing but the functions and IDs.
func withoutArguments(list json.RawMessage) json.RawMessage {
	if len(list) == 0 {
		return list
	}
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var calls []struct {
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type,omitempty"`
		Function function `json:"function"`
	}
	if json.Unmarshal(list, &calls) != nil {
		calls = nil
	}
	for i := range calls {
		calls[i].Function.Arguments = pausedArguments
	}
	out, err := json.Marshal(calls)
	if err != nil || calls == nil {
		return json.RawMessage("[]")
	}
	return out
}
