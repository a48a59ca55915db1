package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type recallIn struct {
	Query string `json:"query" jsonschema:"a question or a few words, in any language"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many hits at most, 1 to 50; 10 by default"`
	From  string `json:"from,omitempty" jsonschema:"only what was said since this time, such as 2026-11-01T00:00:00Z"`
	To    string `json:"to,omitempty" jsonschema:"only what was said until this time"`
}

type recallOut struct {
	Strength string   `json:"strength" jsonschema:"strong, weak or none: how much of the query the best hit covers"`
	Hits     []hit    `json:"hits" jsonschema:"best first"`
	Degraded []string `json:"degraded,omitempty" jsonschema:"what is missing from the answer; ask again"`
}

type hit struct {
	Kind    string `json:"kind" jsonschema:"turn or fact"`
	ID      string `json:"id"`
	Content string `json:"content"`
	Role    string `json:"role,omitempty" jsonschema:"user is the caller, assistant the agent"`
	At      string `json:"at,omitempty"`
	AgentID string `json:"agent_id,omitempty" jsonschema:"the call, for get_call"`
	Seq     int64  `json:"seq,omitempty" jsonschema:"the place in the call"`
	Heard   *heard `json:"heard,omitempty" jsonschema:"of answers of the assistant"`
}

type heard struct {
	Method   string `json:"method,omitempty"`
	Complete bool   `json:"complete" jsonschema:"false if the caller heard only the start, which is the content"`
}

func (a *API) recall(ctx context.Context, in recallIn) (out recallOut, err error) {
	out.Hits = []hit{}
	k, err := checkLimit(in.Limit, defaultHits, maxHits)
	if err != nil {
		return out, err
	}
	body := map[string]any{"user_id": a.User, "query": in.Query, "k": k, "budget_tokens": recallTokens}
	if in.From != "" {
		body["from"] = in.From
	}
	if in.To != "" {
		body["to"] = in.To
	}
	if err := a.call(ctx, http.MethodPost, "/v1/recall", body, &out); err != nil {
		return out, err
	}
	if out.Strength == "none" { // weak hits invite guesses
		out.Hits = []hit{}
	}
	return out, nil
}

// fact is a fact as models see it.
type fact struct {
	ID         string   `json:"id"`
	Content    string   `json:"content"`
	Kind       string   `json:"kind"`
	Topics     []string `json:"topics,omitempty"`
	Confidence float64  `json:"confidence" jsonschema:"0 to 1"`
	State      string   `json:"state"`
	CreatedAt  string   `json:"created_at"`
}

type rememberIn struct {
	Content string   `json:"content" jsonschema:"one statement about the caller, at most 300 characters"`
	Kind    string   `json:"kind,omitempty" jsonschema:"profile (who the caller is), preference, event or instruction (how to treat the caller); profile by default"`
	Topics  []string `json:"topics,omitempty" jsonschema:"a few words to find it by"`
}

func (a *API) remember(ctx context.Context, in rememberIn) (out fact, err error) {
	switch in.Kind = cmp.Or(in.Kind, "profile"); in.Kind {
	case "profile", "preference", "event", "instruction":
	case "agreement":
		return out, errors.New("an agreement is made from what was heard in a call and cannot be stored here")
	default:
		return out, fmt.Errorf("kind: must be profile, preference, event or instruction, not %.40q", in.Kind)
	}
	body := map[string]any{"content": in.Content, "kind": in.Kind, "by": "tool"}
	if len(in.Topics) > 0 {
		body["topics"] = in.Topics
	}
	err = a.call(ctx, http.MethodPost, a.user()+"/facts", body, &out)
	return out, err
}

type forgetIn struct {
	What string   `json:"what,omitempty" jsonschema:"words of the facts to list"`
	IDs  []string `json:"ids,omitempty" jsonschema:"facts to erase, at most 20"`
}

type forgetOut struct {
	Candidates []fact   `json:"candidates,omitempty" jsonschema:"facts that fit; nothing was erased"`
	Erased     []string `json:"erased,omitempty" jsonschema:"ids of the facts that were erased"`
	Missing    []string `json:"missing,omitempty" jsonschema:"ids of facts that are not known"`
}

func (a *API) forget(ctx context.Context, in forgetIn) (out forgetOut, err error) {
	switch {
	case (in.What == "") == (len(in.IDs) == 0):
		return out, errors.New("give what, to list facts, or ids, to erase them")
	case len(in.IDs) > maxForget:
		return out, fmt.Errorf("ids: has %d entries; at most %d are allowed", len(in.IDs), maxForget)
	case in.What != "":
		found, err := a.findFacts(ctx, in.What, maxForget)
		out.Candidates = found.Facts
		return out, err
	}
	for _, id := range in.IDs {
		if id == "" || strings.Trim(id, ".") == "" { // these would name another path
			out.Missing = append(out.Missing, id)
			continue
		}
		// To erase what is not there is no error of the API.
		path := a.user() + "/facts/" + url.PathEscape(id)
		err := a.call(ctx, http.MethodGet, path, nil, nil)
		if err == nil {
			err = a.call(ctx, http.MethodDelete, path, nil, nil)
		}
		var e *apiError
		switch {
		case errors.As(err, &e) && e.status == http.StatusNotFound:
			out.Missing = append(out.Missing, id)
		case err != nil && len(out.Erased) > 0:
			return out, fmt.Errorf("%w; these were erased before: %v", err, out.Erased)
		case err != nil:
			return out, err
		default:
			out.Erased = append(out.Erased, id)
		}
	}
	return out, nil
}

type factsIn struct {
	Query  string `json:"query,omitempty" jsonschema:"only facts with these words"`
	Topic  string `json:"topic,omitempty"`
	Kind   string `json:"kind,omitempty" jsonschema:"profile, preference, agreement, event or instruction"`
	Limit  int    `json:"limit,omitempty" jsonschema:"1 to 100; 20 by default"`
	Cursor string `json:"cursor,omitempty" jsonschema:"the next_cursor of the last page"`
}

type factsOut struct {
	Facts      []fact `json:"facts"`
	NextCursor string `json:"next_cursor,omitempty"`
}

func (a *API) listFacts(ctx context.Context, in factsIn) (out factsOut, err error) {
	out.Facts = []fact{}
	limit, err := checkLimit(in.Limit, defaultFacts, maxFacts)
	if err != nil {
		return out, err
	}
	if in.Query != "" {
		if in.Topic != "" || in.Kind != "" || in.Cursor != "" {
			return out, errors.New("give query alone, or topic, kind and cursor")
		}
		return a.findFacts(ctx, in.Query, limit)
	}
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"topic": in.Topic, "kind": in.Kind, "cursor": in.Cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	err = a.call(ctx, http.MethodGet, a.user()+"/facts?"+q.Encode(), nil, &out)
	return out, err
}

// findFacts searches facts by their words.
func (a *API) findFacts(ctx context.Context, query string, limit int) (out factsOut, err error) {
	out.Facts = []fact{}
	err = a.call(ctx, http.MethodPost, a.user()+"/facts/search", map[string]any{"query": query, "top_k": limit, "match": "words"}, &out)
	return out, err
}

type callIn struct {
	AgentID  string `json:"agent_id" jsonschema:"the call, from a hit of recall"`
	AfterSeq int64  `json:"after_seq,omitempty" jsonschema:"only turns after this place"`
	Cursor   string `json:"cursor,omitempty" jsonschema:"the next_cursor of the last page"`
	Limit    int    `json:"limit,omitempty" jsonschema:"1 to 200; 100 by default"`
}

type callOut struct {
	AgentID    string `json:"agent_id"`
	Turns      []turn `json:"turns"`
	NextCursor string `json:"next_cursor,omitempty" jsonschema:"set if there are more"`
}

type turn struct {
	Seq     int64  `json:"seq"`
	Role    string `json:"role" jsonschema:"user is the caller, assistant the agent"`
	Content string `json:"content" jsonschema:"what was said; of the assistant, what was heard"`
	At      string `json:"at"`
	Cut     bool   `json:"cut,omitempty" jsonschema:"the caller interrupted here"`
}

// entry is a message of the ledger.
type entry struct {
	Seq       int64
	Role      string
	Content   string
	Timestamp int64
	State     string
	InMemory  *bool `json:"in_memory"`
	Metadata  struct {
		Source      string
		Interrupted bool
	}
	Scope struct {
		UserID string `json:"user_id"`
	}
}

// recallable reports whether a message is what recall finds, too.
func (e *entry) recallable() bool {
	put := e.Role == "user" && (e.Metadata.Source == "command" || e.Metadata.Source == "silence")
	return e.State == "final" && (e.InMemory == nil || *e.InMemory) && e.Content != "" && (e.Role == "user" || e.Role == "assistant") && !put
}

// getCall returns the turns of a call that belong to the caller. It passes over pages without any,
// such as those of tools' messages, at most maxPages. A call of others is answered as one that does
// not exist.
func (a *API) getCall(ctx context.Context, in callIn) (out callOut, err error) {
	limit, err := checkLimit(in.Limit, defaultTurns, maxTurns)
	if err != nil {
		return out, err
	}
	unknown := fmt.Errorf("the caller has no call %.80q, or said nothing in it after this place", in.AgentID)
	if in.AgentID == "" {
		return out, unknown
	}
	names, err := a.names(ctx)
	if err != nil {
		return out, err
	}
	out = callOut{AgentID: in.AgentID, Turns: []turn{}, NextCursor: in.Cursor}
	from, own := url.Values{"after_seq": {strconv.FormatInt(max(in.AfterSeq, 0), 10)}, "limit": {strconv.Itoa(limit)}}, false
	for n := 0; n < maxPages && len(out.Turns) == 0 && (n == 0 || out.NextCursor != ""); n++ {
		found, err := a.addTurns(ctx, &out, names, from)
		var e *apiError
		if errors.As(err, &e) && e.status == http.StatusNotFound {
			return callOut{}, unknown
		}
		if err != nil {
			return callOut{}, err
		}
		own = own || found
	}
	if !own || len(out.Turns) == 0 && out.NextCursor == "" {
		return callOut{}, unknown
	}
	return out, nil
}

// addTurns adds the turns of the page at out.NextCursor, which it sets to the next one. It reports
// whether any message of the page belongs to one of the names.
func (a *API) addTurns(ctx context.Context, out *callOut, names []string, query url.Values) (own bool, err error) {
	var page struct {
		Messages   []entry `json:"messages"`
		NextCursor string  `json:"next_cursor"`
	}
	if out.NextCursor != "" {
		query.Set("cursor", out.NextCursor)
	}
	if err := a.call(ctx, http.MethodGet, "/v1/agents/"+url.PathEscape(out.AgentID)+"/messages?"+query.Encode(), nil, &page); err != nil {
		return false, err
	}
	out.NextCursor = page.NextCursor
	for _, m := range page.Messages {
		if !slices.Contains(names, m.Scope.UserID) {
			continue
		}
		own = true
		if m.recallable() {
			at := time.UnixMilli(m.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z")
			out.Turns = append(out.Turns, turn{Seq: m.Seq, Role: m.Role, Content: m.Content, At: at, Cut: m.Metadata.Interrupted})
		}
	}
	return own, nil
}

// names returns the caller's name and aliases. It fails if the caller must not be recalled.
func (a *API) names(ctx context.Context) ([]string, error) {
	var known struct {
		UserID  string `json:"user_id"`
		Aliases []string
		Consent struct{ Now string }
	}
	err := a.call(ctx, http.MethodGet, a.user(), nil, &known)
	var e *apiError
	if err != nil && (!errors.As(err, &e) || e.status != http.StatusNotFound) {
		return nil, err
	}
	if known.Consent.Now == "none" {
		return nil, errors.New("the caller does not allow calls to be recalled")
	}
	names := append(known.Aliases, a.User)
	if known.UserID != "" {
		names = append(names, known.UserID)
	}
	return names, nil
}

type knowledgeIn struct {
	Collection string `json:"collection" jsonschema:"the collection to search"`
	Query      string `json:"query" jsonschema:"a question or a few words"`
	Limit      int    `json:"limit,omitempty" jsonschema:"1 to 20; 5 by default"`
}

type knowledgeOut struct {
	Results []piece `json:"results" jsonschema:"best first"`
}

type piece struct {
	ID       string         `json:"id"`
	Content  string         `json:"content"`
	Score    float64        `json:"score"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

func (a *API) searchKnowledge(ctx context.Context, in knowledgeIn) (out knowledgeOut, err error) {
	out.Results = []piece{}
	if !slices.Contains(a.Knowledge, in.Collection) {
		return out, fmt.Errorf("collection: must be one of %s, not %.80q", strings.Join(a.Knowledge, ", "), in.Collection)
	}
	k, err := checkLimit(in.Limit, defaultPieces, maxPieces)
	if err != nil {
		return out, err
	}
	err = a.call(ctx, http.MethodPost, "/v1/vectors/"+url.PathEscape(in.Collection)+"/search", map[string]any{"query": in.Query, "k": k}, &out)
	return out, err
}
