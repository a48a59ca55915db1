package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const (
	cardSaid   = "My card is 4111 1111 1111 1111, thanks."
	cardStored = "My card is [card], thanks."
	cardAnswer = "I read back 4111 1111 1111 1111 now, is that right?"
	readBack   = "I read back [card] now, is that right?"
)

var personal = regexp.MustCompile(`1111 1111|4111111111|jane@mail|DE89 ?3704|TK-4711|\+49 30`)

// redacting is a server that replaces personal data, with an upstream and a receiver of all events.
func redacting(t *testing.T, env ...string) (*server, *fake.LLM, *hook, *eavesdropper) {
	t.Helper()
	llm, base := upstream(t, fake.Script{Answer: cardAnswer})
	s := start(t, append([]string{"HEARDLOG_LLM_URL=" + base, "HEARDLOG_REDACT=card,iban,phone,email", "HEARDLOG_LOG_LEVEL=debug"}, env...)...)
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"*"}})
	return s, llm, h, &eavesdropper{base: s.client.Transport}
}

// sentUp returns the body of the newest request to the upstream.
func sentUp(llm *fake.LLM) string {
	list := llm.Requests()
	return string(list[len(list)-1].Body)
}

// TestRedaction: personal data reaches the LLM in the request that brings it, and the caller in the
// answer, and nothing else, whatever way it comes in.
func TestRedaction(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s, llm, h, ear := redacting(t)
	id := s.join("n", map[string]any{
		"labels": map[string]string{"tenant": "jane@mail.example"}, "heardlog": map[string]any{"redact": map[string]any{"own": map[string]string{"ticket": `\bTK-\d+\b`}}},
	})
	tail := s.tail(id)
	for _, stream := range []bool{true, false} {
		got := s.chat(agent(id, "/chat/completions"), cardSaid, stream).ok(nil)
		if !strings.Contains(string(got.body), "1111") || !strings.Contains(sentUp(llm), cardSaid) {
			t.Errorf("the model was not asked, or the caller not answered, as before: %s %s", sentUp(llm), got.body)
		}
	}
	if n := strings.Count(sentUp(llm), "1111 1111 1111"); n != 1 || !strings.Contains(sentUp(llm), readBack) {
		t.Errorf("the memory shows the model: %s", sentUp(llm))
	}
	s.say(id, user("TK-4711, IBAN DE89 3704 0044 0532 0130 00"), map[string]any{"role": "assistant", "content": "Call +49 30 1234567", "metadata": map[string]any{"note": "jane@mail.example"}})
	named := map[string]any{"role": "user", "content": cardSaid, "id": "m1"}
	if first, again := s.say(id, named), s.say(id, named); again[0].Seq != first[0].Seq || again[0].Content != cardStored {
		t.Errorf("%+v %+v", first, again)
	}
	calls := []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "pay", "arguments": `{"card":4111111111111111}`}}}
	s.say(id, map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": `{"paid_with":"4111111111111111"}`})
	s.post(agent(id, "/speak"), `{"text":"We call +49 30 1234567."}`).ok(nil)
	s.post(v1+"/memories", map[string]any{"memory_type": "human", "content": "jane@mail.example", "user_id": "u"})
	s.do("PUT", agent(id, "/summary"), `{"summary":"She pays with 4111 1111 1111 1111."}`)
	s.do("PUT", agent(id, "/working-memory/k"), `{"value":{"card":"4111 1111 1111 1111"}}`)
	s.post(agent(id, "/think"), `{"text":"write to jane@mail.example"}`).ok(nil)
	var seen strings.Builder
	seen.WriteString(tail.answers(3, readBack)) // those of the two calls, and of think
	s.client.Transport = ear
	for _, what := range []string{"", "/history?limit=all", "/turns", "/messages?limit=1000", "/working-memory/k"} {
		s.get(agent(id, what))
	}
	s.post(agent(id, "/context"), `{}`).ok(nil)
	s.post(agent(id, "/snapshot"), `{}`)
	s.get(agent(id, "/messages?limit=1000")).ok(nil)
	s.post(agent(id, "/leave"), nil).ok(nil)
	for e, ok := tail.next(); ok; e, ok = tail.next() {
		seen.Write(e.data)
	}
	var hooked strings.Builder
	for ended := false; !ended; {
		c := h.next(t)
		hooked.Write(c.body)
		ended = strings.Contains(string(c.body), `"eventType":103`)
	}
	s.stop()
	ear.mu.Lock()
	places := map[string]string{"the log": s.log.String(), "an answer": ear.all.String(), "the tail": seen.String(), "a webhook": hooked.String()}
	ear.mu.Unlock()
	places["the files"] = s.files()
	for where, text := range places {
		// Properties of the join are kept as they came.
		text = strings.ReplaceAll(text, `"tenant":"jane@mail.example"`, "")
		if at := personal.FindStringIndex(text); at != nil {
			t.Errorf("%s holds personal data: …%q…", where, text[max(0, at[0]-160):min(len(text), at[1]+40)])
		}
		if where != "the log" && !strings.Contains(text, "[card]") {
			t.Errorf("%s holds no replaced number: the test proves nothing", where)
		}
	}
	for _, mask := range []string{"[ticket]", "[iban]", "[phone]", "[email]"} {
		if !strings.Contains(places["an answer"], mask) {
			t.Errorf("no answer holds %s", mask)
		}
	}
}

// TestRedactionReconciles: a platform that sends its list again with the original words causes no
// new messages, and an answer that was cut within a number is recognized.
func TestRedactionReconciles(t *testing.T) {
	t.Parallel()
	s, llm, _, _ := redacting(t)
	id := s.join("n", nil)
	list := []any{user(cardSaid)}
	send := func() string {
		return string(s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil).body)
	}
	send()
	list = append(list, assistant(cardAnswer), user("Yes."))
	send()
	list = append(list, assistant("I read back 4111 1111"), user("Wait, it is jane@mail.example too."))
	send()
	send()
	if up := sentUp(llm); !strings.Contains(up, cardSaid) || !strings.Contains(up, "jane@mail.example") {
		t.Errorf("the model was shown %s", up)
	}
	var got []string
	for _, m := range s.ledger(id) {
		if !m.Ghost && m.State == "final" {
			got = append(got, m.Role+": "+m.Content)
		}
	}
	want := []string{"user: " + cardStored, "assistant: " + readBack, "user: Yes.", "assistant: I read back", "user: Wait, it is [email] too.", "assistant: " + readBack}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the ledger holds %q, want %q", got, want)
	}
}

// TestRedactionHeard: what was heard of an answer is found in its redacted form.
func TestRedactionHeard(t *testing.T) {
	t.Parallel()
	s, _, _, _ := redacting(t)
	id := s.join("n", nil)
	for heard, want := range map[string]string{
		"I read back 4111 1111": "I read back", "I read back 4111 1111 1111 1111 now": "I read back [card] now", "I read": "I read",
	} {
		s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
		s.interrupt(id, map[string]any{"heard": heard}).ok(nil)
		if m := s.last(id); strings.TrimSpace(m.Content) != want || m.Generated != readBack {
			t.Errorf("heard %q: %q of %q", heard, m.Content, m.Generated)
		}
	}
	s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
	var words []any // 300 ms each; the caller cuts in within the number
	for i, w := range strings.Fields("I read back 4111 1111 1111 1111 now, is that right?") {
		words = append(words, map[string]any{"word": w, "start_ms": i * 300, "end_ms": i*300 + 290})
	}
	s.post(agent(id, "/evidence/openai-realtime"), map[string]any{"type": "conversation.item.truncate", "audio_end_ms": 1500, "words": words}).ok(nil)
	if m := s.last(id); strings.TrimSpace(m.Content) != "I read back" {
		t.Errorf("heard by word times: %q", m.Content)
	}
	if m := s.last(id); personal.MatchString(m.Content + m.Generated) {
		t.Errorf("%+v", m)
	}
}

// TestRedactionUpstream: with upstream "redacted" the LLM sees no personal data either.
func TestRedactionUpstream(t *testing.T) {
	t.Parallel()
	s, llm, _, _ := redacting(t)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"redact": map[string]any{"upstream": "redacted"}}})
	s.chat(agent(id, "/chat/completions"), cardSaid, true).ok(nil)
	if up := sentUp(llm); !strings.Contains(up, cardStored) {
		t.Errorf("inject: the model was shown %s", up)
	}
	s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": []any{user(cardSaid), assistant(cardAnswer), user("and " + cardSaid)}}).ok(nil)
	if up := sentUp(llm); personal.MatchString(up) || !strings.Contains(up, "and "+cardStored) {
		t.Errorf("reconcile: the model was shown %s", up)
	}
	// A policy builds the context from the store.
	other := s.join("other", map[string]any{"heardlog": map[string]any{"policy": map[string]any{"max_messages": 4}}})
	s.chat(agent(other, "/chat/completions"), cardSaid, true).ok(nil)
	if up := sentUp(llm); !strings.Contains(up, cardSaid) {
		t.Errorf("with a policy the model was shown %s", up)
	}
	for body, field := range map[string]string{
		`{"types":["ssn"]}`: "properties.heardlog.redact.types", `{"own":{"a":"("}}`: "properties.heardlog.redact.own.a", `{"upstream":"x"}`: "properties.heardlog.redact.upstream",
	} {
		s.post(v1+"/join", map[string]any{"name": "bad", "properties": map[string]any{"heardlog": map[string]any{"redact": json.RawMessage(body)}}}).
			refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
}

// TestRedactionOfBrokenAnswer: an answer that ends within a number does not leave its beginning.
func TestRedactionOfBrokenAnswer(t *testing.T) {
	t.Parallel()
	s, _, _, _ := redacting(t)
	id := s.join("n", map[string]any{"llm": map[string]any{"params": map[string]any{"fake": map[string]any{"answer": cardAnswer, "close_after": 6}}}})
	// The client's stream is broken off.
	res, err := s.client.Post(s.url+agent(id, "/chat/completions"), "application/json", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	waitFor(t, "the answer", func() bool { return len(s.ledger(id)) == 2 })
	if m := s.last(id); m.Role != "assistant" || strings.Contains(m.Content+m.Generated, "1111") {
		t.Errorf("%+v", m)
	}
}
