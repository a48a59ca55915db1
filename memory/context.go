package memory

import (
	"context"
	"encoding/json"

	"github.com/heardlog/heardlog/memory/window"
)

// ContextRequest asks for the messages that an LLM would get now.
type ContextRequest struct {
	// Utterance, unless nil, is what the user says now: it goes last, and is not stored.
	Utterance *string
	// Policy is the request's own level; nil says nothing.
	Policy *window.Policy
	// WithoutSummary leaves the summary out.
	WithoutSummary bool
	// Scope, unless nil, leaves out messages of other scopes; Level says how far it is compared.
	Scope *window.Scope
	Level window.Level
}

// Context is what an LLM would get.
type Context struct {
	Agent    Agent
	Messages []ContextMessage
	// Policy is the one that made it, with every field set.
	Policy window.Policy
	// Dropped is how many messages of the memory are not among them, Tokens what all of them cost.
	Dropped, Tokens int
	// Healed are the ids of calls that got a stand-in for a result that is lost.
	Healed []string
	// Shortened is how many messages were shortened inside, since what may not be cut was over the budget.
	Shortened int
}

// ContextMessage is one message of a context.
type ContextMessage struct {
	Role       Role
	Text       string
	Parts      json.RawMessage // content where it is no text
	ToolCalls  json.RawMessage
	ToolCallID string
	ToolName   string
	// Stored is the ledger's message; nil of what is not of the ledger. It is shared and must not be written to.
	Stored *Message
}

// Context gives the messages that an LLM would get of an agent, also of one that has ended. Nothing is changed by it. The same memory and request always give
// the same answer. fault.Invalid for a policy that cannot be followed.
func (s *Service) Context(ctx context.Context, project, id string, r ContextRequest) (Context, error) {
	if err := s.CheckPolicy("policy", r.Policy); err != nil {
		return Context{}, err
	}
	h, mem, by, read, err := s.read(ctx, project, id, func(a *Agent) (reading, error) { return s.readingOf(a, &r) }, nil)
	if err != nil {
		return Context{}, err
	}
	p, x, v := by.policy, by.extras, by.view
	out := Context{
		Agent: h.Agent, Policy: p, Dropped: read.Dropped, Tokens: read.AllTokens, Healed: read.Healed, Shortened: read.Shortened,
		Messages: make([]ContextMessage, 0, len(read.Entries)),
	}
	for _, e := range read.Entries {
		m := ContextMessage{
			Role: e.Message.Role, Text: e.Message.Text, Parts: e.Message.Parts, ToolCalls: e.Message.ToolCalls, ToolCallID: e.Message.ToolCallID, ToolName: e.Message.ToolName,
		}
		if string(m.Parts) == "null" {
			m.Parts = nil
		}
		if e.Index >= 0 {
			m.Stored = &mem.stored[e.Index]
			if e.Kind == window.Kept && len(m.Parts) == 0 {
				m.Text = v.Content(m.Stored, m.Stored.Content)
			}
		}
		if e.Kind == window.Summary {
			if n := len(out.Messages); n > 0 && instructs(out.Messages[n-1].Role) && len(out.Messages[n-1].Parts) == 0 {
				out.Messages[n-1].Text = window.WithSummary(out.Messages[n-1].Text, x.Summary)
				continue
			}
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

// readingOf gives how an agent's memory is read for a request.
func (s *Service) readingOf(a *Agent, r *ContextRequest) (reading, error) {
	p := s.PolicyOf(a, r.Policy)
	c, err := s.counter(&p)
	if err != nil {
		return reading{}, err
	}
	x := window.Extras{Utterance: r.Utterance, Scope: r.Scope, Level: r.Level}
	if *p.Enabled { // without a memory the utterance stands alone (reference/memory-semantics.md 000-7)
		x.System = a.Settings.LLM.instructions()
		if !r.WithoutSummary {
			x.Summary = a.Settings.Memory.Summary
		}
	}
	v := s.viewOf(a, r.Policy)
	p.Projection = string(v.projection())
	return reading{p, c, v, x}, nil
}

// instructions gives an agent's system messages with its variables filled in.
func (l *LLMSettings) instructions() []window.Message {
	out := make([]window.Message, 0, len(l.SystemMessages))
	for _, raw := range l.SystemMessages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Parts   json.RawMessage `json:"parts"` // Gemini's name for it
		}
		if json.Unmarshal(raw, &m) != nil {
			continue // a join does not take such a one
		}
		w := window.Message{Role: Role(m.Role)}
		if len(m.Content) == 0 {
			m.Content = m.Parts
		}
		var text string
		if json.Unmarshal(m.Content, &text) == nil {
			w.Text = l.fill(text)
		} else {
			w.Parts = m.Content
		}
		out = append(out, w)
	}
	return out
}

// viewOf gives how the conversation is shown: by the projection of the request's policy, the agent's policy, the agent's join or the server's policy, the
// first that names one.
func (s *Service) viewOf(a *Agent, request *window.Policy) *View {
	v, own := a.Settings.LLM.View, a.Settings.Memory.Policy
	switch {
	case request != nil && request.Projection != "":
		return v.With(Projection(request.Projection))
	case own != nil && own.Projection != "":
		return v.With(Projection(own.Projection))
	case v == nil || v.Projection == "":
		return v.With(Projection(s.cfg.Policy.Projection))
	}
	return v
}

// seenBy gives the views of a memory as a view shows it: answers that were cut have the text that is told of them, so that it is what a budget counts, and
// answers of which nothing was heard are there where it shows them.
func (r *recalled) seenBy(v *View) []window.Message {
	if !v.Projects() {
		return r.views
	}
	out := r.views
	for i := range r.stored {
		m := &r.stored[i]
		unplayed := m.State == Unplayed && v.Shows(m)
		text := m.Content
		if len(m.Parts) == 0 {
			text = v.Content(m, m.Content)
		}
		if !unplayed && text == m.Content {
			continue
		}
		if &out[0] == &r.views[0] {
			out = append([]window.Message(nil), r.views...)
		}
		if unplayed {
			out[i].Status = ""
		}
		if text != m.Content {
			out[i].Text, out[i].Parts, out[i].Chars = text, nil, 0
		}
	}
	return out
}
