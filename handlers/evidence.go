package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/evidence"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
)

// evidenceAPI takes the events of platforms that report what a caller heard.
type evidenceAPI struct {
	bodies
	memory    *agents.Service
	platforms *platform.Set
	events    *prometheus.CounterVec // by platform and result
	byKey     func(r *http.Request, key platform.Key) (string, error)
}

// evidenceAnswer names the answers that an event was about.
type evidenceAnswer struct {
	// Absent if the event names no call and has no evidence.
	AgentID string `json:"agent_id,omitempty"`
	// Event is the type of an event that holds evidence or ends a call, else "".
	Event    string             `json:"event"`
	Recorded []recordedEvidence `json:"recorded"`
	// Unmatched counts evidence about answers that the ledger does not have.
	Unmatched int `json:"unmatched"`
	// Ended is set if the event says that the call is over: then the agent has ended.
	Ended bool `json:"ended,omitempty"`
}

type recordedEvidence struct {
	Seq     int64  `json:"seq,omitempty"`
	TurnID  *int64 `json:"turn_id,omitempty"`
	Heard   string `json:"heard"`
	Method  string `json:"method,omitempty"`
	Changed bool   `json:"changed"`
	// The answer is not stored yet; it gets the evidence then.
	Pending bool `json:"pending,omitempty"`
}

// ofAgent takes a platform's event about the agent in the path.
func (a evidenceAPI) ofAgent(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readEvent(w, r)
	if err != nil {
		return err
	}
	event, err := platform.Read(chi.URLParam(r, "platform"), body)
	if err != nil {
		return err
	}
	return a.record(w, r, chi.URLParam(r, "id"), event)
}

// ofCall takes a platform's event that names its call, or whose agent a header names.
func (a evidenceAPI) ofCall(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readEvent(w, r)
	if err != nil {
		return err
	}
	name := chi.URLParam(r, "platform")
	event, err := platform.Read(name, body)
	if err != nil {
		return err
	}
	id := r.Header.Get(agentIDHeader)
	if id != "" && !input.AgentID(id) {
		return notAnAgent(id)
	}
	if id == "" {
		if id, err = a.agentOfEvent(r, name, body, event); err != nil {
			return err
		}
	}
	// Platforms test the URL with events that are about no call.
	if len(event.Evidence) == 0 && event.List == nil && (!event.Ends || id == "") {
		return encode(w, http.StatusOK, evidenceAnswer{AgentID: id, Recorded: []recordedEvidence{}})
	}
	infoOf(r).agent = id
	if err := a.record(w, r, id, event); err != nil {
		return err
	}
	a.memory.Messages.Touch(projectOf(r), id)
	return nil
}

// readEvent reads an event as JSON. Twilio's callbacks are forms; each field becomes a member of an
// object, its first value if there are several.
// See https://www.twilio.com/docs/voice/twiml#request-parameters.
func (a evidenceAPI) readEvent(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := a.read(w, r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/x-www-form-urlencoded" || bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) { // curl -d
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fault.Wrap(fault.BadRequest, err, "the body is neither JSON nor a form")
	}
	fields := make(map[string]string, len(form))
	for name, values := range form {
		fields[name] = values[0]
	}
	return json.Marshal(fields)
}

// agentOfEvent returns the agent of an event by its keys, also one that has ended: some platforms
// report after the call. An event with messages of a call that is not known yet creates its agent,
// as a request does. It returns "" for another event without evidence whose call is unknown.
func (a evidenceAPI) agentOfEvent(r *http.Request, name string, body []byte, event platform.Event) (string, error) {
	keys := a.platforms.EventKeys(projectOf(r), name, r.Header.Get, body, event)
	var tried []string
	for _, k := range keys {
		agent, err := a.memory.Agents.ByKey(r.Context(), projectOf(r), k.Text)
		if err == nil {
			if agent.Status.Ended() && event.List != nil && !event.Ends && event.AtMS > agent.StopMS {
				return a.byKey(r, k) // the key is that of a room, say, and the next call has begun
			}
			return agent.ID, nil
		}
		if !fault.Is(err, fault.NotFound) {
			return "", err
		}
		tried = append(tried, k.Text)
	}
	switch {
	case event.List != nil && !event.Ends && len(keys) > 0: // what was said before the first request
		return a.byKey(r, keys[0])
	case len(event.Evidence) == 0:
		return "", nil
	case len(tried) == 0:
		return "", fault.At(fault.Missing, agentIDHeader, "is required: the event names no call; send it to /v1/agents/{id}/evidence/%s, or add a key that GET /v1/profiles lists", name)
	}
	return "", unknownKey(strings.Join(tried, ", "))
}

// record stores an event's evidence and answers.
func (a evidenceAPI) record(w http.ResponseWriter, r *http.Request, id string, event platform.Event) error {
	out := evidenceAnswer{AgentID: id, Event: event.Type, Recorded: []recordedEvidence{}, Ended: event.Ends}
	reports, err := reportsOf(event.Evidence)
	if err != nil {
		return err
	}
	if event.Ends { // the transcript has the answer in flight too, so that must be stored first
		a.memory.Turns.Cut(r.Context(), projectOf(r), id, agents.ErrLeave)
	}
	list, err := a.store(r, id, event, reports)
	if event.Ends { // whatever was wrong with what it tells
		err = cmp.Or(a.memory.Agents.End(r.Context(), projectOf(r), id, memory.EndOK), err)
	}
	if err != nil {
		return err
	}
	// A known platform, or reading had failed.
	count := a.events.MustCurryWith(prometheus.Labels{"platform": chi.URLParam(r, "platform")})
	for _, rec := range list {
		result := "known"
		if rec.Pending {
			result = "pending"
		} else if rec.Changed {
			result = "recorded"
		}
		count.WithLabelValues(result).Inc()
		e := recordedEvidence{Changed: rec.Changed, Pending: rec.Pending}
		if m := rec.Message; !rec.Pending {
			e.Seq, e.TurnID, e.Heard, e.Method = m.Seq, &m.TurnID, m.Content, string(m.Method)
		}
		out.Recorded = append(out.Recorded, e)
	}
	out.Unmatched = len(reports) - len(list)
	count.WithLabelValues("unmatched").Add(float64(out.Unmatched))
	return encode(w, http.StatusOK, out)
}

// store stores an event's evidence, and what its list adds to the memory.
func (a evidenceAPI) store(r *http.Request, id string, event platform.Event, reports []evidence.Report) ([]evidence.Recorded, error) {
	records := evidence.Service{Memory: a.memory}
	list, err := records.Record(r.Context(), projectOf(r), id, reports)
	found := len(list) == len(reports)
	if err != nil || event.List == nil || found && len(event.List) == 1 && len(reports) == 1 {
		return list, err
	}
	if err := a.account(r, id, event); err != nil || found {
		return list, err
	}
	return records.Record(r.Context(), projectOf(r), id, reports) // about what was stored now
}

// account stores what a platform's own history adds to the memory.
func (a evidenceAPI) account(r *http.Request, id string, event platform.Event) error {
	rows := slices.DeleteFunc(slices.Clone(event.List), func(m platform.Listed) bool {
		return m.Role == "assistant" && m.Content != nil && a.memory.Turns.Saying(projectOf(r), id, *m.Content)
	})
	if len(rows) == 0 {
		return nil
	}
	body, err := platform.Request(rows)
	if err != nil {
		return err
	}
	plan, err := prompt.NewAccount(prompt.Rules{Redactor: a.memory.Messages.Redactor}, input.ReplaceNUL(body), event.Ends)
	if err != nil {
		return err
	}
	if len(rows) == 1 && len(event.List) == 1 && !event.Ends { // no list to compare
		return a.memory.Turns.Note(r.Context(), projectOf(r), id, rows[0].Item, plan.Depth(), plan.One)
	}
	return a.memory.Turns.Account(r.Context(), projectOf(r), id, plan.Depth(), plan.Decide)
}

// reportsOf converts evidence for the domain.
func reportsOf(list []platform.Evidence) ([]evidence.Report, error) {
	out := make([]evidence.Report, 0, len(list))
	for _, e := range list {
		r := evidence.Report{
			ItemID: e.ItemID, Turn: e.Turn, Ordinal: e.Ordinal, Heard: e.Heard, HeardMS: e.HeardMS, Full: e.Full, Cut: e.Cut,
			Item: e.Item, Said: e.Said, Named: e.Named, MadeMS: e.MadeMS, WholeMS: e.WholeMS, Rough: e.Rough, Confidence: e.Confidence, Estimated: e.Estimated,
			Playing: e.Playing, Account: e.Account, Echo: e.Echo, Over: e.Over, StartMS: e.StartMS, AtMS: e.AtMS, By: e.By,
		}
		var err error
		if r.Generated, err = text.Clean("generated", e.Generated, memory.MaxText); err != nil {
			return nil, err
		}
		if e.Heard != nil {
			text, err := text.Clean("heard", *e.Heard, memory.MaxText)
			if err != nil {
				return nil, err
			}
			r.Heard = &text
		}
		for _, w := range e.Words {
			r.Words = append(r.Words, evidence.WordTime{Text: w.Text, StartMS: w.StartMS, EndMS: w.EndMS})
		}
		out = append(out, r)
	}
	return out, nil
}
