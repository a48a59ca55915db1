package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/store/record"
)

// callerAPI serves who the callers of a project are.
type callerAPI struct {
	bodies
	callers *caller.Service
	now     func() time.Time
}

// callerJSON is what is known of a caller.
type callerJSON struct {
	UserID  string         `json:"user_id"`
	Aliases []string       `json:"aliases"`
	Calls   int            `json:"calls"`
	FirstAt string         `json:"first_call_at,omitempty"`
	LastAt  string         `json:"last_call_at,omitempty"`
	Facts   map[string]int `json:"facts"` // how many, by state
	Consent consentJSON    `json:"consent"`
}

// consentJSON is what a caller allows. Now differs from Remember once Until has passed.
type consentJSON struct {
	Remember string `json:"remember"`
	Until    string `json:"until,omitempty"`
	Now      string `json:"now"`
	SetBy    string `json:"set_by,omitempty"` // the ID of a key
	SetAt    string `json:"set_at,omitempty"`
}

func (a callerAPI) consent(of *caller.Caller) consentJSON {
	c := of.Consent
	if c.Remember == "" {
		c.Remember = caller.All
	}
	return consentJSON{Remember: string(c.Remember), Until: shownTime(c.UntilMS), Now: string(c.At(a.now())), SetBy: of.ConsentBy, SetAt: shownTime(of.ConsentMS)}
}

// userInPath returns the user that the path names. Nothing can be stored of what platforms send for
// a withheld number.
func userInPath(r *http.Request) (string, error) {
	user := pathName(r, "user")
	if user == "" {
		return "", fault.At(fault.Invalid, "user", "must not be empty")
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		return callerName("user", user)
	}
	return text.CleanKey("user", inE164(user), caller.MaxName)
}

// inE164 returns the name of a caller; a telephone number, in E.164.
func inE164(name string) string {
	if number, ok := platform.Name(name); ok {
		return number
	}
	return name
}

// callerName returns a caller's name as a client sent it, with a telephone number in E.164. It
// refuses what platforms send for a withheld number, which is the name of no caller.
func callerName(field, name string) (string, error) {
	name, err := text.CleanKey(field, name, caller.MaxName)
	if err != nil || name == "" {
		return "", err
	}
	number, ok := platform.Name(name)
	if !ok {
		return "", fault.At(fault.Invalid, field, "%q is what platforms send for callers who withhold their number; a withheld number names no caller", text.Clip(name, 80))
	}
	return number, nil
}

// overview returns what is known of a caller, or fault.NotFound.
func (a callerAPI) overview(ctx context.Context, project, name string) (callerJSON, caller.Caller, error) {
	c, err := a.callers.Get(ctx, project, name)
	if err != nil {
		return callerJSON{}, c, err
	}
	o, err := a.callers.Overview(ctx, project, c)
	return callerJSON{
		UserID: c.User, Aliases: append([]string{}, c.Aliases...), Calls: o.Calls, FirstAt: shownTime(o.FirstMS), LastAt: shownTime(o.LastMS),
		Facts: o.Facts, Consent: a.consent(&c),
	}, c, err
}

// get serves GET /v1/users/{user}.
func (a callerAPI) get(r *http.Request) (any, error) {
	user, err := userInPath(r)
	if err != nil {
		return nil, err
	}
	out, _, err := a.overview(r.Context(), projectOf(r), user)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// callerEntry is a caller by its names.
type callerEntry struct {
	UserID  string      `json:"user_id"`
	Aliases []string    `json:"aliases"`
	Consent consentJSON `json:"consent"`
}

// listedCaller is a caller in a list.
type listedCaller struct {
	callerEntry
	Calls  int            `json:"calls"`
	LastAt string         `json:"last_call_at,omitempty"`
	Facts  map[string]int `json:"facts"` // how many, by state
}

func (a callerAPI) entry(c *caller.Caller) callerEntry {
	return callerEntry{UserID: c.User, Aliases: append([]string{}, c.Aliases...), Consent: a.consent(c)}
}

// list serves GET /v1/users.
func (a callerAPI) list(r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := intParam(query, "limit", defaultPageSize, 1, maxPageSize)
	if err != nil {
		return nil, err
	}
	after, err := text.CleanKey("cursor", query.Get("cursor"), caller.MaxName)
	if err != nil {
		return nil, err
	}
	list, next, err := a.callers.Users(r.Context(), projectOf(r), after, limit)
	if err != nil {
		return nil, err
	}
	overviews, err := a.callers.Overviews(r.Context(), projectOf(r), list)
	if err != nil {
		return nil, err
	}
	return struct {
		Users      []listedCaller `json:"users"`
		NextCursor string         `json:"next_cursor,omitempty"`
	}{each(overviews, func(o *caller.Overview) listedCaller {
		return listedCaller{a.entry(&o.Caller), o.Calls, shownTime(o.LastMS), o.Facts}
	}), next}, nil
}

type aliasesRequest struct {
	Aliases *[]string `json:"aliases" validate:"required"`
}

// putAliases serves PUT /v1/users/{user}/aliases. Telephone numbers are stored in E.164, as
// platforms name callers.
func (a callerAPI) putAliases(r *http.Request, in *aliasesRequest) (any, error) {
	user, err := userInPath(r)
	if err != nil {
		return nil, err
	}
	aliases := *in.Aliases
	for i := range aliases {
		field := fmt.Sprintf("aliases[%d]", i)
		alias, err := callerName(field, aliases[i])
		if err != nil {
			return nil, err
		}
		if alias == "" {
			return nil, fault.At(fault.Invalid, field, "must not be empty")
		}
		aliases[i] = alias
	}
	return shown(a.entry)(a.callers.SetAliases(r.Context(), projectOf(r), user, aliases))
}

type consentRequest struct {
	Remember string `json:"remember" validate:"required,oneof=all turns none"`
	Until    string `json:"until"`
}

// putConsent serves PUT /v1/users/{user}/consent.
func (a callerAPI) putConsent(r *http.Request, in *consentRequest) (any, error) {
	user, err := userInPath(r)
	if err != nil {
		return nil, err
	}
	consent := caller.Consent{Remember: caller.Remember(in.Remember)}
	if in.Until != "" {
		until, err := time.Parse(time.RFC3339, in.Until)
		if err != nil || !until.After(a.now()) || until.Year() > 9999 {
			return nil, fault.At(fault.Invalid, "until", "must be a time to come such as 2030-11-23T09:00:00Z, not %q", text.Clip(in.Until, 40))
		}
		consent.UntilMS = until.UnixMilli()
	}
	return shown(a.entry)(a.callers.SetConsent(r.Context(), projectOf(r), user, consent, infoOf(r).caller.ID))
}

// exportedMessage is a line of an export.
type exportedMessage struct {
	Type      string          `json:"type"` // message
	AgentID   string          `json:"agent_id,omitempty"`
	Seq       int64           `json:"seq"`
	MessageID string          `json:"message_id,omitempty"`
	TurnID    int64           `json:"turn_id"`
	State     string          `json:"state"`
	Role      string          `json:"role"`
	At        string          `json:"at"`
	Source    string          `json:"source,omitempty"`
	Content   string          `json:"content"`             // of an answer, what was heard
	Generated string          `json:"generated,omitempty"` // if that is not the content
	Sent      string          `json:"sent,omitempty"`
	Method    string          `json:"method,omitempty"`
	Cut       bool            `json:"interrupted,omitempty"`
	Parts     json.RawMessage `json:"parts,omitempty"`
	UserID    string          `json:"user_id,omitempty"`
	SessionID string          `json:"session_id,omitempty"`
}

func newExportedMessage(agent string, m *memory.Message) exportedMessage {
	state := string(m.State)
	if m.State == memory.Final {
		state = "final"
	}
	out := exportedMessage{
		Type: "message", AgentID: agent, Seq: m.Seq, MessageID: m.ID, TurnID: m.TurnID, State: state, Role: string(m.Role), At: shownTime(m.Timestamp),
		Source: string(m.Source), Content: m.Content, Method: string(m.Method), Cut: m.Interrupted, Parts: m.Parts, UserID: m.Filed().Scope.UserID, SessionID: m.Filed().Scope.SessionID,
	}
	if g := m.Original(); g != m.Content {
		out.Generated = g
	}
	if s := m.SentText(); s != m.Content {
		out.Sent = s
	}
	return out
}

type exportedCall struct {
	Type    string            `json:"type"` // call
	AgentID string            `json:"agent_id"`
	Name    string            `json:"name,omitempty"`
	Channel string            `json:"channel,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	UserID  string            `json:"user_id,omitempty"`
	StartAt string            `json:"start_at"`
	StopAt  string            `json:"stop_at,omitempty"`
	Status  string            `json:"status"`
	Summary string            `json:"summary,omitempty"`
}

type exportedRecord struct {
	Type  string          `json:"type"` // fact, or record
	Space string          `json:"space"`
	ID    string          `json:"id"`
	At    string          `json:"at"`
	Value json.RawMessage `json:"value"` // a string in base64 if it is not JSON
}

// export serves GET /v1/users/{user}/export: lines of JSON. A last line of type end says that
// nothing is missing.
func (a callerAPI) export(w http.ResponseWriter, r *http.Request) error {
	user, err := userInPath(r)
	if err != nil {
		return err
	}
	ctx, project := r.Context(), projectOf(r)
	shown, c, err := a.overview(ctx, project, user)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if r.Method == http.MethodHead {
		return nil
	}
	lines := 0
	rc := http.NewResponseController(w)
	line := func(v any) error {
		b, err := marshal(v)
		if err != nil {
			return err
		}
		lines++
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a reader that stops is cut
		_, err = w.Write(append(b, '\n'))
		return err
	}
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	err = line(struct {
		Type string `json:"type"` // caller
		callerJSON
	}{"caller", shown})
	if err == nil {
		err = a.callers.Visit(ctx, project, c, caller.Visitor{
			Call: func(g *memory.Agent) error {
				return line(exportedCall{
					Type: "call", AgentID: g.ID, Name: g.ShownName(), Channel: g.Settings.Channel, Labels: g.Settings.Labels, UserID: g.Settings.Scope.UserID,
					StartAt: shownTime(g.StartMS), StopAt: shownTime(g.StopMS), Status: g.Status.String(), Summary: g.Settings.Memory.Summary,
				})
			},
			Message: func(agent string, m *memory.Message) error { return line(newExportedMessage(agent, m)) },
			Record:  func(space string, rec record.Record) error { return line(newExportedRecord(space, rec)) },
		})
	}
	if err != nil { // the status is sent: a reader finds no last line
		infoOf(r).err = err
		panic(http.ErrAbortHandler)
	}
	_ = line(struct {
		Type  string `json:"type"` // end
		Lines int    `json:"lines"`
	}{"end", lines})
	return nil
}

func newExportedRecord(space string, r record.Record) exportedRecord {
	out := exportedRecord{Type: "record", Space: space, ID: r.ID, At: shownTime(r.UpdatedMS), Value: r.Body}
	if space == "fact" {
		out.Type = "fact"
	}
	if !json.Valid(r.Body) {
		out.Value, _ = json.Marshal(r.Body) // bytes always encode
	}
	return out
}
