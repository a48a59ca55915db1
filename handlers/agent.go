package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/recall"
	"github.com/heardlog/heardlog/memory/remember"
	"github.com/heardlog/heardlog/platform"
)

// agentAPI serves agents: their start, settings and end.
type agentAPI struct {
	bodies
	memory     *agents.Service
	recall     *recall.Service
	remember   *remember.Service // nil remembers nothing
	remembers  memory.Remember   // the settings of joins that do not say
	now        func() time.Time
	defaultLLM bool // the server has an LLM for agents without one
	platforms  *platform.Set
}

type agentAnswer struct {
	Message string            `json:"message"`
	StartTS int64             `json:"start_ts"`
	StopTS  int64             `json:"stop_ts"`
	Status  string            `json:"status"`
	Name    string            `json:"name"`
	AgentID string            `json:"agent_id"`
	Channel string            `json:"channel,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
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

func (a agentAPI) get(w http.ResponseWriter, r *http.Request) error {
	agent, err := a.memory.Agent(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	out := agentAnswer{
		StartTS: agent.StartTS(), StopTS: agent.StopTS(), Status: agent.Status.String(), Name: agent.ShownName(), AgentID: agent.ID,
		Channel: agent.Settings.Channel, Labels: agent.Settings.Labels,
		Keys: agent.Settings.Call.Keys, Previous: agent.Settings.Call.Previous, WeakKey: agent.Settings.Call.Weak,
		Inherited: inheritedOf(&agent), PausedUntil: a.pausedUntil(&agent),
	}
	if agent.Status.Ended() {
		out.Message = "agent exits with reason: " + agent.Message
	}
	return encode(w, http.StatusOK, out)
}

// listWindow is how far back a list goes without from_time, as in Agora's API.
const listWindow = 2 * time.Hour

// Page sizes of the list of agents.
const (
	defaultPage = 20
	maxPage     = 1000
)

type listAnswer struct {
	Data struct {
		Count int         `json:"count"`
		List  []listEntry `json:"list"`
	} `json:"data"`
	Meta struct {
		Cursor    string `json:"cursor"`
		Total     int    `json:"total"`
		Truncated bool   `json:"truncated,omitempty"`
	} `json:"meta"`
	Status string `json:"status"`
}

type listEntry struct {
	StartTS int64  `json:"start_ts"`
	Status  string `json:"status"`
	AgentID string `json:"agent_id"`
	Name    string `json:"name"`
	Channel string `json:"channel,omitempty"`
}

func (a agentAPI) list(w http.ResponseWriter, r *http.Request) error {
	out := listAnswer{Status: "ok"}
	out.Data.List = []listEntry{}
	query := r.URL.Query()
	q, err := listQuery(query, a.now())
	if err != nil {
		return err
	}
	q.Project = projectOf(r)
	if query.Has("cursor") && q.After == (memory.AgentPlace{}) {
		// Some clients ask for the next page with the empty cursor that means "no more". Without
		// this they would never stop.
		return encode(w, http.StatusOK, out)
	}
	page, err := a.memory.Agents(r.Context(), q)
	if err != nil {
		return err
	}
	for i := range page.Heads {
		agent := &page.Heads[i].Agent
		out.Data.List = append(out.Data.List, listEntry{
			StartTS: agent.StartTS(), Status: agent.Status.String(), AgentID: agent.ID, Name: agent.ShownName(), Channel: agent.Settings.Channel,
		})
	}
	out.Data.Count, out.Meta.Cursor, out.Meta.Total, out.Meta.Truncated = len(page.Heads), page.Next.String(), page.Total, page.Truncated
	return encode(w, http.StatusOK, out)
}

func listQuery(v url.Values, now time.Time) (memory.AgentQuery, error) {
	q := memory.AgentQuery{Channel: v.Get("channel"), Name: v.Get("name"), Limit: defaultPage}
	var err error
	if q.After, err = memory.ParsePlace(v.Get("cursor")); err != nil {
		return q, err
	}
	if q.Limit, err = intParam(v, "limit", defaultPage, 1, maxPage); err != nil {
		return q, err
	}
	from, err := intParam(v, "from_time", 0, 0, 1<<40)
	if err != nil {
		return q, err
	}
	to, err := intParam(v, "to_time", 0, 0, 1<<40)
	if err != nil {
		return q, err
	}
	q.FromMS = now.Add(-listWindow).UnixMilli()
	if from > 0 {
		q.FromMS = int64(from) * 1000
	}
	if to > 0 {
		q.ToMS = int64(to)*1000 + 999 // end of that second
		if q.ToMS < q.FromMS && from > 0 {
			return q, fault.At(fault.Invalid, "to_time", "%d must not be before from_time, %d", to, from)
		}
	}
	states := v.Get("state")
	if states == "" {
		states = strconv.Itoa(int(memory.Running))
	}
	for s := range strings.SplitSeq(states, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 || n >= memory.Statuses {
			return q, fault.At(fault.Invalid, "state", "must be a status from 0 to %d, or several with commas, not %q", memory.Statuses-1, text.Clip(s, 20))
		}
		q.Statuses = append(q.Statuses, memory.Status(n))
	}
	return q, nil
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
	} `json:"heardlog"`
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

func (a agentAPI) update(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[updateRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	fields, prefix := &in.updateFields, ""
	if in.Properties != nil {
		fields, prefix = in.Properties, "properties."
	}
	var u agents.UpdateRequest
	u.Token = fields.Token
	if l := fields.LLM; l != nil {
		if l.SystemMessages != nil {
			if err := checkSystem(prefix+"llm.system_messages", "gemini", *l.SystemMessages); err != nil {
				return err // the style is not known here; that of Gemini allows both forms
			}
			u.SystemMessages = l.SystemMessages
		}
		if u.Params, err = paramsObject(prefix+"llm.params", l.Params); err != nil {
			return err
		}
	}
	if m := fields.MLLM; m != nil {
		if u.MLLMParams, err = paramsObject(prefix+"mllm.params", m.Params); err != nil {
			return err
		}
	}
	if h := fields.Heardlog; h != nil && len(h.Policy) > 0 {
		policy, err := readPolicy(a.memory, prefix+"heardlog.policy", h.Policy)
		if err != nil {
			return err
		}
		u.Policy, u.PolicySet = policy, true
	}
	agent, err := a.memory.Update(r.Context(), projectOf(r), chi.URLParam(r, "id"), u)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, updateAnswer{
		AgentID: agent.ID, CreateTS: agent.StartTS(), Status: agent.Status.String(), State: agent.Status.String(),
	})
}

func paramsObject(field string, b json.RawMessage) (json.RawMessage, error) {
	if len(b) == 0 || string(b) == "null" {
		return nil, nil
	}
	if b[0] != '{' {
		return nil, fault.At(fault.Invalid, field, "must be an object")
	}
	return b, nil
}

// erase deletes an agent with everything that belongs to it. It sends no event.
func (a agentAPI) erase(w http.ResponseWriter, r *http.Request) error {
	if err := a.memory.Erase(r.Context(), projectOf(r), chi.URLParam(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
