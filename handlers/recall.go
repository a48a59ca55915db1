package handlers

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// recallAPI searches what a caller said and heard in any call.
type recallAPI struct {
	bodies
	recall  *recall.Service
	callers *caller.Service
	facts   *facts.Service
	agents  *agents.Agents
	now     func() time.Time
}

// Defaults of a recall.
const (
	defaultHits     = 10
	defaultDeadline = 80 // ms
	maxRecallQuery  = 4000
)

// recallRequest asks for turns of a caller.
type recallRequest struct {
	UserID         string   `json:"user_id"`
	Query          string   `json:"query"`
	K              *int     `json:"k" validate:"omitempty,gte=1,lte=100"`
	Kinds          []string `json:"kinds" validate:"max=2,dive,oneof=turn fact"`
	AgentID        string   `json:"agent_id"`
	SessionID      string   `json:"session_id" validate:"max=256"`
	AsOf           string   `json:"as_of"`
	From           string   `json:"from"`
	To             string   `json:"to"`
	Role           string   `json:"role" validate:"omitempty,oneof=user assistant"`
	View           string   `json:"view" validate:"omitempty,oneof=heard"`
	BudgetTokens   *int     `json:"budget_tokens" validate:"omitempty,gte=1,lte=100000"`
	DeadlineMS     *int     `json:"deadline_ms" validate:"omitempty,gte=1,lte=10000"`
	Explain        bool     `json:"explain"`
	IncludeCurrent bool     `json:"include_current"`
}

// recallJSON is what a recall found, best first.
type recallJSON struct {
	Hits     []any    `json:"hits"` // hitJSON or factHitJSON
	Strength string   `json:"strength"`
	Degraded []string `json:"degraded"`
	TookMS   float64  `json:"took_ms"`
	UpTo     string   `json:"up_to"`
	Calls    int      `json:"calls"`             // that the user has; 0 of an unknown one
	Consent  string   `json:"consent,omitempty"` // none, if the user must not be recalled
}

// recalledTurnJSON is a turn in a recall's answer.
type recalledTurnJSON struct {
	ID        string     `json:"id"`
	Content   string     `json:"content"`
	Role      string     `json:"role"`
	At        string     `json:"at"`
	AgentID   string     `json:"agent_id"`
	Seq       int64      `json:"seq"`
	TurnID    int64      `json:"turn_id"`
	MessageID string     `json:"message_id,omitempty"`
	SessionID string     `json:"session_id,omitempty"`
	Heard     *heardJSON `json:"heard,omitempty"` // of answers
}

type heardJSON struct {
	Method   string `json:"method,omitempty"`
	Complete bool   `json:"complete"`
}

type hitJSON struct {
	Kind  string  `json:"kind"`
	Score float64 `json:"score"`
	recalledTurnJSON
	Context []recalledTurnJSON `json:"context,omitempty"`
	Also    []string           `json:"also,omitempty"`
	Explain *recall.Parts      `json:"explain,omitempty"`
}

func newRecalledTurn(t *recall.Turn) recalledTurnJSON {
	out := recalledTurnJSON{
		ID: turnID(t), Content: t.Text, Role: t.Role, At: shownTime(t.At),
		AgentID: t.Call, Seq: t.Seq, TurnID: t.TurnID, MessageID: t.ID, SessionID: t.Session,
	}
	if t.Role == string(memory.Assistant) {
		out.Heard = &heardJSON{Method: t.Method, Complete: t.Complete}
	}
	return out
}

// shownScore returns a score with three decimals. More of them differ from processor to processor.
func shownScore(score float64) float64 { return math.Round(score*1000) / 1000 }

func turnID(t *recall.Turn) string { return t.Call + ":" + strconv.FormatInt(t.Seq, 10) }

// search serves POST /v1/recall.
func (a recallAPI) search(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[recallRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	if in.UserID == "" {
		return fault.At(fault.Missing, "user_id", "is required")
	}
	if in.UserID, err = text.CleanKey("user_id", inE164(in.UserID), maxScopeID); err != nil {
		return err
	}
	return a.answer(w, r, in, "")
}

// ofAgent serves POST /v1/agents/{id}/recall: the caller is the user in the agent's scope. The
// agent's own call is left out while it runs.
func (a recallAPI) ofAgent(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[recallRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	agent, err := a.agents.Agent(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	user := agent.Settings.Scope.UserID
	switch {
	case user == "":
		return fault.New(fault.Invalid, "agent %s has no user_id in its scope, so it has no other calls; set properties.heardlog.scope.user_id at the join", agent.ID)
	case in.UserID != "" && inE164(in.UserID) != user:
		is, _, err := a.callers.Resolve(r.Context(), projectOf(r), user)
		if err != nil {
			return err
		}
		asked, _, err := a.callers.Resolve(r.Context(), projectOf(r), inE164(in.UserID))
		if err != nil {
			return err
		}
		if is != asked {
			return fault.At(fault.Invalid, "user_id", "must be the user of the agent's scope, or absent")
		}
	}
	in.UserID = user
	running := ""
	if !agent.Status.Ended() && !in.IncludeCurrent {
		running = agent.ID
	}
	return a.answer(w, r, in, running)
}

func (a recallAPI) answer(w http.ResponseWriter, r *http.Request, in recallRequest, running string) error {
	began := a.now()
	q, err := in.query(began)
	if err != nil {
		return err
	}
	q.NotCall = running
	deadline := time.Duration(valueOr(in.DeadlineMS, defaultDeadline)) * time.Millisecond
	known, err := a.startFacts(r.Context(), projectOf(r), &in, &q, deadline)
	if err != nil {
		return err
	}
	found := recall.Result{Strength: recall.None}
	if in.wants("turn") {
		found, err = a.recall.Search(r.Context(), projectOf(r), in.UserID, q, deadline)
	}
	remembered := known()
	if err = cmp.Or(err, remembered.err); err != nil {
		return err
	}
	out := recallJSON{
		Hits: []any{}, Strength: found.Strength, Degraded: append([]string{}, found.Degraded...),
		TookMS: milliseconds(a.now().Sub(began)), UpTo: shownTime(began.UnixMilli()), Calls: found.Calls,
	}
	if found.Forbidden || remembered.consent == caller.None {
		out.Consent = string(caller.None)
	}
	turns := make([]hitJSON, 0, len(found.Hits))
	for i := range found.Hits {
		h := &found.Hits[i]
		j := hitJSON{Kind: "turn", Score: shownScore(h.Score), recalledTurnJSON: newRecalledTurn(&h.Turn)}
		for k := range h.Context {
			j.Context = append(j.Context, newRecalledTurn(&h.Context[k]))
		}
		for k := range h.Also {
			j.Also = append(j.Also, turnID(&h.Also[k]))
		}
		if in.Explain {
			j.Explain = &h.Parts
		}
		turns = append(turns, j)
	}
	out.add(turns, &remembered, &in)
	return encode(w, http.StatusOK, out)
}

// query checks a request.
func (in *recallRequest) query(now time.Time) (q recall.Query, err error) {
	if in.Query == "" {
		return q, fault.At(fault.Missing, "query", "is required")
	}
	if err := checkQuery(in.Query); err != nil {
		return q, err
	}
	q = recall.Query{
		Text: in.Query, K: valueOr(in.K, defaultHits), Now: now, Call: in.AgentID, Session: in.SessionID, Role: in.Role, Budget: valueOr(in.BudgetTokens, 0),
	}
	if q.FromMS, err = timeOf("from", in.From); err != nil {
		return q, err
	}
	q.ToMS, err = timeOf("to", in.To)
	return q, err
}

// checkQuery checks the length of words to search for.
func checkQuery(query string) error {
	if n := utf8.RuneCountInString(query); n > maxRecallQuery {
		return fault.At(fault.Invalid, "query", "has %d characters; at most %d are allowed", n, maxRecallQuery)
	}
	return nil
}

func valueOr[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}
