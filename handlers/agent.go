package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/platform"
)

// agentAPI serves agents: their start, settings and end.
type agentAPI struct {
	bodies
	memory     *agents.Service
	callers    *caller.Service
	recall     *recall.Service
	remember   *remember.Service // nil remembers nothing
	models     *model.Service
	erasures   *erasure.Service
	joined     func(ctx context.Context, a *memory.Agent) error
	remembers  memory.Remember // the settings of joins that do not say
	now        func() time.Time
	defaultLLM bool // the server has an LLM for agents without one
	platforms  *platform.Set
}

// agentJSON is an agent in answers of /v1.
type agentJSON struct {
	AgentID   string            `json:"agent_id"`
	Name      string            `json:"name"`
	Channel   string            `json:"channel,omitempty"`
	Status    string            `json:"status"`
	Reason    string            `json:"reason,omitempty"` // why it ended
	UserID    string            `json:"user_id,omitempty"`
	Labels    map[string]string `json:"labels"`
	StartedAt string            `json:"started_at"`
	StoppedAt string            `json:"stopped_at,omitempty"`
	Messages  int64             `json:"messages"`
	Turns     int64             `json:"turns"`
	Model     string            `json:"memory_model,omitempty"`
	Settings  *settingsJSON     `json:"settings,omitempty"`
	Platform  string            `json:"platform,omitempty"`
	Tally     tallyJSON         `json:"tally"`
	Scores    []scoreJSON       `json:"scores,omitempty"`
	Checks    []string          `json:"checks,omitempty"`
	// Hosted is what the platform of a call says of it that did not run here.
	Hosted *memory.HostedCall `json:"hosted,omitempty"`
	callJSON
	*glanceJSON // nil if it was not asked for, or is too much
}

// callJSON is what is known of an agent beside Agora's fields.
type callJSON struct {
	// Keys find the agent instead of its id. Previous is the agent that had them before. WeakKey is
	// set if the keys may stand for several calls.
	Keys     []string `json:"keys,omitempty"`
	Previous string   `json:"previous_agent_id,omitempty"`
	WeakKey  bool     `json:"weak_key,omitempty"`
	// Inherited is what the agent took over from the one before, nil for nothing.
	Inherited *inheritedJSON `json:"inherited,omitempty"`
	// PausedUntil is when a pause ends, "" without one.
	PausedUntil string `json:"paused_until,omitempty"`
}

func (a agentAPI) call(agent *memory.Agent) callJSON {
	c := &agent.Settings.Call
	return callJSON{Keys: c.Keys, Previous: c.Previous, WeakKey: c.Weak, Inherited: inheritedOf(agent), PausedUntil: a.pausedUntil(agent)}
}

func (a agentAPI) agentJSON(h *memory.Head) agentJSON {
	g := h.Agent
	out := agentJSON{
		AgentID: g.ID, Name: g.ShownName(), Channel: g.Settings.Channel, Status: g.Status.String(), UserID: g.Settings.Scope.UserID, Labels: g.Settings.Labels,
		StartedAt: shownTime(g.StartMS), StoppedAt: shownTime(g.StopMS), Messages: h.NextSeq - 1, Turns: h.LastTurn + 1, Model: g.Settings.Memory.Model, Platform: g.Platform(), Tally: tallyOf(h.Tally), Checks: g.Settings.Checks, callJSON: a.call(g),
	}
	if len(g.Settings.Scores) > 0 {
		out.Scores = each(g.Settings.Scores, newScoreJSON)
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if g.Archived() {
		out.Hosted = g.Settings.Archive.Hosted
	}
	if g.Status.Ended() {
		out.Reason = g.Message
	}
	return out
}

// get serves GET /v1/agents/{id}.
func (a agentAPI) get(r *http.Request) (any, error) {
	h, err := a.memory.Messages.Head(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	out := a.agentJSON(&h)
	out.Settings = a.settingsJSON(h.Agent)
	glance, err := includeParam(r.URL.Query())
	if err == nil && glance {
		err = a.glance(r.Context(), &h, &out)
	}
	return out, err
}

// updateFields are the fields that update may change. They come in properties, or bare from one
// client.
type updateFields struct {
	Token *string `json:"token"`
	LLM   *struct {
		SystemMessages *[]json.RawMessage `json:"system_messages" validate:"omitempty,max=256"`
		Params         json.RawMessage    `json:"params"`
	} `json:"llm"`
	MLLM *struct {
		Params json.RawMessage `json:"params"`
	} `json:"mllm"`
	Heardlog *struct {
		Policy json.RawMessage `json:"policy"`
		Scope  json.RawMessage `json:"scope"`
	} `json:"heardlog"`
	Labels map[string]*string `json:"labels" validate:"max=128"` // null removes one
}

type updateRequest struct {
	updateFields
	Properties *updateFields `json:"properties"`
}

type updateAnswer struct {
	AgentID  string `json:"agent_id"`
	CreateTS int64  `json:"create_ts"`
	Status   string `json:"status"`
	State    string `json:"state"` // the same, under the name that one client reads
}

// update serves POST …/agents/{id}/update.
func (a agentAPI) update(w http.ResponseWriter, r *http.Request) error {
	agent, err := a.change(w, r)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, updateAnswer{
		AgentID: agent.ID, CreateTS: agent.StartTS(), Status: agent.Status.String(), State: agent.Status.String(),
	})
}

// patch serves PATCH /v1/agents/{id}.
func (a agentAPI) patch(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.change(w, r); err != nil {
		return err
	}
	return shows(a.get)(w, r)
}

// change changes an agent as the body says.
func (a agentAPI) change(w http.ResponseWriter, r *http.Request) (memory.Agent, error) {
	u, err := a.readUpdate(w, r)
	if err != nil {
		return memory.Agent{}, err
	}
	return a.memory.Agents.Update(r.Context(), projectOf(r), chi.URLParam(r, "id"), u)
}

func (a agentAPI) readUpdate(w http.ResponseWriter, r *http.Request) (u agents.UpdateRequest, err error) {
	in, err := decode[updateRequest](a.bodies, w, r, false)
	if err != nil {
		return u, err
	}
	fields, prefix := &in.updateFields, ""
	if in.Properties != nil {
		fields, prefix = in.Properties, "properties."
	}
	u.Token = fields.Token
	if l := fields.LLM; l != nil {
		if l.SystemMessages != nil {
			if err := checkSystem(prefix+"llm.system_messages", "gemini", *l.SystemMessages); err != nil {
				return u, err // the style is not known here; that of Gemini allows both forms
			}
			u.SystemMessages = l.SystemMessages
		}
		if u.Params, err = paramsObject(prefix+"llm.params", l.Params); err != nil {
			return u, err
		}
	}
	if m := fields.MLLM; m != nil {
		if u.MLLMParams, err = paramsObject(prefix+"mllm.params", m.Params); err != nil {
			return u, err
		}
	}
	if h := fields.Heardlog; h != nil && len(h.Scope) > 0 {
		return u, fault.At(fault.Invalid, prefix+"heardlog.scope", "is set by the join and cannot change; labels can")
	}
	if h := fields.Heardlog; h != nil && len(h.Policy) > 0 {
		policy, err := readPolicy(a.memory.Policies, prefix+"heardlog.policy", h.Policy)
		if err != nil {
			return u, err
		}
		u.Policy, u.PolicySet = policy, true
	}
	for name, value := range fields.Labels {
		if strings.ContainsRune(name, 0) {
			return u, fault.At(fault.Invalid, fmt.Sprintf("%slabels[%q]", prefix, text.Clip(name, 60)), "must not contain a NUL character in its name")
		}
		if value != nil {
			*value = withoutNUL(*value)
		}
	}
	u.Labels = fields.Labels
	return u, nil
}

func paramsObject(field string, b json.RawMessage) (json.RawMessage, error) {
	if len(b) == 0 || string(b) == "null" {
		return nil, nil
	}
	if b[0] != '{' {
		return nil, fault.At(fault.Invalid, field, "must be an object")
	}
	return input.ReplaceNUL(b), nil
}

// erase deletes an agent with everything that belongs to it. It sends no event.
func (a agentAPI) erase(w http.ResponseWriter, r *http.Request) error {
	return noContent(w, a.eraseAgent(w, r, chi.URLParam(r, "id")))
}

// eraseAgent erases an agent with what is stored for it, and names the erasure in a header.
func (a agentAPI) eraseAgent(w http.ResponseWriter, r *http.Request, id string) error {
	e, err := a.erasures.Agent(r.Context(), projectOf(r), id, eraserOf(r))
	if err == nil {
		w.Header().Set(erasureHeader, e.ID)
	}
	return err
}
