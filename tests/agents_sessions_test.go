package tests

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// inherited is the part of a join's answer, or of an agent, about the memory it continues.
type inherited struct {
	AgentID  string `json:"agent_id"`
	Mode     string `json:"mode"`
	Messages int    `json:"messages"`
	UpToSeq  int64  `json:"up_to_seq"`
	Summary  bool   `json:"summary"`
	Pending  bool   `json:"pending"`
}

// session joins with a session block and returns the agent and what it continues.
func (s *server) session(base, name string, session map[string]any, more ...string) (string, *inherited) {
	s.t.Helper()
	var out struct {
		AgentID   string     `json:"agent_id"`
		Inherited *inherited `json:"inherited"`
	}
	block := map[string]any{"heardlog": map[string]any{"session": session}}
	props := block
	if base != v1 {
		props = voice(func(p map[string]any) { maps.Copy(p, block) })
	}
	s.post(base+"/join", map[string]any{"name": name, "properties": props}, more...).ok(&out)
	return out.AgentID, out.Inherited
}

// TestSessionInherits: under every base path an agent continues the memory of the last agent of its
// name, in history, context and ledger, over a restart. It never continues another project's or an
// erased agent.
//
// Rules: 002-12, 004-7
func TestSessionInherits(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	first, none := s.session(v1, "ann", map[string]any{"persist_across_invocations": true})
	if none != nil {
		t.Errorf("the first of its name took over %+v", none)
	}
	s.chat(agent(first, "/chat/completions"), "When?", true).ok(nil)
	s.interrupt(first, `{"turn_id":0,"heard":"At nine"}`).ok(nil)
	s.do(http.MethodPut, agent(first, "/summary"), map[string]any{"summary": "Ann goes to Rome."}).ok(nil)
	s.post(agent(first, "/leave"), nil).ok(nil)
	s = s.again()
	if _, got := s.session(strings.Replace(agora, "default", "other", 1), "ann", map[string]any{"inherit": "full"}); got != nil {
		t.Errorf("another project took over %+v", got)
	}
	second, got := s.session(v1, "ann", map[string]any{"persist_across_invocations": true, "session_ttl_seconds": 60})
	want := &inherited{AgentID: first, Mode: "full", Messages: 2, UpToSeq: 2, Summary: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was inherited: %s", diff)
	}
	var shown struct {
		Inherited *inherited `json:"inherited"`
	}
	if s.get(agent(second)).ok(&shown); !cmp.Equal(want, shown.Inherited) {
		t.Errorf("the agent says %+v", shown.Inherited)
	}
	s.chat(agent(second, "/chat/completions"), "Sure?", true).ok(nil)
	if diff := cmp.Diff([]string{"0 user: When?", "0 assistant: At nine", "1 user: Sure?", "1 assistant: At nine from platform two."}, texts(s.history(second).Contents)); diff != "" {
		t.Errorf("history: %s", diff)
	}
	var sent struct {
		Messages []struct{ Role, Content string }
	}
	seen := llm.Requests()
	if err := json.Unmarshal(seen[len(seen)-1].Body, &sent); err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, m := range sent.Messages {
		all += m.Role + ": " + m.Content + "\n"
	}
	if !strings.Contains(all, "user: When?\nassistant: At nine\nuser: Sure?\n") {
		t.Errorf("what the model is told: %s", all)
	}
	s.post(agent(second, "/leave"), nil).ok(nil)
	s.do(http.MethodDelete, agent(second), nil)
	third, got := s.session(agora, "ann", map[string]any{"inherit": "summary"})
	if got == nil || got.AgentID != first || got.Messages != 0 || !got.Summary {
		t.Errorf("after the second was erased: %+v", got)
	}
	if n := len(s.history(third).Contents); n != 0 {
		t.Errorf("%d messages with inherit summary", n)
	}
	fourth, got := s.session(cn, "bob", map[string]any{"inherit": "none"})
	if got != nil || fourth == "" {
		t.Errorf("%+v", got)
	}
}

// TestSessionRefused: what is wrong in a session block is named.
//
// Rules: 004-7
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tt := range []struct{ session, field, words string }{
		{`{"session_ttl_seconds":59}`, "properties.heardlog.session.session_ttl_seconds", "60"},
		{`{"session_ttl_seconds":86401}`, "properties.heardlog.session.session_ttl_seconds", "86400"},
		{`{"inherit":"all"}`, "properties.heardlog.session.inherit", "none"},
		{`{"inherit":"full","persist_across_invocations":false}`, "properties.heardlog.session.inherit", "persist_across_invocations"},
		{`{"persist_across_invocations":"yes"}`, "properties.heardlog.session.persist_across_invocations", ""},
	} {
		s.post(v1+"/join", `{"name":"n","properties":{"heardlog":{"session":`+tt.session+`}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", tt.field, tt.words)
	}
	s.post(v1+"/join", `{"name":"n","properties":{"heardlog":{"session":{"inherit":"none","persist_across_invocations":false}}}}`).ok(nil)
}

// TestQuotaDropsIdle: with drop_idle, a join over the limit ends the agent that has been idle
// longest, with its reason.
//
// Rules: 004-7
func TestQuotaDropsIdle(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_AGENTS=2", "HEARDLOG_OVER_MAX_AGENTS=drop_idle")
	a, b := s.join("a", nil), s.join("b", nil)
	s.get(agent(a, "/history")).ok(nil) // a request for it
	c := s.join("c", nil)
	if got := s.agent(b); got.Status != "STOPPED" || got.Message != "agent exits with reason: Dropped for a newer agent" {
		t.Errorf("the idle one: %+v", got)
	}
	for _, id := range []string{a, c} {
		if got := s.agent(id); got.Status != "RUNNING" {
			t.Errorf("%+v", got)
		}
	}
	watching := []*tail{s.tail(a), s.tail(c)}
	for _, w := range watching {
		w.next()
	}
	s.post(v1+"/join", map[string]any{"name": "d"}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "2")
	for _, w := range watching {
		w.close()
	}
}
