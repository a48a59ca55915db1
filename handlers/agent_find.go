package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a search for calls.
const (
	defaultFound  = 50
	maxFound      = 500
	maxFindLabels = 8
	maxFindText   = 200
	maxFirstWord  = 3_600_000 // ms
	// maxLabelHeaders is how many labels the headers of a call may set.
	maxLabelHeaders = 16
)

// labelParam begins the parameters that name a label: label.line=sales.
const labelParam = "label."

// agentsFoundJSON is a page of calls.
type agentsFoundJSON struct {
	Agents     []agentJSON `json:"agents"`
	NextCursor string      `json:"next_cursor,omitempty"`
	// Total is how many match, nil if that was not asked for; with TotalMore there are more.
	Total     *int          `json:"total,omitempty"`
	TotalMore bool          `json:"total_more,omitzero"`
	Compared  *comparedJSON `json:"compared,omitempty"`
}

// comparedJSON is which calls an order other than by start has compared: the newest ones.
type comparedJSON struct {
	Calls int    `json:"calls"`
	All   bool   `json:"all"`
	Since string `json:"since,omitempty"` // the start of the oldest
}

// find serves GET /v1/agents: the calls of the project, ended ones too, newest first.
func (a agentAPI) find(r *http.Request) (any, error) {
	v := r.URL.Query()
	q, words, err := a.findQuery(r, v)
	if err != nil {
		return nil, err
	}
	glance, err := includeParam(v)
	if err != nil {
		return nil, err
	}
	page, err := a.memory.Agents.Find(r.Context(), q, words)
	if err != nil {
		return nil, err
	}
	out := agentsFoundJSON{Agents: make([]agentJSON, len(page.Heads)), NextCursor: page.Next.String()}
	if !q.NoTotal && (!q.Picks() || q.After == (memory.AgentPlace{})) {
		out.Total, out.TotalMore = &page.Total, page.Truncated
	}
	if q.Order != memory.ByStart {
		out.Compared = &comparedJSON{page.Compared, page.ComparedAll, shownTime(page.ComparedFromMS)}
	}
	for i := range page.Heads {
		out.Agents[i] = a.agentJSON(&page.Heads[i])
	}
	if glance {
		err = a.glances(r.Context(), page.Heads, out.Agents)
	}
	return out, err
}

func (a agentAPI) findQuery(r *http.Request, v url.Values) (q memory.AgentQuery, words string, err error) {
	q = memory.AgentQuery{Project: projectOf(r), Channel: v.Get("channel"), Name: v.Get("name"), Platform: v.Get("platform")}
	if q.Limit, err = intParam(v, "limit", defaultFound, 1, maxFound); err != nil {
		return q, "", err
	}
	if q.After, err = memory.ParsePlace(v.Get("cursor")); err != nil {
		return q, "", err
	}
	if q.OldestFirst, err = orderParam(v); err != nil {
		return q, "", err
	}
	if q.FromMS, q.ToMS, err = spanParams(v, a.now()); err != nil {
		return q, "", err
	}
	if q.Statuses, err = statusParam(v); err != nil {
		return q, "", err
	}
	if q.Labels, err = labelParams(v); err != nil {
		return q, "", err
	}
	if q.Scores, err = scoreParams(v); err != nil {
		return q, "", err
	}
	if q.Checks, err = checkParam(v); err != nil {
		return q, "", err
	}
	count := false
	for name, set := range map[string]*bool{"interrupted": &q.Interrupted, "failed": &q.Failed, "ghosts": &q.Ghosts, "tool_without_result": &q.ToolOpen, "count": &count} {
		if *set, err = trueParam(v, name); err != nil {
			return q, "", err
		}
	}
	q.NoTotal = !count
	if err := pickParams(v, &q); err != nil {
		return q, "", err
	}
	if user := v.Get("user_id"); user != "" {
		if user, err = callerName("user_id", user); err != nil {
			return q, "", err
		}
		if _, q.Users, err = a.callers.Resolve(r.Context(), q.Project, user); err != nil {
			return q, "", err
		}
	}
	words = strings.TrimSpace(v.Get("q"))
	if n := utf8.RuneCountInString(words); n > maxFindText {
		return q, "", fault.At(fault.Invalid, "q", "has %d characters; at most %d are allowed", n, maxFindText)
	}
	switch {
	case words == "":
	case count:
		return q, "", fault.At(fault.Invalid, "count", "must be left out with q: a search for a text reads calls until the page is full")
	case q.Order != memory.ByStart:
		return q, "", fault.At(fault.Invalid, "sort", "must be started with q: a search for a text reads calls in that order")
	}
	return q, words, nil
}

// trueParam reads a parameter that is true or left out.
func trueParam(v url.Values, name string) (bool, error) {
	switch value := v.Get(name); value {
	case "":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fault.At(fault.Invalid, name, "must be true, or left out, not %q", text.Clip(value, 20))
	}
}

// pickParams reads the parameters that choose calls by what their tallies say.
func pickParams(v url.Values, q *memory.AgentQuery) error {
	if s := v.Get("unheard_min"); s != "" {
		share, err := strconv.ParseFloat(s, 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return fault.At(fault.Invalid, "unheard_min", "must be a share of the words from 0 to 1, such as 0.5, not %q", text.Clip(s, 20))
		}
		q.UnheardMin = share
	}
	slowest, err := intParam(v, "first_word_min", 0, 0, maxFirstWord)
	if err != nil {
		return err
	}
	q.FirstWordMS = int64(slowest)
	switch sort := v.Get("sort"); sort {
	case "", "started":
	case string(memory.ByUnheard), string(memory.ByFirstWord):
		q.Order = memory.AgentOrder(sort)
	default:
		return fault.At(fault.Invalid, "sort", "must be started, %s or %s, not %q", memory.ByUnheard, memory.ByFirstWord, text.Clip(sort, 20))
	}
	if q.Order == memory.ByStart && q.After.Key != 0 {
		return fault.At(fault.Invalid, "cursor", "is of a list with another sort")
	}
	return nil
}

// namedIn returns the label or the score that a parameter is about, by what it begins with: with
// "label.", label.line and label[line], which generated clients send, are about line.
func namedIn(param, prefix string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(param, prefix); ok {
		return name, true
	}
	kind := strings.TrimSuffix(prefix, ".")
	if name, ok = strings.CutPrefix(param, kind+"["); ok {
		return strings.TrimSuffix(name, "]"), strings.HasSuffix(name, "]")
	}
	return "", param == kind
}

// labelParams reads the labels that a call must have.
func labelParams(v url.Values) (map[string]string, error) {
	out := map[string]string{}
	for param, values := range v {
		name, ok := namedIn(param, labelParam)
		if !ok {
			continue
		}
		switch {
		case name == "":
			return nil, fault.At(fault.Invalid, param, "must name a label, as in %sline=sales", labelParam)
		case len(values) > 1:
			return nil, fault.At(fault.Invalid, text.Clip(param, 80), "is given %d times; a label has one value", len(values))
		case len(name)+len(values[0]) > memory.MaxTag:
			return nil, fault.At(fault.Invalid, text.Clip(param, 80), "must have at most %d bytes, name and value together", memory.MaxTag)
		}
		out[name] = values[0]
	}
	if len(out) > maxFindLabels {
		return nil, fault.At(fault.Invalid, labelParam, "may be given for %d labels, not %d", maxFindLabels, len(out))
	}
	return out, nil
}

// labelHeader begins the headers that set the labels of an agent that joins by itself. Names of
// headers have no case, so the labels' names are in lower case.
const labelHeader = "X-Heardlog-Label-"

// labelHeaders reads the labels of a call.
func labelHeaders(r *http.Request) (map[string]string, error) {
	var out map[string]string
	for header, values := range r.Header {
		name, ok := strings.CutPrefix(header, labelHeader)
		if !ok {
			continue
		}
		value, err := text.CleanKey(header, values[0], memory.MaxTag)
		switch {
		case err != nil:
			return nil, err
		case len(out) == maxLabelHeaders:
			return nil, fault.At(fault.Invalid, labelHeader+"*", "may be given for %d labels", maxLabelHeaders)
		case out == nil:
			out = map[string]string{}
		}
		out[strings.ToLower(name)] = value
	}
	return out, nil
}

// statusParam reads the words of statuses, in upper or lower case, with commas.
func statusParam(v url.Values) (out []memory.Status, err error) {
	for _, word := range listParam(v, "status") {
		known := false
		var names []string
		for st := range memory.Statuses {
			name := memory.Status(st).String()
			names = append(names, strings.ToLower(name))
			if strings.EqualFold(name, word) {
				out, known = append(out, memory.Status(st)), true
			}
		}
		if !known {
			return nil, fault.At(fault.Invalid, "status", "must be one of %s, or several with commas, not %s", strings.Join(names, ", "), strconv.Quote(text.Clip(word, 20)))
		}
	}
	return out, nil
}

// orderParam reports whether a list is wanted oldest first.
func orderParam(v url.Values) (oldestFirst bool, err error) {
	switch order := v.Get("order"); order {
	case "", "desc":
		return false, nil
	case "asc":
		return true, nil
	default:
		return false, fault.At(fault.Invalid, "order", "must be desc (newest first) or asc, not %q", text.Clip(order, 20))
	}
}

// spanParams reads the parameters since and until.
func spanParams(v url.Values, now time.Time) (from, to int64, err error) {
	return spanOf("", v.Get("since"), v.Get("until"), now)
}

// spanOf reads since and until in Unix ms, 0 for none. at is what stands before their names.
func spanOf(at, since, until string, now time.Time) (from, to int64, err error) {
	if from, err = pastTime(at+"since", since, now); err == nil {
		to, err = pastTime(at+"until", until, now)
	}
	if err == nil && to != 0 && to < from {
		err = fault.At(fault.Invalid, at+"until", "must not be before %ssince", at)
	}
	return from, to, err
}

// pastTime reads a time in Unix ms, "" as 0: RFC 3339, or a duration before now such as 90m, 24h or
// 7d.
func pastTime(field, s string, now time.Time) (int64, error) {
	if s == "" {
		return 0, nil
	}
	// A plus sign that was not escaped arrives as a space.
	if t, err := time.Parse(time.RFC3339, strings.Replace(s, " ", "+", 1)); err == nil && t.UnixMilli() > 0 {
		return t.UnixMilli(), nil
	}
	ago, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); n > maxPastDays {
			err = strconv.ErrRange
		}
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago <= 0 || now.Add(-ago).UnixMilli() <= 0 {
		return 0, fault.At(fault.Invalid, field, "must be a time such as 2026-11-23T09:00:00Z, or how long ago, such as 90m, 24h or 7d, not %s", strconv.Quote(text.Clip(s, 40)))
	}
	return now.Add(-ago).UnixMilli(), nil
}

// maxPastDays bounds how long ago a time may be, in days.
const maxPastDays = 36500
