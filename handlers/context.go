package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
)

// contextAPI serves the part of an agent's memory that its LLM gets, and what changes it.
type contextAPI struct {
	bodies
	contexts *memctx.Service
	levels   *agents.Policies
	remember *remember.Service // nil shows nothing
	// callSummary is Config.CallSummary.
	callSummary func(ctx context.Context, project, id string) (text string, createdMS int64, err error)
	now         func() time.Time
}

// readPolicy reads one level of the policy. It returns nil if the field is absent or null.
func readPolicy(p *agents.Policies, field string, raw json.RawMessage) (*window.Policy, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	level, err := window.Decode(field, raw)
	if err != nil {
		return nil, err
	}
	return &level, p.Check(field, &level)
}

// policies lists the presets and the server's own policy.
func (a contextAPI) policies(w http.ResponseWriter, _ *http.Request) error {
	return encode(w, http.StatusOK, struct {
		Presets []window.Named `json:"presets"`
		Default window.Policy  `json:"default"`
	}{window.Presets(), a.levels.Server()})
}

// contextRequest is the body of the context call. Every field is optional.
type contextRequest struct {
	Utterance *string         `json:"utterance"`
	Policy    json.RawMessage `json:"policy"`
	Format    string          `json:"format" validate:"omitempty,oneof=standard custom"`
	Inject    struct {
		Summary *bool `json:"summary"`
	} `json:"inject"`
	Scope *messageScope `json:"scope"`
}

// messageScope names whose message it is.
type messageScope struct {
	UserID    string `json:"user_id" validate:"max=256"`
	SessionID string `json:"session_id" validate:"max=256"`
	TaskID    string `json:"task_id" validate:"max=256"`
}

func (a contextAPI) build(w http.ResponseWriter, r *http.Request) error {
	var in contextRequest
	err := a.decodeOptional(w, r, &in)
	if err != nil {
		return err
	}
	q := memctx.Request{WithoutSummary: in.Inject.Summary != nil && !*in.Inject.Summary}
	if q.Policy, err = readPolicy(a.levels, "policy", in.Policy); err != nil {
		return err
	}
	if in.Utterance != nil {
		text, err := text.Clean("utterance", *in.Utterance, memory.MaxText)
		if err != nil {
			return err
		}
		q.Utterance = &text
	}
	if s := in.Scope; s != nil {
		q.Scope = new(s.scope())
	}
	c, err := a.contexts.Context(r.Context(), projectOf(r), chi.URLParam(r, "id"), q)
	if err != nil {
		return err
	}
	out := newContextAnswer(&c, in.Format == "custom")
	a.addMemory(w, r, &c, &out)
	return encode(w, http.StatusOK, out)
}

// addMemory adds what a chat completion would be given of the caller and of earlier calls.
func (a contextAPI) addMemory(w http.ResponseWriter, r *http.Request, c *memctx.Context, out *contextAnswer) {
	if a.remember == nil || !c.Agent.Settings.Memory.Remember.Prompts() || !*c.Policy.Enabled {
		return
	}
	asked, at := remember.Asked{Shown: remember.NewShown(c.Agent.ID, false), Room: -1}, 0
	for i := range c.Messages {
		m := &c.Messages[i]
		own := true
		if m.Stored != nil {
			asked.Shown.Add(m.Stored.Seq, m.Stored.Content)
			own = m.Stored.Source != memory.SourceCommand && m.Stored.Source != memory.SourceSilence
		}
		if m.Role == memory.User {
			if asked.Words, at = "", i; own {
				asked.Words = m.Text
			}
		}
	}
	if most := *c.Policy.MaxTokens; most > 0 {
		asked.Room = max(0, most-c.Tokens)
	}
	known := a.remember.Introduce(r.Context(), &c.Agent)
	asked.Used, asked.Known = known.Tokens, known.IDs
	if b, ok := a.remember.Recall(r.Context(), &c.Agent, asked); ok {
		w.Header().Set(turn.RecallHeader, b.Header())
		out.insert(&c.Agent, at, &b)
	}
	first := slices.IndexFunc(out.Messages, func(m contextMessageJSON) bool { return !m.Role.Instructs() })
	if first < 0 {
		first = len(out.Messages)
	}
	out.insert(&c.Agent, first, &known)
}

// insert adds a block of the memory, unless it is empty.
func (out *contextAnswer) insert(a *memory.Agent, at int, b *remember.Block) {
	if b.Text == "" {
		return
	}
	out.Tokens += b.Tokens
	out.Recalled = slices.Concat(b.IDs, out.Recalled)
	out.Messages = slices.Insert(out.Messages, at, contextMessageJSON{
		Role: memory.Role(a.Settings.Memory.Remember.Position), Content: b.Text, Metadata: json.RawMessage(`{"source":"memory"}`),
	})
}

// contextAnswer is what an LLM gets of the memory.
type contextAnswer struct {
	AgentID   string               `json:"agent_id"`
	Messages  []contextMessageJSON `json:"messages"`
	Dropped   int                  `json:"dropped"`
	Tokens    int                  `json:"estimated_tokens"`
	Healed    []string             `json:"healed"`
	Shortened int                  `json:"shortened,omitempty"`
	Recalled  []string             `json:"recalled,omitempty"`
	Policy    window.Policy        `json:"policy"`
}

// contextMessageJSON is one message as an LLM gets it.
type contextMessageJSON struct {
	Role       memory.Role     `json:"role"`
	Content    any             `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
	// TurnID and Timestamp are what Agora sends to custom LLMs with each message, and so is
	// Metadata, which a block of the memory always has.
	TurnID    *int64          `json:"turn_id,omitempty"`
	Timestamp *int64          `json:"timestamp,omitempty"` // Unix ms
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

func newContextAnswer(c *memctx.Context, custom bool) contextAnswer {
	out := contextAnswer{
		AgentID: c.Agent.ID, Messages: make([]contextMessageJSON, len(c.Messages)), Dropped: c.Dropped, Tokens: c.Tokens,
		Healed: append([]string{}, c.Healed...), Shortened: c.Shortened, Policy: c.Policy,
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		j := contextMessageJSON{
			Role: m.Role, Content: contentJSON(m.Parts, m.Text, m.ToolCalls), ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Name: m.ToolName,
		}
		if custom && m.Stored != nil {
			j.TurnID, j.Timestamp, j.Metadata = &m.Stored.TurnID, &m.Stored.Timestamp, m.Stored.AppendMetadata(nil)
		}
		out.Messages[i] = j
	}
	return out
}

func (s *messageScope) scope() memory.Scope {
	return memory.Scope{UserID: inE164(s.UserID), SessionID: s.SessionID, TaskID: s.TaskID}
}

// setScope copies the scope into a message. field is its path for errors.
func (s *messageScope) setScope(out *memory.Message, field string) error {
	if s == nil {
		return nil
	}
	for name, v := range map[string]string{"user_id": s.UserID, "session_id": s.SessionID, "task_id": s.TaskID} {
		if v == "" {
			continue
		}
		if len(v) > 256 {
			return fault.At(fault.Invalid, field+"."+name, "is longer than 256 bytes")
		}
		if _, err := text.CleanKey(field+"."+name, v, 256); err != nil {
			return err
		}
	}
	out.Amend(func(r *memory.Details) {
		r.Scope = s.scope()
	})
	return nil
}
