package tests

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestRedactionOfParts: addresses, data and names in messages. Pictures stay as they are, and calls
// of tools are still linked to their results, upstream too.
func TestRedactionOfParts(t *testing.T) {
	t.Parallel()
	needsFile(t)
	llm, base := upstream(t, fake.Script{Answer: "Fine."})
	s, _, h, ear := redacting(t, "HEARDLOG_LLM_URL="+base)
	const mail = "jane@mail.example"
	picture := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n"+strings.Repeat("\x00\x01\xff", 40)))
	id := s.join("n", nil)
	parts := []any{
		map[string]any{"type": "text", "text": "Look"},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://x.example/?email=" + mail + "&size=2"}},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": picture}},
		map[string]any{"type": "file", "file": map[string]any{"filename": "a.txt", "file_data": "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte("I am "+mail))}},
	}
	named := map[string]any{"role": "user", "content": parts, "id": "+49 30 1234567"}
	first, again := s.say(id, named), s.say(id, named)
	if first[0].Seq != again[0].Seq || !strings.HasPrefix(first[0].ID, "phone_") {
		t.Errorf("%+v %+v", first[0], again[0])
	}
	calls := []any{map[string]any{"id": mail, "type": "function", "function": map[string]any{"name": "f", "arguments": "{}"}}}
	s.say(id, map[string]any{"role": "assistant", "content": nil, "tool_calls": calls})
	// The result comes with the next request, under the name that the model gave.
	s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": []any{map[string]any{"role": "tool", "tool_call_id": mail, "content": "ok"}}}).ok(nil)
	if up := sentUp(llm); strings.Count(up, `"email_`) != 2 || strings.Contains(up, mail+`"`) || !strings.Contains(up, picture) {
		t.Errorf("the model was shown %s", up)
	}
	// A client that sends all again adds nothing.
	list := []any{
		map[string]any{"role": "user", "content": parts}, map[string]any{"role": "assistant", "content": nil, "tool_calls": calls},
		map[string]any{"role": "tool", "tool_call_id": mail, "content": "ok"}, assistant("Fine."), user("Thanks"),
	}
	s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
	if up := sentUp(llm); strings.Count(up, `"email_`) != 2 || !strings.Contains(up, "https://x.example/?email="+mail) {
		t.Errorf("the model was shown %s", up)
	}
	s.client.Transport = ear
	if n := len(s.ledger(id)); n != 6 {
		t.Errorf("the ledger has %d messages", n)
	}
	if all := string(s.get(agent(id, "/messages?limit=1000")).body); !strings.Contains(all, picture) || !strings.Contains(all, "https://x.example/?email=[email]") {
		t.Errorf("%s", all)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	var hooked strings.Builder
	for ended := false; !ended; {
		c := h.next(t)
		hooked.Write(c.body)
		ended = c.EventType == 103
	}
	s.stop()
	ear.mu.Lock()
	places := map[string]string{"the log": s.log.String(), "an answer": ear.all.String(), "an event": hooked.String()}
	ear.mu.Unlock()
	places["the files"] = s.files()
	for where, text := range places {
		if at := personal.FindStringIndex(text); at != nil || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("I am jan"))[:10]) {
			t.Errorf("%s holds personal data: %v", where, at)
		}
	}
}

// TestRedactedToolResent: a client that sends the model's tool call and its result again, as SDKs
// do, adds nothing, although the ledger has both with a number replaced.
func TestRedactedToolResent(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Done."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_REDACT=card")
	id := s.join("n", nil)
	call := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "pay", "arguments": `{"card":"4111 1111 1111 1111"}`}}}}
	result := map[string]any{"role": "tool", "tool_call_id": "c1", "content": "paid with 4111 1111 1111 1111"}
	s.say(id, user("Pay please"), call, result)
	for range 2 {
		s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": []any{call, result, user("And now?")}}, "X-Heardlog-Mode", "inject").ok(nil)
	}
	var page struct {
		Messages []struct{ Role, Content string }
	}
	s.get(agent(id, "/messages?limit=100")).ok(&page)
	tools := 0
	for _, m := range page.Messages {
		if m.Role == "tool" {
			tools++
		}
	}
	if tools != 1 {
		t.Errorf("%d results are stored: %+v", tools, page.Messages)
	}
}
