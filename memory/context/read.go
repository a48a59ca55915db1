package context

import (
	"context"
	"encoding/json"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Request asks for the messages that a model would be given now.
type Request struct {
	// Utterance, if not nil, is what the user says now. It goes last and is not stored.
	Utterance *string
	// Policy is the request's own level of the policy; nil sets nothing.
	Policy *window.Policy
	// WithoutSummary leaves the summary out.
	WithoutSummary bool
	// Scope, if not nil, leaves out messages of other scopes; Level is how far scopes are compared.
	Scope *window.Scope
	Level window.Level
}

// Context is what a model would be given.
type Context struct {
	Agent    memory.Agent
	Messages []Message
	// Policy is the policy that was used, with every field set.
	Policy window.Policy
	// Dropped is the number of messages in memory that are left out, Tokens the cost of all others.
	Dropped, Tokens int
	// Healed are the IDs of tool calls that got a stand-in for a lost result.
	Healed []string
	// Shortened is the number of messages that were shortened to fit the budget.
	Shortened int
}

// Message is one message of a context.
type Message struct {
	Role       memory.Role
	Text       string
	Parts      json.RawMessage // content that is not text
	ToolCalls  json.RawMessage
	ToolCallID string
	ToolName   string
	// Stored is the ledger's message; nil if it is not from the ledger. It is shared: do not change
	// it.
	Stored *memory.Message
}

// Context returns the messages that a model would be given of an agent, live or ended. It changes
// nothing, and the same memory and request always have the same result. It returns fault.Invalid
// for a policy that cannot be followed.
func (s *Service) Context(ctx context.Context, project, id string, r Request) (Context, error) {
	if err := s.policies.Check("policy", r.Policy); err != nil {
		return Context{}, err
	}
	h, mem, by, read, err := s.read(ctx, memory.Ref{Project: project, ID: id}, func(a *memory.Agent) (method, error) { return s.methodFor(a, &r) }, true, false)
	if err != nil {
		return Context{}, err
	}
	out := Context{
		Agent: *h.Agent, Policy: by.policy, Dropped: read.Dropped, Tokens: read.AllTokens, Healed: read.Healed, Shortened: read.Shortened,
		Messages: make([]Message, 0, len(read.Entries)),
	}
	for _, e := range read.Entries {
		m := Message{
			Role: e.Message.Role, Text: e.Message.Text, Parts: e.Message.Parts, ToolCalls: e.Message.ToolCalls, ToolCallID: e.Message.ToolCallID, ToolName: e.Message.ToolName,
		}
		if string(m.Parts) == "null" {
			m.Parts = nil
		}
		if e.Index >= 0 {
			m.Stored = mem.at(e.Index)
			if e.Kind == window.Kept && len(m.Parts) == 0 {
				m.Text = m.Stored.TextFor(by.view, m.Stored.Content)
			}
		}
		if e.Kind == window.Summary {
			if n := len(out.Messages); n > 0 && out.Messages[n-1].Role.Instructs() && len(out.Messages[n-1].Parts) == 0 {
				out.Messages[n-1].Text = window.WithSummary(out.Messages[n-1].Text, by.extras.Summary)
				continue
			}
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

// methodFor returns how an agent's memory is read for a request.
func (s *Service) methodFor(a *memory.Agent, r *Request) (method, error) {
	p := s.policies.Of(a, r.Policy)
	c, err := s.policies.Counter(&p)
	if err != nil {
		return method{}, err
	}
	x := window.Extras{Utterance: r.Utterance, Scope: r.Scope, Level: r.Level}
	if *p.Enabled { // without a memory the utterance stands alone
		x.System = instructionsOf(&a.Settings.LLM)
		if !r.WithoutSummary {
			x.Summary = a.Settings.Memory.Summary
		}
	}
	v := s.viewOf(a, r.Policy)
	p.Projection = string(v.Kind())
	return method{p, c, v, x}, nil
}

// instructionsOf returns an agent's system messages with its variables filled in.
func instructionsOf(l *memory.LLMSettings) []window.Message {
	out := make([]window.Message, 0, len(l.SystemMessages))
	for _, raw := range l.SystemMessages {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Parts   json.RawMessage `json:"parts"` // as Gemini names it
		}
		if json.Unmarshal(raw, &m) != nil {
			continue // a join refuses these
		}
		w := window.Message{Role: window.Role(m.Role)}
		if len(m.Content) == 0 {
			m.Content = m.Parts
		}
		var text string
		if json.Unmarshal(m.Content, &text) == nil {
			w.Text = l.Fill(text)
		} else {
			w.Parts = m.Content
		}
		out = append(out, w)
	}
	return out
}
