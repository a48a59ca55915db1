package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/realtime/realtimetest"
)

// quoted is what upstreams say of a request that they refuse: with the words of the caller.
const quoted = `{"error":{"message":"bad input: 'My card is 4111 1111 1111 1111'","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"jane@mail.example, 4111 1111 1111 1111\"}}"}}}`

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRedactionOfUpstreamErrors: an LLM that quotes the caller in its error puts no personal data
// into the ledger, events, tails and the log, whatever form the error has. The client gets it as it
// came.
func TestRedactionOfUpstreamErrors(t *testing.T) {
	t.Parallel()
	frame := "data: " + quoted + "\n\n"
	word := `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Well, "}}]}` + "\n\n"
	long := strings.Repeat("x ", 494) // the text is kept up to the middle of the number
	for name, script := range map[string]fake.Script{
		"a status":                {Status: 400, Body: quoted},
		"a status without JSON":   {Status: 422, Body: "we do not accept jane@mail.example or 4111 1111 1111 1111"},
		"a long body":             {Status: 400, Body: long + "4111 1111 1111 1111"},
		"5xx":                     {Status: 500, Body: quoted},
		"a frame":                 {Raw: frame},
		"a frame after words":     {Raw: word + frame},
		"an object":               {Body: quoted, Type: "application/json"},
		"a long one inside 200":   {Raw: word + `data: {"error":{"message":"` + long + `4111 1111 1111 1111"}}` + "\n\n"},
		"an event of the type":    {Raw: word + "event: error\n" + frame},
		"a list of errors":        {Body: `[` + quoted + `]`, Status: 400},
		"a number alone":          {Raw: word + `data: {"error":"4111111111111111"}` + "\n\n"},
		"a message without error": {Raw: `data: {"object":"error","message":"no 4111 1111 1111 1111"}` + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, base := upstream(t, script)
			s, _, h, ear := redacting(t, "HEARDLOG_LLM_RETRIES=0", "HEARDLOG_LLM_URL="+base)
			id := s.join("n", nil)
			tail := s.tail(id)
			for _, path := range []string{"/chat/completions", "/chat/completions", "/responses"} {
				for _, stream := range []bool{true, false} {
					body := map[string]any{"model": "m", "stream": stream, "messages": []any{user(cardSaid)}}
					if path == "/responses" {
						body = map[string]any{"model": "m", "stream": true, "input": cardSaid}
					}
					res, err := s.client.Post(s.url+agent(id, path), "application/json", strings.NewReader(jsonOf(t, body)))
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body) // a stream may be broken off
						_ = res.Body.Close()
					}
				}
			}
			s.post(agent(id, "/think"), `{"text":"write to jane@mail.example"}`).ok(nil)
			waitFor(t, "seven turns", func() bool {
				answers, failed := 0, 0
				for _, m := range s.entries(id) {
					if m.Role == "assistant" {
						answers++
					}
					if m.Failure != nil {
						failed++
					}
				}
				return answers == 7 && failed > 2
			})
			s.client.Transport = ear
			s.get(agent(id, "/messages?limit=1000")).ok(nil)
			s.get(agent(id, "/turns")).ok(nil)
			for turn := range 9 {
				s.get(agent(id, fmt.Sprintf("/turns/%d/requests", turn)))
			}
			s.post(agent(id, "/leave"), nil).ok(nil)
			var seen, hooked strings.Builder
			for e, ok := tail.next(); ok; e, ok = tail.next() {
				seen.Write(e.data)
			}
			for kinds := map[int]bool{}; !kinds[103] || !kinds[110] || !kinds[112]; {
				c := h.next(t)
				hooked.Write(c.body)
				kinds[c.EventType] = true
			}
			s.stop()
			ear.mu.Lock()
			defer ear.mu.Unlock()
			for where, text := range map[string]string{"the log": s.log.String(), "an answer": ear.all.String(), "the tail": seen.String(), "an event": hooked.String()} {
				if at := personal.FindStringIndex(text); at != nil {
					t.Errorf("%s holds personal data: …%q…", where, text[max(0, at[0]-160):min(len(text), at[1]+40)])
				}
			}
		})
	}
}

// TestRedactionOfQuotedPart: an error that quotes the last part of a number that is spread over two
// messages.
func TestRedactionOfQuotedPart(t *testing.T) {
	t.Parallel()
	s, _, h, _ := redacting(t, "HEARDLOG_LLM_RETRIES=0")
	id := s.join("n", nil)
	s.chat(agent(id, "/chat/completions"), "My card is 4929 1234", true).ok(nil)
	script := map[string]any{"status": http.StatusBadRequest, "body": `{"error":{"message":"do not send 5678 9015 after 4929 1234"}}`}
	s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": []any{user("5678 9015")}, "fake": script})
	list := s.entries(id)
	said := jsonOf(t, list[len(list)-1].Failure)
	if spreadDigits.MatchString(said) || !strings.Contains(said, "[card]") {
		t.Errorf("%s", said)
	}
	for {
		if c := h.next(t); c.EventType == 110 {
			if spreadDigits.Match(c.body) {
				t.Errorf("%s", c.body)
			}
			return
		}
	}
}

// TestRedactionOfRealtimeErrors: what a realtime model says of a failed answer, and its error
// events.
func TestRedactionOfRealtimeErrors(t *testing.T) {
	t.Parallel()
	s, model, id, c := relayed(t, realtimetest.Config{Answer: replies(
		realtimetest.Reply{Fails: "no 4111 1111 1111 1111"}, realtimetest.Reply{Fails: strings.Repeat("x", 490) + " 4111 1111 1111 1111"}, realtimetest.Reply{Text: "Yes."},
	)}, "HEARDLOG_REDACT=card,email")
	model.Last().Send(map[string]any{"type": "error", "error": map[string]any{"type": "server_error", "message": "no jane@mail.example"}})
	if e := jsonOf(t, c.await("error", 1)); !strings.Contains(e, "jane@mail.example") {
		t.Errorf("the client got %s", e)
	}
	for i := range 3 {
		c.write("When?")
		c.send(map[string]any{"type": "response.create"})
		c.await("response.done", i+1)
	}
	list := s.stored(id, func(list []entry) bool { return len(list) == 6 })
	text := jsonOf(t, list)
	if personal.MatchString(text) || !strings.Contains(text, "[card]") || !strings.Contains(text, "[email]") {
		t.Errorf("%s", text)
	}
}
