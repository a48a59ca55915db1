package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/webhook"
)

func newMessageJSON(m *webhook.Event) messageJSON {
	return messageJSON{
		ID: m.ID, Type: m.Type, Event: event.Name(m.Type), AgentID: m.AgentID, CreatedAt: timeMS(m.CreatedMS), Bytes: m.Size, Body: m.Body,
	}
}

// eventQuery reads the parameters that lists of events and of deliveries share.
func (a webhookAPI) eventQuery(r *http.Request) (q webhook.EventQuery, err error) {
	v := r.URL.Query()
	q = webhook.EventQuery{Project: projectOf(r), AgentID: v.Get("agent"), Cursor: v.Get("cursor")}
	if q.Limit, err = intParam(v, "limit", defaultWebhookPage, 1, webhook.MaxPage); err != nil {
		return q, err
	}
	if q.FromMS, q.ToMS, err = spanParams(v, a.now()); err != nil {
		return q, err
	}
	q.Types, err = typesOf("type", listParam(v, "type"))
	return q, err
}

func (a webhookAPI) messages(r *http.Request) (any, error) {
	q, err := a.eventQuery(r)
	if err != nil {
		return nil, err
	}
	page, err := a.webhooks.Store.Events(r.Context(), q)
	return struct {
		Messages []messageJSON `json:"messages"`
		Cursor   string        `json:"next_cursor,omitempty"`
	}{each(page.Events, newMessageJSON), page.Next}, err
}

func (a webhookAPI) message(r *http.Request) (any, error) {
	// Many clients escape the colon in an ID.
	return shown(newMessageJSON)(a.webhooks.Store.Event(r.Context(), projectOf(r), pathName(r, "id")))
}

func (a webhookAPI) deliveries(r *http.Request) (any, error) {
	e, err := a.eventQuery(r)
	if err != nil {
		return nil, err
	}
	v := r.URL.Query()
	q := webhook.DeliveryQuery{
		Project: e.Project, Endpoint: v.Get("endpoint"), Types: e.Types, AgentID: e.AgentID, EventID: v.Get("message"),
		FromMS: e.FromMS, ToMS: e.ToMS, Limit: e.Limit, Cursor: e.Cursor,
	}
	if q.States, err = statesOf("state", listParam(v, "state")); err != nil {
		return nil, err
	}
	page, err := a.webhooks.Store.Deliveries(r.Context(), q)
	return struct {
		Deliveries []deliveryJSON `json:"deliveries"`
		Cursor     string         `json:"next_cursor,omitempty"`
	}{each(page.Deliveries, newDeliveryJSON), page.Next}, err
}

// deliveryParam reads a delivery's ID from the path.
func deliveryParam(r *http.Request) (int64, error) {
	s := chi.URLParam(r, "id")
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 {
		return 0, fault.New(fault.NotFound, "there is no delivery %q", text.Clip(s, 40))
	}
	return id, nil
}

func (a webhookAPI) delivery(w http.ResponseWriter, r *http.Request) error {
	id, err := deliveryParam(r)
	if err != nil {
		return err
	}
	rec, tries, err := a.webhooks.Store.Delivery(r.Context(), projectOf(r), id)
	if err != nil {
		return err
	}
	out := newDeliveryJSON(&rec)
	out.Attempts = each(tries, newAttemptJSON)
	b, err := json.Marshal(out) // unlike encode, escapes <, > and &: a receiver wrote part of it
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, append(b, '\n'))
	return nil
}

// replayDelivery sends the message of a delivery again, whatever its state. A repeat with the same
// Idempotency-Key is not sent again.
func (a webhookAPI) replayDelivery(w http.ResponseWriter, r *http.Request) error {
	id, err := deliveryParam(r)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	rec, err := a.webhooks.Replay(r.Context(), projectOf(r), id, key)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/webhooks/deliveries/"+deliveryID(rec.ID))
	return encode(w, http.StatusAccepted, newDeliveryJSON(&rec))
}

func (a webhookAPI) cancelDelivery(r *http.Request) (any, error) {
	id, err := deliveryParam(r)
	if err != nil {
		return nil, err
	}
	return shown(newDeliveryJSON)(a.webhooks.Store.Cancel(r.Context(), projectOf(r), id, a.now().UnixMilli()))
}

// replayRequest selects deliveries to send again.
type replayRequest struct {
	Filter    json.RawMessage `json:"filter"`
	DryRun    bool            `json:"dry_run"`
	PerSecond float64         `json:"per_second" validate:"gte=0,lte=1000"`
}

type replayFilter struct {
	Endpoint *string         `json:"endpoint"`
	States   json.RawMessage `json:"states"`
	Types    json.RawMessage `json:"types"`
	Agent    *string         `json:"agent"`
	Message  *string         `json:"message"`
	Since    string          `json:"since"`
	Until    string          `json:"until"`
}

// query reads the filter.
func (in replayRequest) query(project string, now time.Time) (q webhook.DeliveryQuery, err error) {
	f, err := member[replayFilter]("filter", orNull(in.Filter))
	if err != nil {
		return q, err
	}
	q = webhook.DeliveryQuery{Project: project}
	// An empty value must not count as absent, which selects everything.
	for _, m := range []struct {
		name string
		in   *string
		out  *string
	}{{"endpoint", f.Endpoint, &q.Endpoint}, {"agent", f.Agent, &q.AgentID}, {"message", f.Message, &q.EventID}} {
		if m.in != nil {
			if *m.out = *m.in; *m.in == "" {
				return q, fault.At(fault.Invalid, "filter."+m.name, "is empty; send an ID, or leave it out to match any")
			}
		}
	}
	if q.FromMS, q.ToMS, err = spanOf("filter.", f.Since, f.Until, now); err != nil {
		return q, err
	}
	types, err := entries[string]("filter.types", orNull(f.Types), webhook.MaxFilter)
	if err != nil {
		return q, err
	}
	if types != nil && len(types) == 0 {
		return q, emptyList("filter.types")
	}
	if q.Types, err = typesOf("filter.types", types); err != nil {
		return q, err
	}
	states, err := entries[string]("filter.states", orNull(f.States), 4)
	if err != nil {
		return q, err
	}
	if states != nil && len(states) == 0 {
		return q, emptyList("filter.states")
	}
	if q.States, err = statesOf("filter.states", states); err != nil {
		return q, err
	}
	if len(q.States) == 0 {
		q.States = []webhook.DeliveryState{webhook.Dead}
	}
	return q, nil
}

func emptyList(field string) error {
	return fault.At(fault.Invalid, field, "must not be an empty list; name at least one, or leave it out")
}

type replayAnswer struct {
	Count  int  `json:"count"`
	DryRun bool `json:"dry_run"`
	More   bool `json:"more"`
	// Until is what the next call sends, so that it goes on where this one ended.
	Until timeMS `json:"until,omitempty"`
}

// replays sends many deliveries again: without states in the filter, those that were given up.
func (a webhookAPI) replays(r *http.Request, in *replayRequest) (any, error) {
	// Below it the last ones would be due in another century.
	if in.PerSecond > 0 && in.PerSecond < webhook.MinRateLimit {
		return nil, fault.At(fault.Invalid, "per_second", "must be 0 (no pacing) or from %v to 1000, not %v", webhook.MinRateLimit, in.PerSecond)
	}
	q, err := in.query(projectOf(r), a.now())
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return nil, err
	}
	done, err := a.webhooks.ReplayAll(r.Context(), webhook.Replay{Filter: q, PerSecond: in.PerSecond, DryRun: in.DryRun}, key)
	if err != nil {
		return nil, err
	}
	out := replayAnswer{Count: done.Count, DryRun: in.DryRun, More: done.More}
	if done.More {
		out.Until = timeMS(done.ToMS)
	}
	return out, nil
}
