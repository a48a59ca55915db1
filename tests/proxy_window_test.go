package tests

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// sentTo returns the messages of the last request to an upstream, as "role: content", and its body.
func sentTo(t *testing.T, llm *fake.LLM) (lines []string, body string) {
	t.Helper()
	all := llm.Requests()
	raw := all[len(all)-1].Body
	var in struct {
		Messages []struct {
			Role    string
			Content any
		}
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	for _, m := range in.Messages {
		text, ok := m.Content.(string)
		if !ok {
			b, _ := json.Marshal(m.Content)
			text = string(b)
		}
		lines = append(lines, m.Role+": "+text)
	}
	return lines, string(raw)
}

func sameSent(t *testing.T, what string, llm *fake.LLM, want ...string) {
	t.Helper()
	got, _ := sentTo(t, llm)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestWindowInTheProxy: the upstream gets what the policies of the agent and the call allow,
// whether the client sends new messages or the whole list. The summary follows the system messages.
// Cleared messages that are sent again do not return and are not stored twice.
//
// Rules: 000-2, 000-4, 000-7, 000-25, 001-8, 001-28, 002-10, 002-12
func TestWindowInTheProxy(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "ok"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	system := []any{map[string]any{"role": "system", "content": "Be brief."}, map[string]any{"role": "system", "content": "Be \"kind\"."}}
	id := s.join("n", map[string]any{"llm": map[string]any{"system_messages": system}})
	chat := func(id, body string) {
		t.Helper()
		s.post(agent(id, "/chat/completions"), body).ok(nil)
	}
	say := func(id, text, more string) {
		t.Helper()
		chat(id, `{"messages":[{"role":"user","content":"`+text+`"}]`+more+`}`)
	}
	say(id, "one", "")
	sameSent(t, "default", llm, "system: Be brief.", `system: Be "kind".`, "user: one")
	s.do("PUT", agent(id, "/summary"), `{"summary":"Ann\ncalled."}`).ok(nil)
	const kind = "system: Be \"kind\".\n\n[Earlier conversation summary]\nAnn\ncalled."
	say(id, "two", "")
	sameSent(t, "summary", llm, "system: Be brief.", kind, "user: one", "assistant: ok", "user: two")
	say(id, "three", `,"heardlog":{"policy":{"max_rounds":2}}`)
	sameSent(t, "the call's policy", llm, "system: Be brief.", kind, "user: two", "assistant: ok", "user: three")
	if _, body := sentTo(t, llm); strings.Contains(body, "heardlog") {
		t.Errorf("our own member went upstream: %s", body)
	}
	say(id, "four", `,"heardlog":{"policy":{"enabled":false}}`)
	sameSent(t, "memory off", llm, "system: Be brief.", `system: Be "kind".`, "user: four")
	for _, bad := range []string{`{"policy":{"max_rounds":-1}}`, `{"polcy":{}}`, `7`, `{"policy":{"tokens":"x"}}`} {
		if got := s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"x"}],"heardlog":`+bad+`}`); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "heardlog") {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}
	if n := len(s.ledger(id)); n != 8 {
		t.Errorf("the ledger has %d messages, want 8", n)
	}

	own := s.join("own", map[string]any{"heardlog": map[string]any{"policy": map[string]any{"preset": "lauren", "max_tokens": 7, "include_system": true}}})
	long := strings.Repeat("x", 24)
	s.say(own, map[string]any{"role": "system", "content": "rule"}, user(long), assistant("b"))
	say(own, "c", "")
	sameSent(t, "tokens: system messages stay", llm, "system: rule", "assistant: b", "user: c")
	s.do("PUT", agent(own, "/summary"), `{"summary":"S"}`).ok(nil)
	say(own, "d", "")
	sameSent(t, "behind the memory's system messages", llm, "system: rule\n\n[Earlier conversation summary]\nS", "assistant: b", "user: c", "assistant: ok", "user: d")

	bare := s.join("bare", nil)
	s.do("PUT", agent(bare, "/summary"), `{"summary":"S"}`).ok(nil)
	say(bare, "a", "")
	sameSent(t, "without a system prompt", llm, "system: [Earlier conversation summary]\nS", "user: a")

	// A platform that sends its whole list each time.
	re := s.join("reconcile", map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
	chat(re, `{"messages":[{"role":"system","content":"Theirs."},{"role":"user","content":"one"}]}`)
	chat(re, `{"messages":[{"role":"system","content":"Theirs."},{"role":"user","content":"one"},{"role":"assistant","content":"ok"},{"role":"user","content":"two"}]}`)
	sameSent(t, "their list", llm, "system: Theirs.", "user: one", "assistant: ok", "user: two")
	three := `{"messages":[{"role":"system","content":"Theirs."},{"role":"user","content":"one"},{"role":"assistant","content":"ok"},{"role":"user","content":"two"},{"role":"assistant","content":"ok"},{"role":"user","content":"three"}]`
	s.do("PUT", agent(re, "/summary"), `{"summary":"S"}`).ok(nil)
	if got := s.post(agent(re, "/clear"), nil); got.status != http.StatusNoContent {
		t.Fatalf("%d", got.status)
	}
	chat(re, three+`}`)
	sameSent(t, "cleared", llm, "system: Theirs.\n\n[Earlier conversation summary]\nS", "user: three")
	if n := len(s.ledger(re)); n != 6 {
		t.Errorf("the ledger has %d messages, want 6: %v", n, texts(s.ledger(re)))
	}
	if d := cmp.Diff([]string{"three", "ok"}, s.history(re).texts()); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	policy := s.join("policy", map[string]any{"heardlog": map[string]any{"mode": "reconcile", "policy": map[string]any{"max_messages": 2}}})
	chat(policy, three+`}`)
	sameSent(t, "their list obeys", llm, "system: Theirs.", "assistant: ok", "user: three")
	chat(policy, strings.TrimSuffix(three, "]")+`,{"role":"assistant","content":"ok"},{"role":"user","content":"four"}],"heardlog":{"policy":{"enabled":false}}}`)
	sameSent(t, "theirs, memory off", llm, "system: Theirs.", "user: four")
}

// TestWindowLeavesTheQuestion: whatever a policy or a clear removes, the request to the LLM has a
// question and no result without its call.
//
// Rules: 000-27
func TestWindowLeavesTheQuestion(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "ok"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	const result = `{"role":"tool","tool_call_id":"c1","content":"nine"}`
	again := strings.NewReplacer("c1", "c2", "nine", "ten")
	chat := func(id string, list ...string) {
		t.Helper()
		s.post(agent(id, "/chat/completions"), `{"messages":[`+strings.Join(list, ",")+`]}`).ok(nil)
	}
	with := func(name, policy string) string {
		return s.join(name, map[string]any{"heardlog": map[string]any{"policy": json.RawMessage(policy)}})
	}
	const q = `{"role":"user","content":"q"}`
	chat(with("theirs", `{"max_messages":1}`), q, call, result)
	sameSent(t, "their list, too small a window for a tool's answer", llm, "user: q", "assistant: null", "tool: nine")
	new := with("new", `{"max_messages":1}`)
	s.post(agent(new, "/messages"), `[`+q+`,`+call+`]`).ok(nil)
	chat(new, result)
	sameSent(t, "only what is new, too small a window", llm, "user: q", "assistant: null", "tool: nine")
	chat(with("loop", `{"preset":"ovos","max_messages":3}`), q, call, result, again.Replace(call), again.Replace(result))
	sameSent(t, "the result whose call is cut", llm, "assistant: null", "tool: ten")

	id := s.join("cleared", nil)
	first := []string{q, `{"role":"assistant","content":"a"}`, `{"role":"user","content":"two"}`}
	chat(id, first...)
	s.post(agent(id, "/clear"), nil)
	chat(id, first...)
	sameSent(t, "asked once more", llm, "user: two")
	chat(id, append(first, call, result)...)
	sameSent(t, "and the tool's answer to it", llm, "user: two", "assistant: null", "tool: nine")
}

// TestClearBeforeTheAnswer: a question is answered although the memory was cleared after it, or
// while the call was being accepted.
func TestClearBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "ok"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for _, policy := range []string{`{}`, `{"preset":"lauren"}`, `{"enabled":false}`} {
		id := s.join("n"+strconv.Itoa(len(policy)), map[string]any{"heardlog": map[string]any{"policy": json.RawMessage(policy)}})
		s.post(agent(id, "/messages"), `{"role":"user","content":"q"}`).ok(nil)
		s.post(agent(id, "/clear"), nil)
		s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"q"}]}`).ok(nil)
		if lines, _ := sentTo(t, llm); len(lines) != 1 || lines[0] != "user: q" {
			t.Errorf("%s: %v", policy, lines)
		}
		stop := make(chan struct{})
		var clears sync.WaitGroup
		clears.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.post(agent(id, "/clear"), nil)
				}
			}
		})
		for i := range 30 {
			words := "q" + strconv.Itoa(i)
			s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"`+words+`"}]}`).ok(nil)
			if lines, _ := sentTo(t, llm); len(lines) == 0 || lines[len(lines)-1] != "user: "+words {
				t.Errorf("%s: %v, want %s", policy, lines, words)
			}
		}
		close(stop)
		clears.Wait()
	}
}
