package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fact is a fact in answers.
type fact struct {
	ID, Content, Kind, State, Reason, By string
	Topics                               []string
	Confidence                           float64
	Supersedes                           string
	SupersededBy                         string `json:"superseded_by"`
	LastSeenAt                           string `json:"last_seen_at"`
	CreatedAt                            string `json:"created_at"`
	Source                               *struct {
		AgentID string `json:"agent_id"`
		Quote   string
		Heard   string
	}
}

type factList struct {
	Facts      []fact
	Total      int
	NextCursor string `json:"next_cursor"`
	Block      string
	Decayed    int
	Dropped    []fact
	Rejected   []struct {
		Index                   int
		Reason, Detail, Content string
	}
	Prompt []struct{ Role, Content string }
}

func (l factList) texts() []string {
	out := []string{}
	for _, f := range l.Facts {
		out = append(out, f.Content)
	}
	return out
}

func factsPath(user string, more ...string) string {
	return v1 + "/users/" + url.PathEscape(user) + "/facts" + strings.Join(more, "")
}

// addFact stores a fact of a caller.
func (s *server) addFact(user, body string, headers ...string) fact {
	s.t.Helper()
	got := s.post(factsPath(user), body, headers...)
	if got.status != http.StatusCreated {
		s.t.Fatalf("%s: %d %s", body, got.status, got.body)
	}
	var f fact
	if err := json.Unmarshal(got.body, &f); err != nil {
		s.t.Fatal(err)
	}
	if loc := got.header.Get("Location"); loc != factsPath(user, "/", url.PathEscape(f.ID)) {
		s.t.Errorf("Location %q", loc)
	}
	return f
}

func (s *server) facts(user, query string, headers ...string) factList {
	s.t.Helper()
	var out factList
	s.get(factsPath(user, query), headers...).ok(&out)
	return out
}

// TestFacts is the life of facts over HTTP, across a restart.
func TestFacts(t *testing.T) {
	t.Parallel()
	s := start(t)
	const u = "anna/küche" // an ID that must be escaped
	tea := s.addFact(u, `{"content":"Likes tea","topics":["Drinks"],"confidence":0.7,"kind":"preference"}`)
	dog := s.addFact(u, `{"id":"dog 1","content":"Has a dog","confidence":0.5,"valid_from":"2026-01-01T00:00:00Z","valid_to":"2099-01-01T00:00:00+01:00"}`)
	if tea.Confidence != .7 || tea.State != "active" || tea.By != "api" || dog.ID != "dog 1" || len(tea.CreatedAt) != len("2026-11-23T09:12:01.004Z") {
		t.Errorf("%+v, %+v", tea, dog)
	}
	key := []string{"Idempotency-Key", "k1"}
	once := s.addFact(u, `{"content":"Plays chess","kind":"profile"}`, key...)
	var again fact
	if s.post(factsPath(u), `{"content":"Plays chess","kind":"profile"}`, key...).ok(&again); again.ID != once.ID {
		t.Errorf("%+v, then %+v", once, again)
	}
	s.post(factsPath(u), `{"content":"Plays go"}`, key...).refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another fact")

	if got := s.facts(u, ""); !slices.Equal(got.texts(), []string{"Plays chess", "Has a dog", "Likes tea"}) || got.Total != 3 {
		t.Errorf("%+v", got)
	}
	var paged []string
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		page := s.facts(u, "?limit=1&cursor="+url.QueryEscape(cursor))
		paged, cursor = append(paged, page.texts()...), page.NextCursor
	}
	if !slices.Equal(paged, []string{"Plays chess", "Has a dog", "Likes tea"}) {
		t.Errorf("pages: %q", paged)
	}
	for query, want := range map[string][]string{
		"?topic=drinks": {"Likes tea"}, "?topic=drink": {}, "?kind=profile": {"Plays chess", "Has a dog"}, "?state=draft": {}, "?state=active,draft&kind=preference": {"Likes tea"},
		"?as_of=2026-02-01T00:00:00Z": {"Has a dog"}, "?state=all": {"Plays chess", "Has a dog", "Likes tea"},
	} {
		if got := s.facts(u, query); !slices.Equal(got.texts(), want) {
			t.Errorf("%s: %q, want %q", query, got.texts(), want)
		}
	}
	s.get(factsPath(u, "?kind=x")).refused(http.StatusBadRequest, "InvalidFieldValue", `kind: must be one of profile, preference, agreement, event, instruction, not "x"`)
	s.get(factsPath(u, "?state=x")).refused(http.StatusBadRequest, "InvalidFieldValue", `state: must be all, or one or more of draft, active, superseded, withdrawn, expired, not "x"`)
	search := func(body string) []string {
		t.Helper()
		var out factList
		s.post(factsPath(u, "/search"), body).ok(&out)
		return out.texts()
	}
	for body, want := range map[string][]string{
		``: {"Plays chess", "Likes tea", "Has a dog"}, `{"query":"DRINK"}`: {"Likes tea"}, `{"query":"tea dog"}`: {}, `{"query":"tea or dogs?","match":"words"}`: {"Likes tea", "Has a dog"},
		`{"top_k":1}`: {"Plays chess"}, `{"state":["superseded"]}`: {}, `{"kind":"preference","as_of":"2099-06-01T00:00:00Z"}`: {"Likes tea"},
	} {
		if got := search(body); !slices.Equal(got, want) {
			t.Errorf("search %s: %q, want %q", body, got, want)
		}
	}
	block := "## What I remember about you:\n- Plays chess (confidence: high)\n- Likes tea (confidence: medium)"
	if got := s.facts(u, "/context?top_k=2"); got.Block != block || !slices.Equal(got.texts(), []string{"Plays chess", "Likes tea"}) {
		t.Errorf("%+v", got)
	}
	if got := s.facts(u, "/context?query="+url.QueryEscape("What do you know of ships?")); got.Block != "" || len(got.Facts) != 0 {
		t.Errorf("%+v", got)
	}

	var f fact
	s.post(factsPath(u, "/", tea.ID, "/reinforce"), `{"cause":"said again"}`).ok(&f)
	if f.Confidence != .8 || f.LastSeenAt < tea.LastSeenAt {
		t.Errorf("%+v", f)
	}
	s.post(factsPath(u, "/", tea.ID, "/decay"), nil).ok(&f)
	if f.Confidence != .64 {
		t.Errorf("%+v", f)
	}
	change := s.do(http.MethodPatch, factsPath(u, "/", tea.ID), `{"content":"Likes green tea","cause":"asked"}`).ok(&f)
	if f.Supersedes != tea.ID || f.Content != "Likes green tea" || f.Kind != "preference" || f.Confidence != .64 {
		t.Errorf("%s", change.body)
	}
	s.do(http.MethodPatch, factsPath(u, "/", tea.ID), `{"content":"x"}`).refused(http.StatusConflict, "TaskConflict", "superseded")
	var kept fact
	s.do(http.MethodPatch, factsPath(u, "/", f.ID), `{"confidence":0,"valid_to":""}`).ok(&kept)
	if kept.ID != f.ID || kept.Confidence != 0 {
		t.Errorf("%+v", kept)
	}
	var h struct {
		ID     string
		Events []struct {
			At, Event, Cause, State string
			Confidence              float64
		}
	}
	s = s.again()
	s.get(factsPath(u, "/", tea.ID, "/history")).ok(&h)
	events := []string{}
	for _, e := range h.Events {
		events = append(events, fmt.Sprintf("%s %s %s %v", e.Event, e.Cause, e.State, e.Confidence))
	}
	if d := cmp.Diff([]string{"added  active 0.7", "reinforced said again active 0.8", "decayed  active 0.64", "superseded asked superseded 0.64"}, events); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	s.post(factsPath(u, "/", f.ID, "/undo"), nil).ok(&f)
	if f.ID != tea.ID || f.State != "active" || f.SupersededBy != "" {
		t.Errorf("%+v", f)
	}
	var out factList
	s.post(factsPath(u, "/decay"), `{"factor":0.5,"drop_below":0.3,"dry_run":true}`).ok(&out)
	if out.Decayed != 2 || len(out.Dropped) != 1 || out.Dropped[0].Content != "Has a dog" {
		t.Errorf("%+v", out)
	}
	s.post(factsPath(u, "/decay"), `{"factor":0.5,"drop_below":0.3}`).ok(nil)
	if got := search(``); !slices.Equal(got, []string{"Plays chess", "Likes tea"}) {
		t.Errorf("after the decay: %q", got)
	}
	for range 2 {
		if got := s.do(http.MethodDelete, factsPath(u, "/", tea.ID), nil); got.status != http.StatusNoContent || len(got.body) != 0 {
			t.Errorf("delete: %d %s", got.status, got.body)
		}
	}
	s.get(factsPath(u, "/", tea.ID)).refused(http.StatusNotFound, "TaskNotFound", "fact")
	for range 2 {
		if got := s.do(http.MethodDelete, factsPath(u), nil); got.status != http.StatusNoContent {
			t.Errorf("clear: %d %s", got.status, got.body)
		}
	}
	if got := s.facts(u, "?state=all"); got.Total != 0 {
		t.Errorf("%+v", got)
	}
}

// TestFactsRefused: each call names what is wrong, and changes nothing of a fact that has ended.
func TestFactsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	f := s.addFact("anna", `{"content":"A"}`)
	const missing = "/none"
	for _, c := range []struct{ method, path, body, words string }{
		{"GET", "?limt=1", "", "limt"}, {"GET", "?state=old", "", "state"}, {"GET", "?kind=x", "", "kind"}, {"GET", "?as_of=now", "", "as_of"}, {"GET", "?cursor=x", "", "cursor"},
		{"GET", "?limit=1001", "", "limit"}, {"GET", "/context?top_k=101", "", "top_k"}, {"GET", "/context?x=1", "", "x"}, {"GET", "/context?budget_tokens=-1", "", "budget_tokens"},
		{"GET", "/context?query=" + strings.Repeat("x", 4001), "", "query"},
		{"POST", "", `{"contents":"x"}`, "contents"}, {"POST", "", `{"content":"x","state":"expired"}`, "state"}, {"POST", "", `{"content":"x","by":"me"}`, "by"},
		{"POST", "", `{"content":"x","valid_to":"soon"}`, "valid_to"}, {"POST", "", `{"content":"My PIN is 4711"}`, "secrets"}, {"POST", "", `{"content":"x","confidence":1.5}`, "confidence"},
		{"POST", "/search", `{"top_k":0}`, "top_k"}, {"POST", "/search", `{"match":"regexp"}`, "match"}, {"POST", "/search", `{"state":["x"]}`, "state"},
		{"POST", "/decay", `{"factor":2}`, "factor"}, {"POST", "/decay", `{"drop_below":-1}`, "drop_below"}, {"POST", "/extract", `{}`, "answer"}, {"POST", "/extract", `{"answer":"[{"}`, "answer"},
		{"PATCH", "/" + f.ID, `{"content":" "}`, "content"}, {"PATCH", "/" + f.ID, `{"content":""}`, "content"}, {"PATCH", "/" + f.ID, `{"confidence":-1}`, "confidence"}, {"PATCH", "/" + f.ID, `{"kind":"x"}`, "kind"}, {"PATCH", "/" + f.ID, `{"valid_from":"x"}`, "valid_from"},
		{"POST", "/" + f.ID + "/decay", `{"factor":-1}`, "factor"}, {"POST", "/" + f.ID + "/reinforce", `{"why":1}`, "why"}, {"POST", "/" + f.ID + "/accept", `{"cause":"` + strings.Repeat("x", 65) + `"}`, "cause"},
		{"POST", "/" + f.ID + "/undo", `[]`, ""}, {"DELETE", "?topic=x", "", "topic"},
	} {
		got := s.do(c.method, factsPath("anna", c.path), c.body)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), c.words) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	long := strings.Repeat("u", 257)
	for _, c := range factCalls {
		s.do(c.method, factsPath(long, c.path), c.body).refused(http.StatusBadRequest, "InvalidFieldValue", "user")
		if c.one {
			s.do(c.method, factsPath("anna", strings.Replace(c.path, "/f", missing, 1)), c.body).refused(http.StatusNotFound, "TaskNotFound", "none")
		}
	}
	s.post(factsPath("anna"), `{"content":"x","source":{"agent_id":"none","from_seq":1,"to_seq":1,"quote":"x","speaker":"user"}}`).refused(http.StatusNotFound, "TaskNotFound")
	s.post(factsPath("anna", "/extract"), `{"agent_id":"none","answer":"[]"}`).refused(http.StatusNotFound, "TaskNotFound")
	s.do("PATCH", factsPath("anna", "/", f.ID), `{"content":"B"}`).ok(nil)
	for _, act := range []string{"/reinforce", "/decay", "/accept"} {
		s.post(factsPath("anna", "/", f.ID, act), nil).refused(http.StatusConflict, "TaskConflict", "superseded")
	}
	s.post(factsPath("anna", "/", s.addFact("anna", `{"content":"C"}`).ID, "/undo"), nil).refused(http.StatusConflict, "TaskConflict", "supersede")
}

// factCalls is every call about facts with a body that would be taken. one is set for calls that
// need the fact f to be there.
var factCalls = []struct {
	method, path, body string
	one                bool
}{
	{"GET", "", "", false},
	{"POST", "", `{"content":"x"}`, false},
	{"POST", "/search", `{}`, false},
	{"POST", "/decay", `{}`, false},
	{"POST", "/extract", `{"answer":"[]"}`, false},
	{"GET", "/context", "", false},
	{"GET", "/f", "", true},
	{"PATCH", "/f", `{"confidence":0.5}`, true},
	{"DELETE", "/f", "", false},
	{"GET", "/f/history", "", true},
	{"POST", "/f/reinforce", `{}`, true},
	{"POST", "/f/accept", `{}`, true},
	{"POST", "/f/undo", `{}`, true},
	{"POST", "/f/decay", `{}`, true},
	{"DELETE", "", "", false},
}

// TestFactsAccess: calls about facts need the same access as all others, and one project never sees
// another's.
func TestFactsAccess(t *testing.T) {
	t.Parallel()
	closed, open, limited, small := start(t, twoTenants), start(t), start(t, "HEARDLOG_RATE_LIMIT=1"), start(t, "HEARDLOG_MAX_BODY=1024")
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	closed.addFact("anna", `{"id":"f","content":"Alice's"}`, alice...)
	for _, c := range factCalls {
		path := factsPath("anna", c.path)
		closed.from("127.0.3.1").do(c.method, path, c.body).refused(http.StatusUnauthorized, "InvalidPermission")
		open.do(c.method, path, c.body, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission", "evil.example")
		for limited.do(c.method, path, c.body).status != http.StatusTooManyRequests {
		}
		if c.body != "" {
			small.do(c.method, path, strings.Repeat(" ", 2000)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
		}
		got := closed.do(c.method, path, c.body, bob...)
		if c.one && got.status != http.StatusNotFound || strings.Contains(string(got.body), "Alice") {
			t.Errorf("%s %s by bob: %d %s", c.method, c.path, got.status, got.body)
		}
	}
	if got := closed.facts("anna", "", alice...); !slices.Equal(got.texts(), []string{"Alice's"}) {
		t.Errorf("after bob's calls: %q", got.texts())
	}
}

// TestFactsQuota: the limit of active facts holds for new ones, accepted drafts and changes.
func TestFactsQuota(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_STORE=memory:")
	for i := range 1000 {
		s.addFact("anna", fmt.Sprintf(`{"content":"fact %d"}`, i))
	}
	s.post(factsPath("anna"), `{"content":"x"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1000")
	draft := s.addFact("anna", `{"content":"y","state":"draft"}`)
	s.post(factsPath("anna", "/", draft.ID, "/accept"), nil).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "1000")
	s.do("DELETE", factsPath("anna", "/", s.facts("anna", "?limit=1").Facts[0].ID), nil)
	var f fact
	if s.post(factsPath("anna", "/", draft.ID, "/accept"), nil).ok(&f); f.State != "active" {
		t.Errorf("%+v", f)
	}
}

// TestFactsConsent: facts of a caller who does not allow them are not shown, and models get no
// tools. The export has them, they can be deleted, and they are back once the caller allows it.
func TestFactsConsent(t *testing.T) {
	t.Parallel()
	llm := &scripted{}
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_LLM_URL="+srv.URL+"/v1")
	f, gone := s.addFact("anna", `{"content":"Sings in a choir"}`), s.addFact("anna", `{"content":"Has a canoe"}`)
	id := s.joinAs("new", remembering("anna", `{"tools":true}`))
	mcp := s.overHTTP("X-Heardlog-User", "anna")
	paths := []string{"", "/context", "/context?query=choir", "/" + f.ID, "/" + f.ID + "/history"}
	seen := func() (out string) {
		for _, path := range paths {
			out += string(s.get(factsPath("anna", path)).body)
		}
		out += string(s.post(factsPath("anna", "/search"), `{"query":"choir"}`).body)
		for _, args := range []map[string]any{{}, {"query": "choir"}} {
			var list any
			mcp.call("list_facts", args, &list)
			out += fmt.Sprint(list)
		}
		llm.script(chunks("b", `{"role":"assistant","content":"Hm."}`, `{}|stop`))
		s.post(agent(id, "/chat/completions"), `{"stream":true,"messages":[{"role":"user","content":"What is my choir?"}]}`).ok(nil)
		return out + llm.bodies[len(llm.bodies)-1]
	}
	if got := seen(); strings.Count(got, "Sings") < 7 || !strings.Contains(got, `"name":"forget"`) {
		t.Errorf("with consent: %s", got)
	}
	for _, consent := range []string{"turns", "none"} {
		s.putCaller("anna", "consent", `{"remember":"`+consent+`"}`)
		if got := seen(); strings.Contains(got, "Sings") || strings.Contains(got, `"name":"forget"`) || strings.Count(got, `"consent":"`+consent+`"`) != 4 {
			t.Errorf("with consent for %s: %s", consent, got)
		}
	}
	s.do("DELETE", factsPath("anna", "/", gone.ID), nil).is(http.StatusNoContent, nil)
	if export := string(s.get(v1 + "/users/anna/export").body); !strings.Contains(export, "Sings") || strings.Contains(export, "canoe") {
		t.Errorf("the export: %s", export)
	}
	s.putCaller("anna", "consent", `{"remember":"all"}`)
	if got := s.facts("anna", "").texts(); !slices.Equal(got, []string{"Sings in a choir"}) {
		t.Errorf("allowed again: %q", got)
	}
}

// TestFactsMoved: facts that are read from one server and added to another keep their times, and
// fade from when they were last seen.
func TestFactsMoved(t *testing.T) {
	t.Parallel()
	from, to := start(t), start(t)
	from.addFact("anna", `{"content":"Lives in Bonn","created_at":"2020-01-02T03:04:05.678Z","last_seen_at":"2021-01-02T03:04:05.678Z"}`)
	from.addFact("anna", `{"content":"Has a dog"}`)
	for _, f := range from.facts("anna", "").Facts {
		moved := to.addFact("anna", fmt.Sprintf(`{"id":%q,"content":%q,"created_at":%q,"last_seen_at":%q}`, f.ID, f.Content, f.CreatedAt, f.LastSeenAt))
		if moved.CreatedAt != f.CreatedAt || moved.LastSeenAt != f.LastSeenAt {
			t.Errorf("%+v, was %+v", moved, f)
		}
	}
	got := to.facts("anna", "").Facts
	if want := from.facts("anna", "").Facts; !reflect.DeepEqual(got, want) || len(got) != 2 || got[0].Confidence != 1 || got[1].Confidence > .2 || got[1].CreatedAt != "2020-01-02T03:04:05.678Z" {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := to.facts("anna", "?as_of=2020-06-01T00:00:00Z").texts(); !slices.Equal(got, []string{"Lives in Bonn"}) {
		t.Errorf("as of 2020: %q", got)
	}
	for _, body := range []string{`{"content":"x","created_at":"2999-01-01T00:00:00Z"}`, `{"content":"x","last_seen_at":"2020-01-01T00:00:00Z"}`, `{"content":"x","created_at":"yesterday"}`} {
		if got := to.post(factsPath("anna"), body); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "_at") {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
}
