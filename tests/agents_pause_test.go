package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const (
	canarySaid   = "It is canary seven seven, quickly."
	canaryAnswer = "I have canary seven seven, is that right?"
	hidden       = "[paused]"
)

// pausing is a server whose upstream repeats the canary, with a receiver of all events.
func pausing(t *testing.T) (*server, *fake.LLM, *hook) {
	t.Helper()
	llm, base := upstream(t, fake.Script{Answer: canaryAnswer})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LOG_LEVEL=debug")
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"*"}})
	return s, llm, h
}

// pause pauses an agent and returns until when.
func (s *server) pause(id, body string) time.Time {
	s.t.Helper()
	var out struct {
		AgentID string    `json:"agent_id"`
		Until   time.Time `json:"paused_until"`
	}
	if s.post(agent(id, "/pause"), body).ok(&out); out.AgentID != id {
		s.t.Errorf("%+v", out)
	}
	return out.Until
}

// wantNowhere checks that no place where texts are stored has the canary.
func (s *server) wantNowhere(t *testing.T, id string, h *hook, seen string) {
	t.Helper()
	places := map[string]string{"the tail": seen}
	for _, what := range []string{"", "/history?limit=all", "/turns", "/messages?limit=1000", "/snapshot"} {
		places[what] = string(s.get(agent(id, what)).ok(nil).body)
	}
	places["/context"] = string(s.post(agent(id, "/context"), `{}`).ok(nil).body)
	s.post(agent(id, "/leave"), nil).ok(nil)
	for ended := false; !ended; {
		c := h.next(t)
		places["a webhook"] += string(c.body)
		ended = strings.Contains(string(c.body), `"eventType":103`)
	}
	places["the files"] = s.files() // with the write-ahead log
	s.stop()
	places["the files"] += s.files()
	places["the log"] = s.log.String()
	for where, text := range places {
		if at := strings.Index(strings.ToLower(text), "canary"); at >= 0 {
			s.t.Errorf("%s has the canary: …%q…", where, text[max(0, at-200):min(len(text), at+60)])
		}
		if where != "the log" && where != "" && where != "/turns" && where != "/context" && !strings.Contains(text, hidden) {
			s.t.Errorf("%s has no %s: the test proves nothing", where, hidden)
		}
	}
}

// TestPause: what is said in a pause reaches the LLM and the caller, and no store; not over a
// restart and not afterwards.
func TestPause(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s, llm, h := pausing(t)
	id := s.join("n", nil)
	s.say(id, user("Hello."))
	tail := s.tail(id)
	if until := s.pause(id, ""); time.Until(until) > 5*time.Minute || time.Until(until) < 4*time.Minute {
		t.Errorf("paused until %s", until)
	}
	if got := s.chat(agent(id, "/chat/completions"), canarySaid, true).ok(nil); !strings.Contains(string(got.body), "seven") || !strings.Contains(sentUp(llm), canarySaid) {
		t.Errorf("%s %s", got.body, sentUp(llm))
	}
	var seen strings.Builder
	for e, ok := tail.next(); ok; e, ok = tail.next() { // the server's end may leave out what comes last
		if seen.Write(e.data); strings.Contains(string(e.data), hidden) {
			break
		}
	}
	s = s.again() // on another address
	var view struct {
		Until *time.Time `json:"paused_until"`
	}
	if s.get(agent(id)).ok(&view); view.Until == nil {
		t.Error("the restart has ended the pause")
	}
	first := s.pause(id, `{"max_seconds":3600}`)
	if again := s.pause(id, `{"max_seconds":1}`); !again.Equal(first) {
		t.Errorf("paused until %s, then %s", first, again)
	}
	named := map[string]any{"role": "user", "content": canarySaid, "id": "m1", "metadata": map[string]any{"note": "canary"}}
	if one, two := s.say(id, named), s.say(id, named); one[0].Content != hidden || one[0].Seq != two[0].Seq {
		t.Errorf("%+v %+v", one, two)
	}
	s.say(id, map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": canarySaid}}})
	calls := []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "pay", "arguments": `{"card":"canary"}`}}}
	s.say(id, map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": "canary"})
	s.post(agent(id, "/speak"), `{"text":"You said canary."}`).ok(nil)
	s.chat(agent(id, "/chat/completions"), canarySaid, false).ok(nil)
	s.post(agent(id, "/resume"), nil).ok(&view)
	var resumed map[string]any
	if s.post(agent(id, "/resume"), nil).ok(&resumed); resumed["paused_until"] != nil {
		t.Errorf("%v", resumed)
	}
	s.interrupt(id, map[string]any{"heard": "I have canary"}).ok(nil)
	if m := s.last(id); m.Content != hidden || m.Metadata["interrupted"] != true {
		t.Errorf("%+v", m)
	}
	s.tell(id, "twilio", `{"type":"interrupt","utteranceUntilInterrupt":"I have canary seven","durationUntilInterruptMs":460}`)
	s.post(agent(id, "/evidence/openai-realtime"), `{"type":"conversation.item.truncate","item_id":"x","audio_end_ms":700,"words":[{"word":"canary","start_ms":0,"end_ms":200}]}`)
	s.say(id, user("Afterwards."))
	if m := s.last(id); m.Content != "Afterwards." {
		t.Errorf("%+v", m)
	}
	for e, ok := tail.next(); ok; e, ok = tail.next() { // until the first server stopped
		seen.Write(e.data)
	}
	s.wantNowhere(t, id, h, seen.String())
}

// TestPauseReconciles: a platform's list repeats the words after the pause. They are recognized.
func TestPauseReconciles(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s, llm, h := pausing(t)
	id := s.join("n", nil)
	answers := func(params string) { // the server's own answer has the canary
		s.post(agent(id, "/update"), json.RawMessage(`{"llm":{"params":`+params+`}}`)).ok(nil)
	}
	var list []any
	send := func() {
		s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
	}
	answers(`{"fake":{"answer":"Your card, please."}}`)
	list = append(list, user("Hello."))
	send()
	s.pause(id, "")
	answers(`{}`)
	list = append(list, assistant("Your card, please."), user(canarySaid))
	send()
	s.post(agent(id, "/resume"), nil).ok(nil)
	answers(`{"fake":{"answer":"Thank you."}}`)
	list = append(list, assistant("I have canary seven"), user("Yes it is."))
	send()
	send()
	list = append(list, assistant("Thank you."), user("Bye."))
	list[2] = user("It is the canary seven seven, quickly now.") // a newer transcript
	send()
	if !strings.Contains(sentUp(llm), "canary") {
		t.Errorf("the model was shown %s", sentUp(llm))
	}
	var got []string
	for _, m := range s.ledger(id) {
		if !m.Ghost && m.State == "final" {
			got = append(got, m.Role+": "+m.Content)
		}
	}
	want := "user: Hello.|assistant: Your card, please.|user: [paused]|assistant: [paused]|user: Yes it is.|assistant: Thank you.|user: Bye.|assistant: Thank you."
	if strings.Join(got, "|") != want {
		t.Errorf("the ledger holds %q, want %q", strings.Join(got, "|"), want)
	}
	s.wantNowhere(t, id, h, hidden)
}

// TestPauseEnds: a pause ends by itself, and with the agent.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	until := s.pause(id, `{"max_seconds":1}`)
	if m := s.say(id, user("x")); m[0].Content != hidden && time.Now().Before(until) {
		t.Errorf("%+v", m)
	}
	waitFor(t, "the end of the pause", func() bool { return !strings.Contains(string(s.get(agent(id)).ok(nil).body), "paused_until") })
	if m := s.say(id, user("y")); m[0].Content != "y" || time.Now().Before(until) {
		t.Errorf("%+v at %s, paused until %s", m, time.Now(), until)
	}
	for _, body := range []string{`{"max_seconds":0}`, `{"max_seconds":3601}`, `{"max_seconds":-1}`} {
		s.post(agent(id, "/pause"), body).refused(http.StatusBadRequest, "InvalidFieldValue", "max_seconds", "1 to 3600")
	}
	s.post(agent(id, "/pause"), `{`).refused(http.StatusBadRequest, "InvalidRequestBody")
	s.post(agent("nobody", "/pause"), nil).refused(http.StatusNotFound, "TaskNotFound")
	s.post(agent("nobody", "/resume"), nil).refused(http.StatusNotFound, "TaskNotFound")
	s.pause(id, "")
	s.post(agent(id, "/leave"), nil).ok(nil)
	if strings.Contains(string(s.get(agent(id)).ok(nil).body), "paused_until") {
		t.Error("an agent that has ended is paused")
	}
	s.post(agent(id, "/pause"), nil).refused(http.StatusNotFound, "TaskNotFound")
	s.post(agent(id, "/resume"), nil).refused(http.StatusNotFound, "TaskNotFound")
}

// TestPauseTools: a list repeats the arguments and the result of a call that was made in a pause.
func TestPauseTools(t *testing.T) {
	t.Parallel()
	needsFile(t)
	llm, base := upstream(t, fake.Script{ToolName: "pay", ToolArgs: `{"card":"canary"}`})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"*"}})
	id := s.join("n", nil)
	list := []any{user(canarySaid)}
	var out struct {
		Choices []struct{ Message map[string]any }
	}
	send := func() {
		s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(&out)
	}
	s.pause(id, "")
	send()
	s.post(agent(id, "/update"), json.RawMessage(`{"llm":{"params":{"fake":{"tool_name":"","answer":"Done."}}}}`)).ok(nil)
	calls, ok := out.Choices[0].Message["tool_calls"].([]any)
	if !ok {
		t.Fatalf("%+v", out)
	}
	call, ok := calls[0].(map[string]any)
	if !ok {
		t.Fatalf("%+v", out)
	}
	list = append(list, out.Choices[0].Message, map[string]any{"role": "tool", "tool_call_id": call["id"], "content": "paid with canary"})
	send()
	s.post(agent(id, "/resume"), nil).ok(nil)
	call["id"] = "another" // some clients number the calls themselves
	list[2] = map[string]any{"role": "tool", "tool_call_id": "another", "content": "paid with canary"}
	list = append(list, assistant("Done."), user("Fine."))
	send()
	if !strings.Contains(sentUp(llm), "canary") {
		t.Errorf("the model was shown %s", sentUp(llm))
	}
	var got []string
	for _, m := range s.ledger(id) {
		got = append(got, m.Role+": "+m.Content)
	}
	if want := "user: [paused]|assistant: |tool: [paused]|assistant: [paused]|user: Fine.|assistant: Done."; strings.Join(got, "|") != want {
		t.Errorf("the ledger holds %q, want %q", strings.Join(got, "|"), want)
	}
	s.wantNowhere(t, id, h, hidden)
}

// TestPauseLate: an answer that ends after the pause, an error, words from before that go on in the
// pause, and lists without answers.
func TestPauseLate(t *testing.T) {
	t.Parallel()
	needsFile(t)
	_, base := upstream(t, fake.Script{Answer: "Go on."})
	_, hanging := upstream(t, fake.Script{Chunks: []string{"One", " canary", " two"}, HangAfter: 2})
	_, failing := upstream(t, fake.Script{Status: 400, Body: `{"error":{"message":"canary is no word"}}`})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_RETRIES=0")
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"*"}})
	id := s.join("n", map[string]any{"llm": map[string]any{"url": hanging + "/chat/completions"}, "heardlog": map[string]any{"policy": map[string]any{"max_messages": 20}}})
	s.pause(id, "")
	s.streaming(id, canarySaid)
	s.post(agent(id, "/resume"), nil).ok(nil)
	s.interrupt(id, nil).ok(nil)
	if m := s.last(id); m.Role != "assistant" || m.Content+m.Generated != hidden+hidden {
		t.Errorf("%+v", m)
	}
	id = s.join("failing", map[string]any{"llm": map[string]any{"url": failing + "/chat/completions"}})
	s.pause(id, "")
	if got := s.chat(agent(id, "/chat/completions"), canarySaid, false); got.status < 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.get(agent(id, "/messages")).ok(nil)
	// Without an answer in it, a list is a list all the same.
	other := s.join("other", nil)
	send := func(words ...string) {
		var list []any
		for _, w := range words {
			list = append(list, user(w))
		}
		s.post(agent(other, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
	}
	send("It is")
	s.pause(other, "")
	send("It is canary")
	s.post(agent(other, "/resume"), nil).ok(nil)
	send("It is canary", "Well?")
	var got []string
	for _, m := range s.ledger(other) {
		if m.Role == "user" {
			got = append(got, m.State+" "+m.Content)
		}
	}
	if want := "final It is|final [paused]|final Well?"; strings.Join(got, "|") != want {
		t.Errorf("the caller's words are %q, want %q", strings.Join(got, "|"), want)
	}
	s.wantNowhere(t, other, h, hidden)
}
