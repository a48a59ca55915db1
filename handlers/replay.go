package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/replay"
	"github.com/heardlog/heardlog/memory"
)

// replayAPI asks requests of past turns again.
type replayAPI struct {
	bodies
	replays *replay.Service
	agents  agentAPI
}

// The defaults of a filter's bounds, and the most results of a page.
const (
	defaultReplayCalls = 20
	defaultReplayTurns = 5
	maxReplayPage      = 100
)

// newReplayRequest is what is asked again, and with which changes.
type newReplayRequest struct {
	AgentID string            `json:"agent_id"`
	TurnID  *int64            `json:"turn_id" validate:"omitempty,min=0"`
	Filter  map[string]string `json:"filter" validate:"max=32"`
	Calls   *int              `json:"calls" validate:"omitempty,min=1,max=100"`
	Turns   *int              `json:"turns" validate:"omitempty,min=1,max=50"`

	Model string `json:"model" validate:"max=256"`
	LLM   *struct {
		URL    string `json:"url" validate:"required,max=2048"`
		APIKey string `json:"api_key" validate:"max=8192"`
		Vendor string `json:"vendor" validate:"max=64"`
	} `json:"llm"`
	System *string         `json:"system"`
	Params json.RawMessage `json:"params"`
	DryRun bool            `json:"dry_run"`
}

// estimateJSON is what a replay takes.
type estimateJSON struct {
	Requests int      `json:"requests"`
	Skipped  int      `json:"skipped"`
	Input    int64    `json:"input_tokens"`
	Output   int64    `json:"output_tokens"`
	CostUSD  *float64 `json:"cost_usd,omitempty"`
}

func newEstimateJSON(e *replay.Estimate) estimateJSON {
	out := estimateJSON{Requests: e.Requests, Skipped: e.Skipped, Input: e.Input, Output: e.Output}
	if e.Cost != nil {
		out.CostUSD = new(float64(e.Cost.In+e.Cost.Out) / 1e9)
	}
	return out
}

type replayLLMJSON struct {
	URL    string `json:"url"`
	Vendor string `json:"vendor,omitempty"`
}

// replayJSON is a replay in answers.
type replayJSON struct {
	ID       string          `json:"id"`
	State    string          `json:"state"`
	Done     int             `json:"done"`
	Failed   int             `json:"failed"`
	SpentUSD *float64        `json:"spent_usd,omitempty"`
	Estimate estimateJSON    `json:"estimate"`
	Model    string          `json:"model,omitempty"`
	LLM      *replayLLMJSON  `json:"llm,omitempty"`
	System   *string         `json:"system,omitempty"`
	Params   json.RawMessage `json:"params,omitempty"`
	Created  string          `json:"created_at"`
	Ended    string          `json:"ended_at,omitempty"`
	Expires  string          `json:"expires_at"`
}

func newReplayJSON(r *replay.Replay) replayJSON {
	out := replayJSON{
		ID: r.ID, State: r.State, Done: r.Done, Failed: r.Failed, Estimate: newEstimateJSON(&r.Estimate), Model: r.Model, System: r.System, Params: r.Params,
		Created: shownTime(r.CreatedMS), Expires: shownTime(r.ExpiresMS()),
	}
	if r.Spent > 0 {
		out.SpentUSD = new(float64(r.Spent) / 1e9)
	}
	if r.LLM != nil {
		out.LLM = &replayLLMJSON{r.LLM.URL, r.LLM.Vendor}
	}
	if r.EndedMS > 0 {
		out.Ended = shownTime(r.EndedMS)
	}
	return out
}

// replayAnswerJSON is an old or a new answer.
type replayAnswerJSON struct {
	Content   string          `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
	Finish    string          `json:"finish_reason,omitempty"`
	Model     string          `json:"model,omitempty"`
	Usage     json.RawMessage `json:"usage,omitempty"`
	CostUSD   *float64        `json:"cost_usd,omitempty"`
	TotalMS   int64           `json:"total_ms,omitempty"`
	Error     string          `json:"error,omitempty"`
	Status    int             `json:"status,omitempty"`
}

// replayItemJSON is a request with its answers.
type replayItemJSON struct {
	AgentID string            `json:"agent_id"`
	TurnID  int64             `json:"turn_id"`
	Seq     int64             `json:"seq"`
	Gone    bool              `json:"gone,omitempty"`
	Before  *replayAnswerJSON `json:"before,omitempty"`
	After   *replayAnswerJSON `json:"after,omitempty"`
}

func newReplayItemJSON(i *replay.Item) replayItemJSON {
	out := replayItemJSON{AgentID: i.Agent, TurnID: i.Turn, Seq: i.Seq, Gone: i.Old == nil}
	if m := i.Old; m != nil {
		b := &replayAnswerJSON{Content: m.Produced(), ToolCalls: m.ToolCalls, Finish: m.FinishRsn, Model: m.Made().Model, Usage: m.Usage, CostUSD: dollars(m.Made().Cost)}
		if m.Timings != nil {
			b.TotalMS = m.Timings.TotalMS
		}
		if m.Failure != nil {
			b.Error, b.Status = m.Failure.Message, m.Failure.Code
		}
		out.Before = b
	}
	if r := i.Result; r != nil {
		out.After = &replayAnswerJSON{r.Content, r.ToolCalls, r.Finish, r.Model, r.Usage, dollars(r.Cost), r.TookMS, r.Error, r.Status}
	}
	return out
}

func dollars(c *memory.Cost) *float64 {
	if c == nil {
		return nil
	}
	return new(float64(c.In+c.Out) / 1e9)
}

// start serves POST /v1/replays.
func (a replayAPI) start(w http.ResponseWriter, r *http.Request) error {
	// A key that may choose where stored conversations are sent must be allowed to read them.
	if err := infoOf(r).caller.May(read); err != nil {
		return err
	}
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	var in newReplayRequest
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	change, err := a.change(&in)
	if err != nil {
		return err
	}
	sel, err := a.selection(r, &in)
	if err != nil {
		return err
	}
	p, err := a.replays.Plan(r.Context(), projectOf(r), sel, change)
	if err != nil {
		return err
	}
	if in.DryRun {
		return encode(w, http.StatusOK, struct {
			Estimate estimateJSON `json:"estimate"`
		}{newEstimateJSON(&p.Estimate)})
	}
	started, err := a.replays.Start(r.Context(), projectOf(r), key, string(body), p)
	if err != nil {
		return err
	}
	return encode(w, http.StatusAccepted, newReplayJSON(&started))
}

// change returns how requests are changed.
func (a replayAPI) change(in *newReplayRequest) (c replay.Change, err error) {
	c = replay.Change{Model: in.Model, System: in.System}
	if string(in.Params) != "null" {
		c.Params = in.Params
	}
	if err := c.Check(); err != nil || in.LLM == nil {
		return c, err
	}
	if err := checkURL("llm.url", in.LLM.URL); err != nil {
		return c, err
	}
	if err := checkSent("llm", in.LLM.APIKey, nil); err != nil {
		return c, err
	}
	c.LLM, err = a.replays.Seal(in.LLM.URL, in.LLM.APIKey, in.LLM.Vendor)
	return c, err
}

// selection returns what is asked again. A filter has the parameters of GET /v1/agents.
func (a replayAPI) selection(r *http.Request, in *newReplayRequest) (sel replay.Selection, err error) {
	one := in.AgentID != "" || in.TurnID != nil
	switch {
	case one && (in.AgentID == "" || in.TurnID == nil):
		return sel, fault.At(fault.Missing, "turn_id", "is required with agent_id, and agent_id with it")
	case one && in.Filter != nil:
		return sel, fault.At(fault.Invalid, "filter", "cannot be given with agent_id and turn_id")
	case one && (in.Calls != nil || in.Turns != nil):
		return sel, fault.At(fault.Invalid, "calls", "and turns are for a filter")
	case one:
		return replay.Selection{Agent: in.AgentID, Turn: *in.TurnID}, nil
	case in.Filter == nil:
		return sel, fault.At(fault.Missing, "agent_id", "and turn_id are required, or a filter")
	}
	names := slices.DeleteFunc(slices.Clone(queryParams["GET /v1/agents"]), func(s string) bool { return s == "limit" || s == "cursor" })
	v := url.Values{}
	for name, value := range in.Filter {
		_, label := namedIn(name, labelParam)
		_, score := namedIn(name, scoreParam)
		if !slices.Contains(names, name) && !label && !score {
			return sel, fault.At(fault.Invalid, "filter."+text.Clip(name, 80), "is not a parameter of the list of calls; allowed are: %s", strings.Join(names, ", "))
		}
		v.Set(name, value)
	}
	v.Set("limit", strconv.Itoa(valueOr(in.Calls, defaultReplayCalls)))
	sel.Turns = valueOr(in.Turns, defaultReplayTurns)
	sel.Query, sel.Words, err = a.agents.findQuery(r, v)
	return sel, err
}

// list serves GET /v1/replays.
func (a replayAPI) list(r *http.Request) (any, error) {
	list, err := a.replays.List(r.Context(), projectOf(r))
	return struct {
		Replays []replayJSON `json:"replays"`
	}{each(list, newReplayJSON)}, err
}

// get serves GET /v1/replays/{replay}: the replay and a page of its results.
func (a replayAPI) get(r *http.Request) (any, error) {
	v := r.URL.Query()
	limit, err := intParam(v, "limit", maxReplayPage, 1, maxReplayPage)
	if err != nil {
		return nil, err
	}
	after, err := intParam(v, "cursor", 0, 0, replay.MaxRequests)
	if err != nil {
		return nil, err
	}
	got, err := a.replays.Get(r.Context(), projectOf(r), pathName(r, "replay"))
	if err != nil {
		return nil, err
	}
	items, err := a.replays.Items(r.Context(), projectOf(r), &got, after, limit)
	if err != nil {
		return nil, err
	}
	out := struct {
		replayJSON
		Results    []replayItemJSON `json:"results"`
		NextCursor string           `json:"next_cursor,omitempty"`
	}{replayJSON: newReplayJSON(&got), Results: each(items, newReplayItemJSON)}
	if next := after + len(items); next < len(got.Targets) {
		out.NextCursor = strconv.Itoa(next)
	}
	return out, nil
}

// delete serves DELETE /v1/replays/{replay}.
func (a replayAPI) delete(r *http.Request) error {
	return a.replays.Delete(r.Context(), projectOf(r), pathName(r, "replay"))
}
