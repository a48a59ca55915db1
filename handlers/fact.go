package handlers

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
)

// factAPI serves what is known about callers.
type factAPI struct {
	bodies
	facts   *facts.Service
	callers *caller.Service
	now     func() time.Time
}

// Limits and defaults of the calls about facts.
const (
	defaultFacts    = 100 // of a list
	maxFacts        = 1000
	defaultTopFacts = 10 // of a search
	defaultBlock    = 5  // facts of a block
	maxBlock        = 100
	maxBlockBudget  = 100_000 // tokens
	words           = "words" // the match of a search that is not for a substring
)

// factJSON is a fact in answers.
type factJSON struct {
	ID           string          `json:"id"`
	UserID       string          `json:"user_id"`
	Content      string          `json:"content"`
	Kind         facts.Kind      `json:"kind"`
	Subject      string          `json:"subject"`
	Attribute    string          `json:"attribute"`
	Topics       []string        `json:"topics"`
	Confidence   float64         `json:"confidence"`
	State        facts.State     `json:"state"`
	Reason       string          `json:"reason,omitempty"`
	ValidFrom    *string         `json:"valid_from"`
	ValidTo      *string         `json:"valid_to"`
	Supersedes   *string         `json:"supersedes"`
	SupersededBy *string         `json:"superseded_by"`
	Hits         int             `json:"hits"`
	Source       *factSourceJSON `json:"source"`
	By           string          `json:"by"`
	CreatedAt    string          `json:"created_at"`
	LastSeenAt   string          `json:"last_seen_at"`
	UpdatedAt    string          `json:"updated_at"`
	EndedAt      string          `json:"ended_at,omitempty"`
}

// factSourceJSON is where a fact was said.
type factSourceJSON struct {
	AgentID string `json:"agent_id"`
	FromSeq int64  `json:"from_seq"`
	ToSeq   int64  `json:"to_seq"`
	Quote   string `json:"quote"`
	Speaker string `json:"speaker"`
	Heard   string `json:"heard,omitempty"`
}

func newFactJSON(user string, f *facts.Fact) factJSON {
	orNil := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out := factJSON{
		ID: f.ID, UserID: user, Content: f.Content, Kind: f.Kind, Subject: f.Subject, Attribute: f.Attribute, Topics: append([]string{}, f.Topics...),
		Confidence: f.Confidence, State: f.State, Reason: f.Reason, ValidFrom: orNil(shownTime(f.ValidFromMS)), ValidTo: orNil(shownTime(f.ValidToMS)),
		Supersedes: orNil(f.Supersedes), SupersededBy: orNil(f.SupersededBy), Hits: f.Hits, By: f.By,
		CreatedAt: shownTime(f.CreatedUS / 1000), LastSeenAt: shownTime(f.SeenUS / 1000), UpdatedAt: shownTime(f.UpdatedUS / 1000), EndedAt: shownTime(f.EndedMS),
	}
	if s := f.Source; s != nil {
		out.Source = &factSourceJSON{AgentID: s.AgentID, FromSeq: s.FromSeq, ToSeq: s.ToSeq, Quote: s.Quote, Speaker: s.Speaker, Heard: s.Heard}
	}
	return out
}

func newFactsJSON(user string, list []*facts.Fact) []factJSON {
	return each(list, func(f **facts.Fact) factJSON { return newFactJSON(user, *f) })
}

// user returns the caller of the path, by its own name if the path has an alias.
func (a factAPI) user(r *http.Request) (string, error) {
	name, err := userInPath(r)
	if err != nil {
		return "", err
	}
	user, _, err := a.callers.Resolve(r.Context(), projectOf(r), name)
	return user, err
}

// reader returns the caller of the path and what its consent allows: facts may be shown only if
// that is caller.All.
func (a factAPI) reader(r *http.Request) (user string, consent caller.Remember, err error) {
	name, err := userInPath(r)
	if err != nil {
		return "", "", err
	}
	c, err := a.callers.Get(r.Context(), projectOf(r), name)
	return c.User, c.Consent.At(a.now()), err
}

// shownTo is reader for calls that answer with facts alone. It fails with fault.Forbidden if the
// caller's consent does not allow facts.
func (a factAPI) shownTo(r *http.Request) (string, error) {
	user, consent, err := a.reader(r)
	if err == nil && consent != caller.All {
		err = fault.New(fault.Forbidden, "the caller's consent does not allow facts")
	}
	return user, err
}

// one does something with the fact of a path and returns what it is then.
func (a factAPI) one(r *http.Request, do func(ctx context.Context, project, user, id string) (*facts.Fact, error)) (any, error) {
	user, err := a.shownTo(r)
	if err != nil {
		return nil, err
	}
	f, err := do(r.Context(), projectOf(r), user, pathName(r, "id"))
	if err != nil {
		return nil, err
	}
	return newFactJSON(user, f), nil
}

// factListJSON is a page of facts.
type factListJSON struct {
	Facts      []factJSON `json:"facts"`
	Total      int        `json:"total"`
	NextCursor string     `json:"next_cursor,omitempty"`
	Consent    string     `json:"consent,omitempty"` // turns or none, if the caller's facts must not be shown
}

func (a factAPI) list(r *http.Request) (any, error) {
	user, consent, err := a.reader(r)
	if err != nil {
		return nil, err
	}
	v := r.URL.Query()
	q, err := factQuery(v)
	if err != nil {
		return nil, err
	}
	limit, err := intParam(v, "limit", defaultFacts, 1, maxFacts)
	if err != nil {
		return nil, err
	}
	if consent != caller.All {
		return factListJSON{Facts: []factJSON{}, Consent: string(consent)}, nil
	}
	list, err := a.facts.List(r.Context(), projectOf(r), user, q)
	if err != nil {
		return nil, err
	}
	out := factListJSON{Total: len(list)}
	if after := v.Get("cursor"); after != "" {
		i := slices.IndexFunc(list, func(f *facts.Fact) bool { return f.ID == after })
		if i < 0 {
			return nil, fault.At(fault.Invalid, "cursor", "must be the next_cursor of a page of this list; %q is no longer in it", text.Clip(after, 40))
		}
		list = list[i+1:]
	}
	list, out.NextCursor = cutPage(list, limit, func(x *facts.Fact) string { return x.ID })
	out.Facts = newFactsJSON(user, list)
	return out, nil
}

// factQuery reads the filters of a list.
func factQuery(v url.Values) (q facts.Query, err error) {
	q.Topic = v.Get("topic")
	if q.AsOfMS, err = timeOf("as_of", v.Get("as_of")); err != nil {
		return q, err
	}
	return q, selectFacts(&q, v.Get("kind"), listParam(v, "state"))
}

// selectFacts sets the kind and the states of a query.
func selectFacts(q *facts.Query, kind string, states []string) error {
	if q.Kind = facts.Kind(kind); kind != "" && !slices.Contains(facts.Kinds(), q.Kind) {
		return fault.At(fault.Invalid, "kind", "must be one of %s, not %q", facts.Join(facts.Kinds()), text.Clip(kind, 40))
	}
	for _, s := range states {
		switch {
		case s == "all":
			q.States = facts.States()
		case !slices.Contains(facts.States(), facts.State(s)):
			return fault.At(fault.Invalid, "state", "must be all, or one or more of %s, not %q", facts.Join(facts.States()), text.Clip(s, 40))
		default:
			q.States = append(q.States, facts.State(s))
		}
	}
	return nil
}

// addFactRequest is a fact to store.
type addFactRequest struct {
	ID         string          `json:"id"`
	Content    string          `json:"content"`
	Kind       facts.Kind      `json:"kind"`
	Subject    string          `json:"subject"`
	Attribute  string          `json:"attribute"`
	Topics     []string        `json:"topics"`
	Confidence *float64        `json:"confidence"`
	State      string          `json:"state" validate:"omitempty,oneof=active draft"`
	ValidFrom  string          `json:"valid_from"`
	ValidTo    string          `json:"valid_to"`
	CreatedAt  string          `json:"created_at"`
	LastSeenAt string          `json:"last_seen_at"`
	Source     *factSourceJSON `json:"source"`
	By         string          `json:"by" validate:"omitempty,oneof=api tool imported"`
	Cause      string          `json:"cause"`
}

func (a factAPI) add(w http.ResponseWriter, r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	in, err := decode[addFactRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	idempotence, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	n := facts.New{
		ID: in.ID, Content: in.Content, Kind: in.Kind, Subject: in.Subject, Attribute: in.Attribute, Topics: in.Topics, Confidence: in.Confidence,
		Draft: in.State == string(facts.Draft), By: cmp.Or(in.By, facts.ByAPI), Cause: in.Cause,
	}
	if n.ID == "" && idempotence != "" {
		n.ID = facts.KeyID(idempotence)
	}
	for _, at := range []struct {
		field, value string
		to           *int64
	}{{"valid_from", in.ValidFrom, &n.ValidFromMS}, {"valid_to", in.ValidTo, &n.ValidToMS}, {"created_at", in.CreatedAt, &n.CreatedMS}, {"last_seen_at", in.LastSeenAt, &n.SeenMS}} {
		if *at.to, err = timeOf(at.field, at.value); err != nil {
			return err
		}
	}
	if s := in.Source; s != nil {
		n.Source = &facts.Source{AgentID: s.AgentID, FromSeq: s.FromSeq, ToSeq: cmp.Or(s.ToSeq, s.FromSeq), Quote: s.Quote, Speaker: cmp.Or(s.Speaker, "user")}
	}
	f, created, err := a.facts.Add(r.Context(), projectOf(r), user, n)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Field == "id" && n.ID != in.ID {
		err = fault.At(e.Code, "Idempotency-Key", "another fact was added with this key; use a new one for each")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/users/"+url.PathEscape(user)+"/facts/"+url.PathEscape(f.ID))
	status := http.StatusCreated
	if !created {
		status = http.StatusOK
	}
	return encode(w, status, newFactJSON(user, f))
}

func (a factAPI) get(r *http.Request) (any, error) { return a.one(r, a.facts.Get) }

// factEventJSON is a change of a fact.
type factEventJSON struct {
	At         string      `json:"at"`
	Event      string      `json:"event"`
	Cause      string      `json:"cause,omitempty"`
	State      facts.State `json:"state"`
	Confidence float64     `json:"confidence"`
}

type factHistoryJSON struct {
	ID     string          `json:"id"`
	Events []factEventJSON `json:"events"`
}

func (a factAPI) history(r *http.Request) (any, error) {
	user, err := a.shownTo(r)
	if err != nil {
		return nil, err
	}
	f, err := a.facts.Get(r.Context(), projectOf(r), user, pathName(r, "id"))
	if err != nil {
		return nil, err
	}
	return factHistoryJSON{ID: f.ID, Events: each(f.History, func(e *facts.Event) factEventJSON {
		return factEventJSON{At: shownTime(e.AtMS), Event: e.Name, Cause: e.Cause, State: e.State, Confidence: e.Confidence}
	})}, nil
}

// changeFactRequest changes a fact. What is absent stays.
type changeFactRequest struct {
	Content    *string     `json:"content"`
	Kind       *facts.Kind `json:"kind"`
	Subject    *string     `json:"subject"`
	Attribute  *string     `json:"attribute"`
	Topics     *[]string   `json:"topics"`
	Confidence *float64    `json:"confidence"`
	ValidFrom  *string     `json:"valid_from"`
	ValidTo    *string     `json:"valid_to"`
	Cause      string      `json:"cause"`
}

func (a factAPI) change(r *http.Request, in *changeFactRequest) (any, error) {
	p := facts.Patch{
		Content: in.Content, Kind: in.Kind, Subject: in.Subject, Attribute: in.Attribute, Topics: in.Topics, Confidence: in.Confidence, Cause: in.Cause,
	}
	for _, at := range []struct {
		field string
		value *string
		to    **int64
	}{{"valid_from", in.ValidFrom, &p.ValidFromMS}, {"valid_to", in.ValidTo, &p.ValidToMS}} {
		if at.value == nil {
			continue
		}
		ms, err := timeOf(at.field, *at.value)
		if err != nil {
			return nil, err
		}
		*at.to = &ms
	}
	return a.one(r, func(ctx context.Context, project, user, id string) (*facts.Fact, error) {
		return a.facts.Change(ctx, project, user, id, p)
	})
}

func (a factAPI) remove(r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	return a.facts.Delete(r.Context(), projectOf(r), user, pathName(r, "id"))
}

func (a factAPI) clear(r *http.Request) error {
	user, err := a.user(r)
	if err != nil {
		return err
	}
	return a.facts.Clear(r.Context(), projectOf(r), user)
}

// factCause is the optional body of a call that changes a fact.
type factCause struct {
	Cause string `json:"cause" validate:"max=64"`
}
