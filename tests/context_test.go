package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

// contextOf is the answer of the context call.
type contextOf struct {
	AgentID  string           `json:"agent_id"`
	Messages []map[string]any `json:"messages"`
	Dropped  int              `json:"dropped"`
	Tokens   int              `json:"estimated_tokens"`
	Healed   []string         `json:"healed"`
	Recalled []string         `json:"recalled"`
	Policy   window.Policy    `json:"policy"`
}

// lines returns messages as "role: content".
func (c contextOf) lines() []string {
	out := []string{}
	for _, m := range c.Messages {
		text, ok := m["content"].(string)
		if !ok {
			raw, _ := json.Marshal(m["content"])
			text = string(raw)
		}
		out = append(out, m["role"].(string)+": "+text)
	}
	return out
}

func (s *server) context(id, body string) contextOf {
	s.t.Helper()
	var c contextOf
	s.post(agent(id, "/context"), body).ok(&c)
	return c
}

func sameLines(t *testing.T, what string, got contextOf, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, got.lines()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestContext: the context holds the system prompt, the summary, what the policy keeps of the
// memory, and the utterance, in this order. Nothing is stored or changed.
//
// Rules: 000-23, 000-24, 000-25, 000-27, 001-28
func TestContext(t *testing.T) {
	t.Parallel()
	for _, base := range []string{v1, agora, cn} {
		s := start(t)
		id := s.join("n", map[string]any{"llm": map[string]any{
			"system_messages": []any{map[string]any{"role": "system", "content": "  You are {{name}}.\n"}, map[string]any{"role": "system", "content": " \n"}}, "template_variables": map[string]any{"name": "brief"},
		}})
		s.say(id, user("a"), assistant("b"), user("c"))
		before := s.get(agent(id, "/messages")).body
		s.do("PUT", agent(id, "/summary"), `{"summary":"Ann called."}`).ok(nil)
		var c contextOf
		s.post(base+"/agents/"+id+"/context", `{"utterance":" What? "}`).ok(&c)
		const system = "system: You are brief.\n\n[Earlier conversation summary]\nAnn called."
		sameLines(t, "default", c, system, "user: a", "assistant: b", "user: c", "user: What?")
		if c.AgentID != id || c.Dropped != 0 || c.Policy.Preset != "recent" || *c.Policy.MaxMessages != 32 {
			t.Errorf("%+v", c)
		}
		if again := s.context(id, `{"utterance":" What? "}`); !cmp.Equal(c, again) {
			t.Errorf("the same call gives another answer (-first +second):\n%s", cmp.Diff(c, again))
		}
		ovos := s.context(id, `{"utterance":"What?","policy":{"preset":"ovos"}}`)
		sameLines(t, "trailing user turns leave", ovos, system, "user: a", "assistant: b", "user: What?")
		sameLines(t, "one message", s.context(id, `{"policy":{"max_messages":1},"inject":{"summary":false}}`), "system: You are brief.", "user: c")
		sameLines(t, "memory off", s.context(id, `{"utterance":" What? ","policy":{"enabled":false}}`), "user:  What? ")
		after := s.get(agent(id, "/messages")).body
		if d := cmp.Diff(string(before), string(after)); d != "" {
			t.Errorf("the ledger changed:\n%s", d)
		}
		custom := s.context(id, `{"format":"custom"}`).Messages
		if m := custom[1]; m["turn_id"] != 0.0 || m["timestamp"].(float64) < 1e12 || m["metadata"].(map[string]any)["source"] != "message" {
			t.Errorf("custom: %v", m)
		}
		for body, words := range map[string]string{
			`{"policy":{"max_tokens":-1}}`: "policy.max_tokens", `{"policy":{"preset":"x"}}`: "policy.preset", `{"policy":{"tokens":"abacus"}}`: "policy.tokens", `{"format":"odd"}`: "format",
			`{"policy":[]}`: "policy", `{"inject":{"facts":1}}`: "facts", `{"policy":{"max":1}}`: "policy.max",
		} {
			s.post(agent(id, "/context"), body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
		}
		s.post(agent(id, "/leave"), nil).ok(nil)
		sameLines(t, "after the end", s.context(id, `{"inject":{"summary":false}}`), "system: You are brief.", "user: a", "assistant: b", "user: c")
		if base == v1 {
			const four = `"policy":{"tokens":"gpt-4o"},"utterance":"hello world`
			one, two := s.context(id, `{`+four+`"}`).Tokens, s.context(id, `{`+four+` hello world"}`).Tokens
			if two != one+2 { // by the estimate three
				t.Errorf("exact tokens: %d, with two words more %d", one, two)
			}
		}
	}
}

// TestPolicyLevels: fields of the request's policy override the agent's, and those the server's.
// max_history sets max_messages unless the agent's policy does. update changes the policy, and a
// restart keeps it.
//
// Rules: 000-1, 000-3, 002-8
func TestPolicyLevels(t *testing.T) {
	t.Parallel()
	s := start(t, `HEARDLOG_POLICY={"preset":"ossa","max_tokens":500}`)
	policyOf := func(id, request string) window.Policy { return s.context(id, `{"policy":`+request+`}`).Policy }
	heardlog := func(policy string) map[string]any {
		return map[string]any{"llm": map[string]any{"max_history": 7}, "heardlog": map[string]any{"policy": json.RawMessage(policy)}}
	}
	plain, short := s.join("plain", nil), s.join("short", map[string]any{"llm": map[string]any{"max_history": 7}})
	own, preset := s.join("own", heardlog(`{"max_messages":9,"max_rounds":3}`)), s.join("preset", heardlog(`{"preset":"ovos"}`))
	if p := policyOf(plain, `null`); *p.MaxMessages != 100 || *p.MaxTokens != 500 || p.Preset != "limits" {
		t.Errorf("the server's: %+v", p)
	}
	if p := policyOf(short, `{}`); *p.MaxMessages != 7 || *p.MaxTokens != 500 {
		t.Errorf("max_history: %d messages, %d tokens", *p.MaxMessages, *p.MaxTokens)
	}
	if p := policyOf(own, `{"max_rounds":1}`); *p.MaxMessages != 9 || *p.MaxTokens != 500 || *p.MaxRounds != 1 {
		t.Errorf("own: %+v", p)
	}
	if p := policyOf(preset, `{}`); *p.MaxMessages != 5 || *p.MaxTokens != 0 || p.Apply != window.OnWrite {
		t.Errorf("preset: %+v", p)
	}
	s.post(agent(own, "/update"), `{"properties":{"heardlog":{"policy":{"max_tokens":77}}}}`).ok(nil)
	s = s.again()
	if p := policyOf(own, `{}`); *p.MaxMessages != 7 || *p.MaxTokens != 77 || *p.MaxRounds != 0 {
		t.Errorf("after update: %+v", p)
	}
	s.post(agent(own, "/update"), `{"heardlog":{"policy":null}}`).ok(nil)
	if p := policyOf(own, `{}`); *p.MaxTokens != 500 {
		t.Errorf("given back: %+v", p)
	}
	s.post(agent(own, "/update"), `{"heardlog":{"policy":{"strategy":"guess"}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "heardlog.policy.strategy")
	s.post(v1+"/join", `{"name":"x","properties":{"heardlog":{"policy":{"max_messages":"many"}}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.policy.max_messages")
	var all struct {
		Presets []window.Named
		Default window.Policy
	}
	s.get(v1 + "/policies").ok(&all)
	names := []string{}
	for _, p := range all.Presets {
		names = append(names, p.Name)
		if !cmp.Equal(p.Policy, p.Policy.Full()) {
			t.Errorf("%s is not in full", p.Name)
		}
	}
	if got := strings.Join(names, " "); got != "recent pairs rounds tokens limits full" || *all.Default.MaxTokens != 500 || *all.Default.MaxMessages != 100 {
		t.Errorf("%s, default %+v", got, all.Default)
	}
}

// TestSessionsApart: agents never see each other's memory, and a policy without normalization
// stores messages unchanged.
//
// Rules: 000-11, 000-30
func TestSessionsApart(t *testing.T) {
	t.Parallel()
	s := start(t)
	properties := map[string]any{"heardlog": map[string]any{"policy": json.RawMessage(`{"preset":"ovos","normalise":{"drop_hanging_user":false,"merge_assistant":false}}`)}}
	one, other := s.join("one", properties), s.join("other", properties)
	for _, text := range []string{"a", "b"} {
		s.say(one, user(text), assistant(text+"!"))
		s.say(other, assistant(text), user(text+"?"))
	}
	s.do("PUT", agent(one, "/summary"), `{"summary":"One's."}`).ok(nil)
	sameLines(t, "one", s.context(one, `{"inject":{"summary":false}}`), "user: a", "assistant: a!", "user: b", "assistant: b!")
	s.say(one, assistant("again"))
	sameLines(t, "nothing is merged", s.context(one, `{"inject":{"summary":false}}`), "user: a", "assistant: a!", "user: b", "assistant: b!", "assistant: again")
	sameLines(t, "other", s.context(other, `{}`), "assistant: a", "user: a?", "assistant: b", "user: b?")
	if got := s.post(agent(one, "/clear"), nil); got.status != http.StatusNoContent {
		t.Fatalf("%d", got.status)
	}
	sameLines(t, "other, after one was cleared", s.context(other, `{}`), "assistant: a", "user: a?", "assistant: b", "user: b?")
}

// TestSources: each role has the sources that are documented, and no others.
//
// Rules: 002-5
func TestSources(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for role, sources := range map[string][]string{"user": {"asr", "message", "command"}, "assistant": {"command", "llm", "greeting", "llm_failure", "silence"}} {
		for _, source := range []string{"asr", "message", "command", "llm", "greeting", "llm_failure", "silence", "dream"} {
			got := s.post(agent(id, "/messages"), map[string]any{"role": role, "content": "x", "metadata": map[string]any{"source": source}})
			if want := strings.Contains(" "+strings.Join(sources, " ")+" ", " "+source+" "); (got.status == http.StatusOK) != want {
				t.Errorf("%s of %s: %d", source, role, got.status)
			}
		}
		seen := map[string]bool{}
		for _, m := range s.history(id).Contents {
			if m.Role == role {
				seen[m.Metadata["source"].(string)] = true
			}
		}
		if len(seen) != len(sources) {
			t.Errorf("history shows of %s %v, want %v", role, seen, sources)
		}
	}
}
