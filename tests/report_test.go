package tests

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// figuresOf is what some calls did.
type figuresOf struct {
	Calls, Turns, Answers, Interruptions, Ghosts, Failures, Words int
	Unheard                                                       int                                `json:"unheard_words"`
	UnheardTokens                                                 int                                `json:"unheard_tokens"`
	ToolCalls                                                     int                                `json:"tool_calls"`
	FirstToken                                                    struct{ Count, P50, P95, P99 int } `json:"first_token_ms"`
	Length                                                        struct{ Count, P50 int }           `json:"call_length_ms"`
	Cost                                                          costJSON
	FailedAt                                                      map[string]int `json:"failures_by_upstream"`
	Scores                                                        []struct {
		Name, Value string
		Count       int
		Mean        *float64
	}
}

type reportOf struct {
	Since, Until time.Time
	Pending      int `json:"pending_calls"`
	Totals       figuresOf
	Before       *struct {
		Since, Until time.Time
		Totals       figuresOf
	}
	Points []struct {
		StartAt time.Time `json:"start_at"`
		figuresOf
	}
	Groups []struct {
		Value  string
		Totals figuresOf
		Before *figuresOf
		Points []struct{ figuresOf }
	}
}

func (s *server) report(query string) (r reportOf) {
	s.t.Helper()
	s.get(v1 + "/reports" + query).ok(&r)
	return r
}

// reported makes a call of one answer and ends it.
func (s *server) reported(name string, more map[string]any, answer string, interrupted bool) string {
	s.t.Helper()
	id := s.join(name, more)
	s.ask(id, answer, user("Count."))
	if interrupted {
		s.interrupt(id, `{"heard_ms":0}`).ok(nil)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	return id
}

// TestReports: calls are counted once when they have ended, by their values and by two of them;
// late evidence changes the counts, a restart does not, and an erasure leaves them.
func TestReports(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_LLM_PRICES=fake-1=100:1000")
	label := func(campaign, line string) map[string]any {
		return map[string]any{"labels": map[string]string{"campaign": campaign, "line": line}}
	}
	const answer = "one two three four five six seven eight"
	s.reported("desk", label("spring", "a"), answer, false)
	cut := s.reported("desk", label("autumn", "a"), answer, true)
	s.reported("night", label("autumn", "b"), answer, false)
	running := s.join("night", nil)
	s.ask(running, answer, user("Count."))
	s.post(agent(cut, "/scores"), `{"name":"stars","value":4}`).is(http.StatusCreated, nil)
	s.post(agent(cut, "/scores"), `{"name":"tone","value":"cold"}`).is(http.StatusCreated, nil)

	check := func(when string) {
		t.Helper()
		r := s.report("?since=24h&interval=hour&group_by=label.campaign")
		c := r.Totals
		if c.Calls != 3 || c.Turns != 3 || c.Answers != 3 || c.Interruptions != 1 || c.Words != 24 || c.Unheard != 8 || c.FirstToken.Count != 3 || c.Length.Count != 3 || c.Cost.USD <= 0 || c.Cost.Unheard <= 0 || r.Pending != 0 {
			t.Errorf("%s: totals %+v, pending %d", when, c, r.Pending)
		}
		if len(c.Scores) != 2 || c.Scores[0].Name != "stars" || *c.Scores[0].Mean != 4 || c.Scores[1].Value != "cold" {
			t.Errorf("%s: scores %+v", when, c.Scores)
		}
		if len(r.Groups) != 2 || r.Groups[0].Value != "autumn" || r.Groups[0].Totals.Calls != 2 || r.Groups[0].Totals.Interruptions != 1 || r.Groups[1].Totals.Calls != 1 {
			t.Errorf("%s: groups %+v", when, r.Groups)
		}
		calls := 0
		for _, p := range r.Points {
			calls += p.Calls
		}
		if calls != 3 || len(r.Groups[0].Points) == 0 {
			t.Errorf("%s: %d calls in the points", when, calls)
		}
	}
	check("at first")
	for query, want := range map[string]int{
		"?label.campaign=autumn": 2, "?label.campaign=autumn&label.line=a": 1, "?label.line=a": 2, "?name=desk": 2, "?name=desk&label.campaign=autumn": 1, "?model=fake-1": 3,
		"?upstream=primary": 3, "?upstream=primary&model=fake-1": 3, "?model=other": 0, "?platform=vapi": 0, "?since=2h&until=1h": 0, "?label[line]=b&interval=day": 1,
	} {
		if got := s.report(query).Totals.Calls; got != want {
			t.Errorf("%s counts %d calls, not %d", query, got, want)
		}
	}
	if r := s.report("?label.campaign=autumn&group_by=name"); len(r.Groups) != 2 || r.Groups[0].Totals.Calls != 1 {
		t.Errorf("names of a campaign: %+v", r.Groups)
	}
	r := s.report("?since=1h&compare=previous&group_by=model")
	if r.Before == nil || r.Before.Totals.Calls != 0 || !r.Before.Until.Equal(r.Since) || r.Until.Sub(r.Since) != r.Before.Until.Sub(r.Before.Since) || len(r.Groups) != 1 || r.Groups[0].Before == nil {
		t.Errorf("compared: %+v", r)
	}

	s = s.again()
	check("after a restart")
	s.interrupt(cut, `{"turn_id":0,"heard":"`+answer+`"}`).ok(nil) // better evidence: all was heard
	if c := s.report("?label.campaign=autumn").Totals; c.Unheard != 0 || c.Interruptions != 0 || c.Answers != 2 || c.UnheardTokens != 0 {
		t.Errorf("after late evidence: %+v", c)
	}
	s.post(agent(running, "/leave"), nil).ok(nil)
	if r := s.report(""); r.Totals.Calls != 4 {
		t.Errorf("after the last call: %+v", r.Totals)
	}
	s.do(http.MethodDelete, agent(cut), nil).is(http.StatusNoContent, nil)
	for range 2 {
		if r := s.report(""); r.Totals.Calls != 4 || r.Totals.Answers != 4 || r.Pending != 0 {
			t.Errorf("after an erasure: %+v", r.Totals)
		}
	}
	s.do(http.MethodDelete, v1+"/projects/default?confirm=default", nil).ok(nil)
	if r := s.report("?group_by=label.campaign"); r.Totals.Calls != 0 || len(r.Groups) != 0 {
		t.Errorf("after the project was erased: %+v", r)
	}
}

// TestReportsMoved: an import keeps the reports, those of erased calls too, and counts no call
// twice.
func TestReportsMoved(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	from := sqlite.Options{Path: filepath.Join(t.TempDir(), "from.db")}
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE=sqlite:"+from.Path)
	gone, kept := s.reported("a", nil, "one two three", true), s.reported("b", nil, "one two three", true)
	if r := s.report(""); r.Totals.Calls != 2 {
		t.Fatalf("%+v", r.Totals)
	}
	s.do(http.MethodDelete, agent(gone), nil).is(http.StatusNoContent, nil)
	s.reported("c", nil, "one two three", true) // may not be counted when the server stops
	s.stop()
	r, err := sqlite.OpenReader(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	var lines bytes.Buffer
	if _, err := export.Write(t.Context(), &lines, r, export.Scope{}, true, nil); err != nil {
		t.Fatal(err)
	}
	to := sqlite.Options{Path: filepath.Join(t.TempDir(), "to.db")}
	m, err := sqlite.OpenImporter(to)
	if err != nil {
		t.Fatal(err)
	}
	all := lines.String()
	if _, _, err = export.Read(t.Context(), &lines, m, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, "HEARDLOG_STORE=sqlite:"+to.Path)
	if c := s.report("").Totals; c.Calls != 3 || c.Words != 9 || c.Unheard != 9 || c.Interruptions != 3 {
		t.Errorf("after an import: %+v", c)
	}
	mixed := sqlite.Options{Path: filepath.Join(t.TempDir(), "mixed.db")}
	other := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE=sqlite:"+mixed.Path)
	other.reported("own", nil, "one two", true)
	if r := other.report(""); r.Totals.Calls != 1 {
		t.Fatalf("%+v", r.Totals)
	}
	other.stop()
	if m, err = sqlite.OpenImporter(mixed); err != nil {
		t.Fatal(err)
	}
	found, err := export.FindClashes(t.Context(), strings.NewReader(all), m, 10)
	if err != nil || found.Total != 0 || !found.Reports {
		t.Fatalf("%+v, %v", found, err)
	}
	if _, _, err := export.Read(t.Context(), strings.NewReader(all), export.Recount(m), nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	other = start(t, "HEARDLOG_STORE=sqlite:"+mixed.Path)
	if c := other.report("").Totals; c.Calls != 3 || c.Words != 8 || c.Interruptions != 3 {
		t.Errorf("after an import beside reports of its own: %+v", c)
	}
	s.interrupt(kept, `{"turn_id":0,"heard":"one two three"}`).ok(nil)
	if c := s.report("").Totals; c.Calls != 3 || c.Unheard != 6 || c.Interruptions != 2 {
		t.Errorf("after late evidence: %+v", c)
	}
}

// TestReportRefusals: what a report cannot answer is refused with the name of the parameter.
func TestReportRefusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	for query, field := range map[string]string{
		"interval=week": "interval", "group_by=colour": "group_by", "group_by=label.": "group_by", "compare=never": "compare", "since=401d": "since", "since=32d&interval=hour": "interval",
		"platform=vapi&group_by=platform": "group_by", "platform=vapi&model=x&group_by=name": "name", "format=xml": "format", "since=1h&until=2h": "until",
		"q=refund": "q", "status=failed": "status", "user_id=anna": "user_id", "channel=c": "channel", "interrupted=true": "interrupted", "score.x=1": "score.x",
		"label.x=" + strings.Repeat("x", 200): "label.x", "label.=x": "label.",
	} {
		s.get(v1+"/reports?"+query).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
}

// TestReportCSV: a report as CSV has a line for each point of each group, and no formulas.
func TestReportCSV(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	s.reported("a", map[string]any{"labels": map[string]string{"line": "=1+1"}}, "one two", false)
	s.reported("b", map[string]any{"labels": map[string]string{"line": "plain, with a comma"}}, "one two", false)
	lines, err := csv.NewReader(strings.NewReader(string(s.get(v1 + "/reports?format=csv&interval=day&group_by=" + url.QueryEscape("label.line")).ok(nil).body))).ReadAll()
	if err != nil || len(lines) != 3 || lines[0][1] != "label.line" || lines[1][1] != "'=1+1" || lines[2][1] != "plain, with a comma" || lines[1][2] != "1" {
		t.Errorf("%v, %q", err, lines)
	}
	lines, err = csv.NewReader(strings.NewReader(string(s.get(v1 + "/reports?format=csv").ok(nil).body))).ReadAll()
	if err != nil || len(lines) != 2 || lines[1][2] != "2" {
		t.Errorf("%v, %q", err, lines)
	}
}
