package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// remembering returns join properties of a caller with settings of the long-term memory, JSON.
func remembering(user, how string, more ...string) string {
	return fmt.Sprintf(`{"heardlog":{"scope":{"user_id":%q},"remember":%s}%s}`, user, how, strings.Join(more, ""))
}

// joinAs joins with properties as JSON.
func (s *server) joinAs(name, properties string) string {
	s.t.Helper()
	return s.join(name, json.RawMessage(properties))
}

// prompts returns the bodies that the upstream was sent.
func prompts(llm *fake.LLM) []string {
	var out []string
	for _, r := range llm.Requests() {
		out = append(out, string(r.Body))
	}
	return out
}

// blockOf returns the block in a body, without JSON's escapes, or "".
func blockOf(t *testing.T, body string) string {
	t.Helper()
	var in struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		t.Fatal(err)
	}
	for _, m := range in.Messages {
		if from := strings.Index(m.Content, "<memory id="); from >= 0 {
			return m.Content[from : strings.Index(m.Content, "</memory>")+len("</memory>")]
		}
	}
	return ""
}

// balcony is a call about rooms.
func (s *server) balcony(name string) string {
	s.t.Helper()
	id := s.join(name, caller("anna"))
	s.say(id, user("We booked two rooms in Porto with a balcony."), assistant("Both rooms have a balcony to the sea."), user("And breakfast?"))
	s.recall("anna", "balcony") // reads the calls
	return id
}

// TestRemember: what a caller said earlier stands right before the newest words, once, and the
// answer names it. What is before it stays byte for byte as it was in the turn before.
func TestRemember(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes, both."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	old := s.balcony("old")
	id := s.joinAs("new", remembering("anna", `{"recall":"auto"}`, `,"llm":{"system_messages":[{"role":"system","content":"Be brief."}]}`))
	chat := func(words string) answer {
		return s.chat(agent(id, "/chat/completions"), words, true).ok(nil)
	}
	var headers []string
	for _, words := range []string{"Hello there", "Do our rooms in Porto have a balcony?", "Thank you", "Did we book breakfast with the rooms in Porto?"} {
		headers = append(headers, chat(words).header.Get("X-Heardlog-Recall"))
	}
	all := prompts(llm)
	for i, want := range []bool{false, true, false, true} {
		if got := blockOf(t, all[i]) != ""; got != want || strings.HasSuffix(headers[i], "strength=strong") != want {
			t.Errorf("turn %d: a block: %v, header %q, body %s", i, got, headers[i], all[i])
		}
		if strings.Count(all[i], "memory id") > 1 {
			t.Errorf("turn %d has an old block: %s", i, all[i])
		}
	}
	block := blockOf(t, all[1])
	if !strings.Contains(block, `caller: We booked two rooms in Porto with a balcony."`) || !strings.Contains(block, "agent, perhaps heard: Both rooms have") {
		t.Errorf("%s", block)
	}
	if strings.Contains(block, "Do our rooms") {
		t.Errorf("the newest words are in the block: %s", block)
	}
	// A prompt cache can use what comes before the newest user message.
	for i := 1; i < len(all); i++ {
		newest := strings.LastIndex(all[i-1], `{"role":"user"`)
		if !strings.HasPrefix(all[i], all[i-1][:newest]) {
			t.Errorf("turn %d does not begin as the one before:\n%s\n%s", i, all[i-1], all[i])
		}
	}
	// The same words make the same bytes, on another server too.
	body := s.context(id, `{"utterance":"Do our rooms in Porto have a balcony?"}`)
	again := s.again()
	again.recall("anna", "balcony")
	shown := again.context(id, `{"utterance":"Do our rooms in Porto have a balcony?"}`)
	lines := shown.lines()
	if n := len(lines); n < 2 || !slices.Equal(lines, body.lines()) || lines[n-2] != "user: "+block || lines[n-1] != "user: Do our rooms in Porto have a balcony?" {
		t.Errorf("after a restart: %q, before: %q", lines, body.lines())
	}
	mark := shown.Messages[len(lines)-2]["metadata"].(map[string]any)
	if mark["source"] != "memory" || shown.Recalled[0] != old+":1" {
		t.Errorf("%v %v", mark, shown.Recalled)
	}
	var page struct {
		Messages []struct {
			Role, Content string
			Recalled      []string
		}
	}
	again.get(agent(id, "/messages")).ok(&page)
	for i, m := range page.Messages {
		if strings.Contains(m.Content, "memory id") || (len(m.Recalled) > 0) != (i == 3 || i == 7) {
			t.Errorf("message %d: %+v", i, m)
		}
	}
	if got := page.Messages[3].Recalled; !slices.Contains(got, old+":1") || !slices.Contains(got, old+":2") {
		t.Errorf("recalled: %q", got)
	}
}

// TestRememberEchoed: a platform that sends a block back does not make the caller say it.
func TestRememberEchoed(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	s.balcony("old")
	id := s.joinAs("new", remembering("anna", `{"recall":"auto"}`))
	first := user("Do our rooms in Porto have a balcony?")
	s.ask(id, "Yes, both.", first)
	block := blockOf(t, prompts(llm)[0])
	if block == "" {
		t.Fatalf("no block: %s", prompts(llm)[0])
	}
	// As it was merged, as a message of its own, and as a part.
	s.ask(id, "To the sea.", user(block+"\nDo our rooms in Porto have a balcony?"), assistant("Yes, both."), user("Where do they look?"))
	s.ask(id, "At eight.", first, assistant("Yes, both."), user(block), user("Where do they look?"), assistant("To the sea."),
		map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": block}, map[string]any{"type": "text", "text": "When is breakfast?"}}})
	want := []string{
		"Do our rooms in Porto have a balcony?", "Yes, both.", "Where do they look?", "To the sea.", "When is breakfast?", "At eight.",
	}
	if got := s.historyAll(id); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i, body := range prompts(llm) {
		if strings.Count(body, "memory id") > 1 {
			t.Errorf("prompt %d: %s", i, body)
		}
	}
	// What was recalled is not recalled again as if it had been said.
	if got := s.recall("anna", "memory holds earlier talk"); slices.ContainsFunc(got.texts(), func(t string) bool { return strings.Contains(t, "memory id") }) {
		t.Errorf("%q", got.texts())
	}
}

// TestRememberWhere: the block is in the role that the settings name, and custom upstreams are told
// its source. Other calls have none.
func TestRememberWhere(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", `HEARDLOG_REMEMBER={"recall":"auto","position":"system"}`)
	s.balcony("old")
	words := "Do our rooms in Porto have a balcony?"
	for _, tt := range []struct {
		name, properties string
		has              string
	}{
		{"default", `{"heardlog":{"scope":{"user_id":"anna"}}}`, `{"role":"system","content":"<memory`},
		{"user", remembering("anna", `{"position":"user"}`), `{"role":"user","content":"<memory`},
		{"custom", remembering("anna", `{}`, `,"llm":{"vendor":"custom","url":"`+base+`"}`), `"metadata":{"source":"memory"}`},
		{"off", remembering("anna", `"off"`), ""},
		{"not injected", remembering("anna", `{"inject":false}`), ""},
		{"another caller", remembering("ben", `{}`), ""},
		{"nobody", `{}`, ""},
	} {
		id := s.joinAs(tt.name, tt.properties)
		got := s.chat(agent(id, "/chat/completions"), words, true).ok(nil)
		body := prompts(llm)[len(prompts(llm))-1]
		if !strings.Contains(body, tt.has) || tt.has == "" && strings.Contains(body, "memory id") {
			t.Errorf("%s: %s", tt.name, body)
		}
		if header := got.header.Get("X-Heardlog-Recall"); tt.has != "" && header == "" || tt.name == "off" && header != "" {
			t.Errorf("%s: header %q", tt.name, header)
		}
	}
	// A chat completion starts the agent and names the caller.
	s.chat(v1+"/chat/completions", words, true, "X-Agent-Id", "room", "X-Heardlog-User", "anna").ok(nil)
	if all := prompts(llm); blockOf(t, all[len(all)-1]) == "" {
		t.Errorf("of a caller in a header: %s", all[len(all)-1])
	}
	s.post(v1+"/join", `{"name":"bad","properties":{"heardlog":{"remember":{"recall":"maybe"}}}}`).
		refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.remember.recall: must be one of off, auto, always")
}
