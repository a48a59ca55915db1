package handlers

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
)

// contextAPI serves the part of an agent's memory that its LLM gets, and what changes it.
type contextAPI struct {
	bodies
	memory *memctx.Service
	now    func() time.Time
}

// readPolicy reads one level of the policy. It returns nil if the field is absent or null.
func readPolicy(m *memory.Service, field string, raw json.RawMessage) (*window.Policy, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	p, err := window.Decode(field, raw)
	if err != nil {
		return nil, err
	}
	return &p, m.CheckPolicy(field, &p)
}

// policies lists the presets and the server's own policy.
func (a contextAPI) policies(w http.ResponseWriter, _ *http.Request) error {
	return encode(w, http.StatusOK, struct {
		Presets []window.Named `json:"presets"`
		Default window.Policy  `json:"default"`
	}{window.Presets(), a.memory.ServerPolicy()})
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
	body, err := a.readOptional(w, r)
	if err != nil {
		return err
	}
	var in contextRequest
	if body != nil {
		if err := a.unmarshal(body, &in, true); err != nil {
			return err
		}
	}
	q := memctx.Request{WithoutSummary: in.Inject.Summary != nil && !*in.Inject.Summary}
	if q.Policy, err = readPolicy(a.memory.Service, "policy", in.Policy); err != nil {
		return err
	}
	if in.Utterance != nil {
		text, err := memory.CleanText("utterance", *in.Utterance, memory.MaxText)
		if err != nil {
			return err
		}
		q.Utterance = &text
	}
	if s := in.Scope; s != nil {
		q.Scope = &window.Scope{UserID: s.UserID, SessionID: s.SessionID, TaskID: s.TaskID}
	}
	c, err := a.memory.Context(r.Context(), projectOf(r), chi.URLParam(r, "id"), q)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newContextAnswer(&c, in.Format == "custom"))
}

// contextAnswer is what an LLM gets of the memory.
type contextAnswer struct {
	AgentID   string               `json:"agent_id"`
	Messages  []contextMessageJSON `json:"messages"`
	Dropped   int                  `json:"dropped"`
	Tokens    int                  `json:"estimated_tokens"`
	Healed    []string             `json:"healed"`
	Shortened int                  `json:"shortened,omitempty"`
	Policy    window.Policy        `json:"policy"`
}

// contextMessageJSON is one message as an LLM gets it.
type contextMessageJSON struct {
	Role       memory.Role     `json:"role"`
	Content    any             `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Name       string          `json:"name,omitempty"`
	*customJSON
}

// customJSON is what Agora sends to custom LLMs with each message.
type customJSON struct {
	TurnID    int64           `json:"turn_id"`
	Timestamp int64           `json:"timestamp"` // Unix ms
	Metadata  json.RawMessage `json:"metadata"`
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
			j.customJSON = &customJSON{TurnID: m.Stored.TurnID, Timestamp: m.Stored.Timestamp, Metadata: m.Stored.AppendMetadata(nil)}
		}
		out.Messages[i] = j
	}
	return out
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
		if _, err := memory.CleanText(field+"."+name, v, 256); err != nil {
			return err
		}
	}
	out.Amend(func(r *memory.Rare) {
		r.Scope = memory.Scope{UserID: s.UserID, SessionID: s.SessionID, TaskID: s.TaskID}
	})
	return nil
}
