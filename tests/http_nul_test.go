package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestNULReplaced: U+0000 in a text becomes U+FFFD wherever texts come in. Nothing is refused for
// it, nothing stored has it, and no LLM gets it.
func TestNULReplaced(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	clean := func(where string, b []byte) {
		t.Helper()
		if text := string(b); strings.Contains(strings.ReplaceAll(text, `\\u0000`, ""), `\u0000`) || strings.Contains(text, "\x00") {
			t.Errorf("%s has a NUL: %s", where, text)
		}
	}
	id := s.joinAs("n", `{"labels":{"tier":"a\u0000"},"llm":{"system_messages":[{"role":"system","content":"Be\u0000 brief {{x}}."}],"greeting_message":"Hel\u0000lo.","failure_message":"Sor\u0000ry.",
		"template_variables":{"x":"a\u0000"},"params":{"stop":["\u0000"]}},"parameters":{"silence_config":{"timeout_ms":60000,"content":"Still\u0000 there?"}},
		"filler_words":{"enable":true,"content":{"static_config":{"phrases":["One\u0000 moment."]}}}}`)
	s.do(http.MethodPatch, agent(id), `{"labels":{"b":"c\u0000"},"llm":{"system_messages":[{"role":"system","content":"Be\u0000 kind."}]}}`).ok(nil)
	calls := `[{"id":"c\u00001","type":"function","function":{"name":"f","arguments":"{\"a\":\"x\u0000\",\"b\":\"y\\u0000\"}"}}]`
	s.post(agent(id, "/messages"), `{"messages":[{"role":"user","content":"a\u0000","metadata":{"k\u0000":["\u0000"]}},{"role":"user","content":[{"type":"text","text":"b\u0000"}]},
		{"role":"assistant","content":null,"tool_calls":`+calls+`},{"role":"tool","tool_call_id":"c\u00001","name":"f\u0000","content":"Clause 7\u0000 ends."},
		{"role":"assistant","content":"Claus\u0000e","metadata":{"interrupted":true,"original":"Claus\u0000e 7"}},{"role":"system","content":"c\u0000"}]}`).ok(nil)
	list := `{"role":"system","content":"Be\u0000 brief."},{"role":"user","content":"When\u0000?","name":"ann\u0000","metadata":{"m":"\u0000"}},
		{"role":"assistant","content":null,"tool_calls":` + strings.ReplaceAll(calls, "00001", "00002") + `},{"role":"tool","tool_call_id":"c\u00002","content":[{"type":"text","text":"At\u0000 nine."}]}`
	for _, headers := range [][]string{{"X-Heardlog-Mode", "inject"}, {"X-Heardlog-Mode", "reconcile"}, nil} {
		s.post(agent(id, "/chat/completions"), `{"messages":[`+list+`]}`, headers...).ok(nil)
		s.post(agent(id, "/chat/completions"), `{"stream":true,"messages":[`+list+`,{"role":"assistant","content":"At\u0000 nine."},{"role":"user","content":[{"type":"text","text":"And\u0000 back?"}]}]}`, headers...).ok(nil)
	}
	s.post(agent(id, "/responses"), `{"input":"When\u0000?","instructions":"Be\u0000 brief.","metadata":{"a":"\u0000"}}`).ok(nil)
	s.post(agent(id, "/responses"), `{"input":[{"role":"user","content":[{"type":"input_text","text":"W\u0000"}]},{"type":"function_call","call_id":"d\u0000","name":"f","arguments":"{\"a\":\"\u0000\"}"},
		{"type":"function_call_output","call_id":"d\u0000","output":"Clause 7\u0000 ends."}]}`).ok(nil)
	s.post(agent(id, "/interrupt"), `{"heard":"At\u0000"}`).ok(nil)
	s.post(agent(id, "/speak"), `{"text":"One\u0000 more."}`).ok(nil)
	s.post(agent(id, "/think"), `{"text":"Say\u0000 hello.","metadata":{"a":"\u0000"}}`).ok(nil)
	s.do(http.MethodPut, agent(id, "/summary"), `{"summary":"Asked\u0000 twice."}`).ok(nil)
	s.post(v1+"/memories", `{"memory_type":"human","content":"Likes\u0000 tea.","metadata":{"user_id":"ann","extra":{"a":"\u0000"}}}`).is(http.StatusCreated, nil)
	s.post(v1+"/users/ann/facts", `{"content":"Likes\u0000 tea.","kind":"preference"}`).is(http.StatusCreated, nil)
	snapshot := s.joinAs("m", `{}`)
	s.do(http.MethodPut, agent(snapshot, "/snapshot"), `{"messages":[{"role":"user","content":"a\u0000","x":"\u0000"}],"summary":"b\u0000","tool_exchange":{"a":"\u0000"}}`).ok(nil)

	for _, path := range []string{agent(id), agent(id, "/history?limit=all"), agent(id, "/messages?limit=500"), agent(id, "/turns"), agent(id, "/snapshot"), agent(id, "/summary"), agent(snapshot, "/snapshot")} {
		clean(path, s.get(path).ok(nil).body)
	}
	clean("facts", s.get(v1+"/users/ann/facts").ok(nil).body)
	clean("memories", s.post(v1+"/memories/search", `{"scope":"user","user_id":"ann"}`).ok(nil).body)
	for _, r := range llm.Requests() {
		clean("a prompt", r.Body)
	}
	all := string(s.get(agent(id, "/messages?limit=500")).ok(nil).body)
	for _, want := range []string{"a\uFFFD", "b\uFFFD", "Clause 7\uFFFD ends.", "When\uFFFD?", "And\uFFFD back?", "Hel\uFFFDlo.", "One\uFFFD more.", "Say\uFFFD hello.", `x\ufffd`} {
		if !strings.Contains(all, want) && !strings.Contains(all, strings.ReplaceAll(want, `\ufffd`, "\uFFFD")) {
			t.Errorf("the ledger lacks %q: %s", want, all)
		}
	}
	// What identifies something is refused, in words.
	s.post(v1+"/join", `{"name":"a\u0000"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "name: must not contain NUL")
	s.post(v1+"/join", `{"name":"k","properties":{"heardlog":{"scope":{"user_id":"a\u0000"}}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "user_id: must not contain NUL")
	s.do(http.MethodPatch, agent(id), `{"labels":{"b\u0000":"c"}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "labels", "must not contain a NUL")
	s.post(v1+"/join", `{"name":"k","properties":{"labels":{"b\u0000":"c"}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "labels", "must not contain a NUL")
	s.post(v1+"/join", `{"name":"k","properties":{"channel":"a\u0000"}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "channel: must not contain")
}

// TestNULEchoed: an answer with a NUL that a platform sends back is heard, as any other.
func TestNULEchoed(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine\x00 from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.joinAs("n", `{"heardlog":{"mode":"reconcile"}}`)
	s.post(agent(id, "/chat/completions"), `{"stream":true,"messages":[{"role":"user","content":"When?"}]}`).ok(nil)
	s.post(agent(id, "/chat/completions"), `{"stream":true,"messages":[{"role":"user","content":"When?"},{"role":"assistant","content":"At nine\u0000 from platform two."},{"role":"user","content":"Thanks."}]}`).ok(nil)
	l := s.ledger(id)
	if len(l) != 4 || l[1].Metadata["interrupted"] == true || !strings.HasPrefix(l[1].Content, "At nine") {
		t.Errorf("%+v", l)
	}
}
