package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
)

// speechAPI serves what makes an agent speak or be silent.
type speechAPI struct {
	bodies
	memory *agents.Service
	turns  *turn.Runner
}

// sayAnswer is the answer of speak, think and interrupt.
type sayAnswer struct {
	AgentID string `json:"agent_id"`
	Channel string `json:"channel"`
	StartTS int64  `json:"start_ts"`
}

func newSayAnswer(a memory.Agent) sayAnswer {
	return sayAnswer{AgentID: a.ID, Channel: a.Settings.Channel, StartTS: a.StartTS()}
}

func encodeSay(w http.ResponseWriter, a memory.Agent) error {
	return encode(w, http.StatusOK, newSayAnswer(a))
}

type speakRequest struct {
	Text          string `json:"text" validate:"required"`
	Priority      string `json:"priority" validate:"omitempty,oneof=INTERRUPT APPEND IGNORE"`
	Interruptable *bool  `json:"interruptable"`
	Interrupt     *bool  `json:"interrupt"` // the name that one client uses
}

func (a speechAPI) speak(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[speakRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	text, err := text.Clean("text", in.Text, agents.MaxSpeak)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	p := agents.SpeakInterrupt
	if in.Priority != "" {
		p = agents.Priority(in.Priority)
	}
	agent, err := a.memory.Turns.Speak(r.Context(), projectOf(r), chi.URLParam(r, "id"), text, p, key)
	if err != nil {
		return err
	}
	return encodeSay(w, agent)
}

type interruptRequest struct {
	TurnID  *int64  `json:"turn_id" validate:"omitempty,min=0"`
	Heard   *string `json:"heard"`
	HeardMS *int64  `json:"heard_ms" validate:"omitempty,min=0,max=86400000"`
	At      int64   `json:"at" validate:"min=0"` // Unix ms; ten digits are taken for seconds
}

// interrupted is what an interruption changed, for callers of /v1.
type interrupted struct {
	sayAnswer
	Interrupted []interruptedTurn `json:"interrupted"` // empty if nothing changed
}

// interruptedTurn is a turn whose answer was cut, or is known better now. The fields after the turn
// are absent while nothing of the answer is stored.
type interruptedTurn struct {
	TurnID    int64   `json:"turn_id"`
	Seq       int64   `json:"seq,omitempty"`
	Generated *string `json:"generated,omitempty"`
	Heard     *string `json:"heard,omitempty"`
	Method    string  `json:"method,omitempty"`
}

func newInterrupted(done *agents.Interruption) interrupted {
	out := interrupted{newSayAnswer(done.Agent), []interruptedTurn{}}
	if m := done.Answer; m != nil {
		out.Interrupted = append(out.Interrupted, interruptedTurn{m.TurnID, m.Seq, new(m.Original()), &m.Content, string(m.Method)})
	}
	for _, turn := range done.Cut {
		if done.Answer == nil || turn != done.Answer.TurnID {
			out.Interrupted = append(out.Interrupted, interruptedTurn{TurnID: turn})
		}
	}
	return out
}

// interrupt serves POST …/agents/{id}/interrupt. Under /v1 the answer says what has changed.
func (a speechAPI) interrupt(kind joinKind) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		done, err := a.interruption(w, r)
		if err != nil {
			return err
		}
		if kind != joinV1 {
			return encodeSay(w, done.Agent)
		}
		return encode(w, http.StatusOK, newInterrupted(&done))
	}
}

func (a speechAPI) interruption(w http.ResponseWriter, r *http.Request) (done agents.Interruption, err error) {
	var in interruptRequest
	body, err := a.read(w, r)
	if err != nil {
		return done, err
	}
	if len(bytes.TrimSpace(body)) > 0 { // an empty body is usual
		if err := a.unmarshalAs(w, r, body, &in); err != nil {
			return done, err
		}
	}
	if in.Heard != nil {
		text, err := text.Clean("heard", *in.Heard, memory.MaxText)
		if err != nil {
			return done, err
		}
		in.Heard = &text
	}
	at, err := input.Millis("at", in.At)
	if err != nil {
		return done, err
	}
	return a.memory.Turns.Interrupt(r.Context(), projectOf(r), chi.URLParam(r, "id"), agents.InterruptRequest{
		TurnID: in.TurnID, Heard: in.Heard, HeardMS: in.HeardMS, AtMS: at,
	})
}

type thinkRequest struct {
	Text          string            `json:"text" validate:"required"`
	Listening     string            `json:"on_listening_action" validate:"omitempty,oneof=inject interrupt ignore append"`
	Thinking      string            `json:"on_thinking_action" validate:"omitempty,oneof=interrupt ignore append"`
	Speaking      string            `json:"on_speaking_action" validate:"omitempty,oneof=interrupt ignore append"`
	Interruptable *bool             `json:"interruptable"`
	Metadata      map[string]string `json:"metadata" validate:"max=64"`
}

// think runs a turn without a client. The server does not hear the caller, so an agent that is
// neither thinking nor speaking counts as idle, and the listening actions make no difference.
func (a speechAPI) think(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[thinkRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	text, err := text.Clean("text", in.Text, memory.MaxText)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	project, id := projectOf(r), chi.URLParam(r, "id")
	agent, err := a.memory.Agents.Agent(r.Context(), project, id)
	if err != nil {
		return err
	}
	if err := agent.MustBeActive(fault.NotFound); err != nil {
		return err
	}
	message, err := thinkMessage(text, key, in.Metadata)
	if err != nil {
		return err
	}
	if known, err := a.memory.Messages.Stored(r.Context(), project, id, message); err != nil || known {
		if err != nil {
			return err
		}
		return encodeSay(w, agent) // a repeat of a call
	}
	if phase, busy := a.memory.Turns.Busy(r.Context(), project, id); busy {
		action := in.Thinking
		if phase == memory.Speaking {
			action = in.Speaking
			if action == "" {
				action = "ignore" // the documented default
			}
		}
		switch action {
		case "ignore":
			return encodeSay(w, agent)
		case "append":
			if err := a.memory.Turns.WaitIdle(r.Context(), project, id); err != nil {
				return fault.Wrap(fault.Unavailable, err, "the answer in flight took too long")
			}
		default:
			a.memory.Turns.Cut(r.Context(), project, id, agents.ErrThink)
		}
	}
	if err := a.turns.Think(context.WithoutCancel(r.Context()), project, id, message); err != nil {
		return err
	}
	return encodeSay(w, agent)
}

// thinkMessage returns the user message of a think, with its metadata.
func thinkMessage(text, key string, metadata map[string]string) (m memory.Message, err error) {
	m = memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: text, ID: key}
	raw := make(map[string]json.RawMessage, len(metadata))
	for k, v := range metadata {
		if raw[k], err = marshal(v); err != nil {
			return m, err
		}
	}
	m.Metadata, err = input.Metadata("metadata", raw)
	return m, err
}
