package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// foundCalls is a page of GET /v1/agents.
type foundCalls struct {
	Agents     []foundAgent
	NextCursor string `json:"next_cursor"`
}

type foundAgent struct {
	AgentID   string `json:"agent_id"`
	Name      string
	Status    string
	Reason    string
	UserID    string `json:"user_id"`
	Labels    map[string]string
	StartedAt time.Time `json:"started_at"`
	StoppedAt time.Time `json:"stopped_at"`
	Messages  int
	Turns     int
}

func (s *server) find(query string, headers ...string) foundCalls {
	s.t.Helper()
	var p foundCalls
	s.get(v1+"/agents"+query, headers...).ok(&p)
	return p
}

// finds walks through all pages of a search and returns the names of what it finds.
func (s *server) finds(query string) []string {
	s.t.Helper()
	out := []string{}
	for cursor := ""; ; {
		p := s.find("?limit=2&" + query + "&cursor=" + url.QueryEscape(cursor))
		for _, a := range p.Agents {
			out = append(out, a.Name)
		}
		if cursor = p.NextCursor; cursor == "" {
			return out
		}
	}
}

// TestFindCalls: ended calls are found by time, status, caller, labels and what was said.
func TestFindCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	ids := map[string]string{}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		ids[name] = s.join(name, map[string]any{
			"labels": map[string]string{"line": []string{"sales", "help"}[i%2], "n": fmt.Sprint(i)}, "channel": "room-" + name,
			"heardlog": map[string]any{"scope": map[string]string{"user_id": []string{"anna", "+4930123456", "bob"}[i%3]}},
		})
	}
	s.say(ids["b"], user("I want a REFUND now"), assistant("Of course, Straße 7."))
	s.say(ids["d"], user("No refund?"))
	s.interrupt(ids["b"], `{"heard":"Of course"}`).ok(nil)
	for _, name := range []string{"a", "b"} {
		s.post(agent(ids[name], "/leave"), nil).ok(nil)
	}
	s.do(http.MethodPut, "/v1/users/bob/aliases", `{"aliases":["anna"]}`).ok(nil)
	for query, want := range map[string]string{
		"":                      "e d c b a",
		"order=asc":             "a b c d e",
		"status=stopped":        "b a",
		"status=Running,failed": "e d c",
		"since=1h":              "e d c b a",
		"until=1h":              "",
		"since=" + url.QueryEscape("2020-01-01T00:00:00+01:00") + "&until=7d": "",
		"label.line=sales":                          "e c a",
		"label.line=sales&label.n=2":                "c",
		"label[line]=help":                          "d b",
		"label.line=nobody":                         "",
		"label.line=sales&status=stopped&since=24h": "a",
		"user_id=anna":                              "d c a", // bob is the same caller
		"user_id=%2B49%2030%20123456":               "e b",
		"user_id=nobody":                            "",
		"name=c":                                    "c",
		"channel=room-d":                            "d",
		"q=refund":                                  "d b",
		"q=stra%C3%9Fe":                             "b", // generated, and never heard
		"q=refund&label.n=3":                        "d",
		"q=refund&order=asc":                        "b d",
		"q=nothing":                                 "",
	} {
		if d := cmp.Diff(strings.Fields(want), s.finds(query), cmp.Transformer("", func(l []string) string { return strings.Join(l, " ") })); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
	b := s.find("?name=b").Agents[0]
	if b.Status != "STOPPED" || b.Reason != "OK" || b.UserID != "+4930123456" || b.Labels["line"] != "help" || b.Messages != 2 || b.Turns != 1 ||
		b.StartedAt.IsZero() || b.StoppedAt.Before(b.StartedAt) {
		t.Errorf("%+v", b)
	}
	var one foundAgent
	if s.get(agent(ids["b"])).ok(&one); !cmp.Equal(one, b) {
		t.Errorf("read by itself %+v", one)
	}
	for _, bad := range []string{
		"status=gone", "since=yesterday", "since=-1h", "until=0d", "until=99999d", "order=up", "limit=501", "cursor=x", "cursor=1-0", "label.=x", "label=x",
		"q=" + strings.Repeat("x", 201), "label.x=" + strings.Repeat("x", 600), "state=2", "from_time=1", "user_id=anonymous", "label.n=1&label.n=2",
	} {
		field, _, _ := strings.Cut(bad, "=")
		s.get(v1+"/agents?"+bad).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.get(v1+"/agents?since=1h&until=2h").refused(http.StatusBadRequest, "InvalidFieldValue", "until: must not be before since")
}

// TestFindLong: a search for a text reads a bounded part of the calls at a time and misses none.
func TestFindLong(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 23 {
		id := s.join(fmt.Sprint("n", i), nil)
		list := make([]map[string]any, 1000)
		for k := range list {
			list[k] = user("nothing of interest")
		}
		if i == 0 {
			list[999] = user("the needle")
		}
		s.say(id, list...)
	}
	first := s.find("?q=needle")
	if len(first.Agents) != 0 || first.NextCursor == "" {
		t.Errorf("the first page has %d agents and the cursor %q", len(first.Agents), first.NextCursor)
	}
	if got := s.finds("q=needle"); !cmp.Equal(got, []string{"n0"}) {
		t.Errorf("found %q", got)
	}
}

// TestChangeAgent: labels can change during a call, and the call is found by the new ones.
func TestChangeAgent(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"labels": map[string]string{"line": "sales", "old": "1"}})
	var a foundAgent
	s.do(http.MethodPatch, agent(id), `{"labels":{"outcome":"refund","old":null}}`).ok(&a)
	if want := map[string]string{"line": "sales", "outcome": "refund"}; a.AgentID != id || !cmp.Equal(a.Labels, want) {
		t.Errorf("%+v", a)
	}
	s.post(agora+"/agents/"+id+"/update", `{"properties":{"labels":{"line":"help"}}}`).ok(nil)
	for query, n := range map[string]int{"label.outcome=refund": 1, "label.line=help": 1, "label.line=sales": 0, "label.old=1": 0} {
		if got := s.finds(query); len(got) != n {
			t.Errorf("%s finds %q", query, got)
		}
	}
	s = s.again()
	if got := s.finds("label.outcome=refund&label.line=help"); len(got) != 1 {
		t.Errorf("after a restart %q are found", got)
	}
	many := map[string]string{}
	for i := range 127 {
		many[fmt.Sprint(i)] = "x"
	}
	s.do(http.MethodPatch, agent(id), map[string]any{"labels": many}).refused(http.StatusBadRequest, "InvalidFieldValue", "labels", "128")
	s.do(http.MethodPatch, agent(id), `{"heardlog":{"scope":{"user_id":"x"}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "heardlog.scope: is set by the join")
	s.do(http.MethodPatch, agent(id), `{"labels":{"a":1}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "labels")
	s.do(http.MethodPatch, agent("nobody"), `{}`).refused(http.StatusNotFound, "TaskNotFound")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.do(http.MethodPatch, agent(id), `{"labels":{"a":"b"}}`).refused(http.StatusNotFound, "TaskNotFound", "OK")
}

// TestChangeAgentRefused: who may not change an agent, and what is too much.
func TestChangeAgentRefused(t *testing.T) {
	t.Parallel()
	closed := start(t, twoTenants, "HEARDLOG_MAX_BODY=1024")
	closed.from("127.0.3.1").do(http.MethodPatch, agent("x"), `{}`).is(http.StatusUnauthorized, nil)
	closed.do(http.MethodPatch, agent("x"), strings.Repeat(" ", 2000), "Authorization", basic("alice", "wonder")).is(http.StatusRequestEntityTooLarge, nil)
	open, limited := start(t), start(t, "HEARDLOG_RATE_LIMIT=1")
	open.do(http.MethodPatch, agent("x"), `{}`, "Host", "elsewhere.example").is(http.StatusForbidden, nil)
	for limited.do(http.MethodPatch, agent("x"), `{}`).status != http.StatusTooManyRequests {
	}
}

// TestLabelHeaders: headers set the labels and the caller of an agent that joins by itself.
func TestLabelHeaders(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	ask := func(headers ...string) answer {
		return s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"Hi"}]}`, headers...)
	}
	ask("X-Agent-Id", "call-1", "X-Heardlog-User", "+49 30 123456", "X-Heardlog-Label-Line", "sales", "X-Heardlog-Label-Order-Id", "A 7").ok(nil)
	ask("X-Agent-Id", "call-1", "X-Heardlog-Label-Line", "other").ok(nil) // it has joined
	got := s.find("?label.order-id=A%207&user_id=%2B4930123456").Agents
	if len(got) != 1 || got[0].AgentID != "call-1" || !cmp.Equal(got[0].Labels, map[string]string{"line": "sales", "order-id": "A 7"}) {
		t.Errorf("found %+v", got)
	}
	ask("X-Agent-Id", "call-2", "X-Heardlog-Label-Line", strings.Repeat("x", 600)).failed(http.StatusBadRequest, "invalid", "X-Heardlog-Label-Line")
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprint("X-Heardlog-Label-", i), "x")
	}
	ask(append(many, "X-Agent-Id", "call-2")...).failed(http.StatusBadRequest, "invalid", "16 labels")
}
