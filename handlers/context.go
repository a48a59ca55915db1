package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// contextAPI serves the part of an agent's memory that its LLM gets, and what changes it.
type contextAPI struct {
	bodies
	memory *memory.Service
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

// policies tells the presets in full and the server's own policy.
func (a contextAPI) policies(w http.ResponseWriter, _ *http.Request) error {
	return encode(w, http.StatusOK, struct {
		Presets []window.Named `json:"presets"`
		Default window.Policy  `json:"default"`
	}{window.Presets(), a.memory.ServerPolicy()})
}

// contextRequest is the body of the context call; all of it may be absent.
type contextRequest struct {
	Utterance *string         `json:"utterance"`
	Policy    json.RawMessage `json:"policy"`
	Format    string          `json:"format" validate:"omitempty,oneof=standard custom"`
	Inject    struct {
		Summary *bool `json:"summary"`
	} `json:"inject"`
	Scope *messageScope `json:"scope"`
}

// messageScope is the scope of a message on the wire.
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
	q := memory.ContextRequest{WithoutSummary: in.Inject.Summary != nil && !*in.Inject.Summary}
	if q.Policy, err = readPolicy(a.memory, "policy", in.Policy); err != nil {
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
	return writeContext(w, &c, in.Format == "custom")
}

func writeContext(w http.ResponseWriter, c *memory.Context, custom bool) error {
	e := entryWriter{b: make([]byte, 0, 16<<10)}
	e.b = append(memory.AppendString(append(e.b, `{"agent_id":`...), c.Agent.ID), `,"messages":[`...)
	for i := range c.Messages {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.message(&c.Messages[i], custom)
	}
	e.b = append(e.b, ']')
	e.number("dropped", int64(c.Dropped))
	e.number("estimated_tokens", int64(c.Tokens))
	e.value("healed", append([]string{}, c.Healed...))
	if c.Shortened > 0 {
		e.number("shortened", int64(c.Shortened))
	}
	e.value("policy", c.Policy)
	if e.err != nil {
		return e.err
	}
	writeJSON(w, http.StatusOK, append(e.b, "}\n"...))
	return nil
}

// message appends one message as an LLM gets it; the custom form has what Agora's custom LLMs get beside (reference/agora-api.md section 4).
func (e *entryWriter) message(m *memory.ContextMessage, custom bool) {
	e.b = memory.AppendString(append(e.b, `{"role":`...), string(m.Role))
	switch {
	case len(m.Parts) > 0:
		e.raw("content", m.Parts)
	case m.Text == "" && len(m.ToolCalls) > 0:
		e.raw("content", json.RawMessage("null"))
	default:
		e.always("content", m.Text)
	}
	e.raw("tool_calls", m.ToolCalls)
	e.text("tool_call_id", m.ToolCallID)
	e.text("name", m.ToolName)
	if custom && m.Stored != nil {
		e.b = strconv.AppendInt(append(e.b, `,"turn_id":`...), m.Stored.TurnID, 10)
		e.number("timestamp", m.Stored.Timestamp)
		e.b = m.Stored.AppendMetadata(append(e.b, `,"metadata":`...))
	}
	e.b = append(e.b, '}')
}

// into copies the scope into a message; field is the message's path.
func (s *messageScope) into(out *memory.Message, field string) error {
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
