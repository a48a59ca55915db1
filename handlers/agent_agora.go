package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// agoraAgent is an agent in Agora's form, with what is known beside it.
type agoraAgent struct {
	Message string            `json:"message"`
	StartTS int64             `json:"start_ts"`
	StopTS  int64             `json:"stop_ts"`
	Status  string            `json:"status"`
	Name    string            `json:"name"`
	AgentID string            `json:"agent_id"`
	Channel string            `json:"channel,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	callJSON
}

// agoraGet serves GET …/agents/{id} on Agora's paths.
func (a agentAPI) agoraGet(r *http.Request) (any, error) {
	agent, err := a.memory.Agents.Agent(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	out := agoraAgent{
		StartTS: agent.StartTS(), StopTS: agent.StopTS(), Status: agent.Status.String(), Name: agent.ShownName(), AgentID: agent.ID,
		Channel: agent.Settings.Channel, Labels: agent.Settings.Labels, callJSON: a.call(&agent),
	}
	if agent.Status.Ended() {
		out.Message = "agent exits with reason: " + agent.Message
	}
	return out, nil
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

// agoraList serves GET …/agents on Agora's paths.
func (a agentAPI) agoraList(r *http.Request) (any, error) {
	out := listAnswer{Status: "ok"}
	out.Data.List = []listEntry{}
	query := r.URL.Query()
	q, err := listQuery(query, a.now())
	if err != nil {
		return nil, err
	}
	q.Project = projectOf(r)
	if query.Has("cursor") && q.After == (memory.AgentPlace{}) {
		// Some clients ask for the next page with the empty cursor that means "no more". Without
		// this they would never stop.
		return out, nil
	}
	page, err := a.memory.Agents.List(r.Context(), q)
	if err != nil {
		return nil, err
	}
	for i := range page.Heads {
		agent := page.Heads[i].Agent
		out.Data.List = append(out.Data.List, listEntry{
			StartTS: agent.StartTS(), Status: agent.Status.String(), AgentID: agent.ID, Name: agent.ShownName(), Channel: agent.Settings.Channel,
		})
	}
	out.Data.Count, out.Meta.Cursor, out.Meta.Total, out.Meta.Truncated = len(page.Heads), page.Next.String(), page.Total, page.Truncated
	return out, nil
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
