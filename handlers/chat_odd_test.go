package handlers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// oddLLM is an upstream that answers every call with the given headers and body.
func oddLLM(t *testing.T, header map[string]string, body string) func(*memory.LLMSettings) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return func(l *memory.LLMSettings) {
		l.URL, l.APIKey = srv.URL+"/v1/chat/completions", "configured-secret-key"
	}
}

// TestChatNoAnswer checks that a 200 without an answer in it counts as a failure: the caller hears
// the failure message, not silence or a web page.
func TestChatNoAnswer(t *testing.T) {
	t.Parallel()
	stream := map[string]string{"Content-Type": "text/event-stream"}
	for name, odd := range map[string]struct {
		header map[string]string
		body   string
	}{
		"nothing": {nil, ""}, "a page": {map[string]string{"Content-Type": "text/html"}, "<html>hello</html>"},
		"compressed": {map[string]string{"Content-Encoding": "gzip"}, "\x1f\x8b\x08rubbish"}, "other JSON": {map[string]string{"Content-Type": "application/json"}, `{"hello":1}`},
		"an empty stream": {stream, ""}, "comments only": {stream, ": ping\n\n"},
	} {
		for _, streamed := range []string{"", `,"stream":true`} {
			t.Run(name+streamed, func(t *testing.T) {
				t.Parallel()
				p := newProxy(t, nil)
				llm := oddLLM(t, odd.header, odd.body)
				plain := p.join(llm)
				res := p.post(t.Context(), plain, say("hello?", streamed))
				body, err := io.ReadAll(res.Body)
				if res.StatusCode != http.StatusBadGateway && err == nil && !strings.Contains(string(body), `"error"`) {
					t.Errorf("%d %q", res.StatusCode, body)
				}
				msgs := p.ledger(plain)
				if last := msgs[len(msgs)-1]; last.Failure == nil || last.State != memory.Empty {
					t.Errorf("the ledger says %+v, want a failure", last)
				}
				kind := p.join(func(l *memory.LLMSettings) { llm(l); l.FailureMessage = "One moment, please." })
				if got := p.read(p.post(t.Context(), kind, say("hello?", streamed))); !strings.Contains(got, "One moment, please.") {
					t.Errorf("the failure message was not given: %q", got)
				}
			})
		}
	}
}

// TestChatEndlessAnswer checks that an endless answer is relayed, and stored up to the length of a
// message.
func TestChatEndlessAnswer(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	var b strings.Builder
	word := strings.Repeat("x", 1000)
	for range 2 * llmadapter.MaxAnswer / len(word) {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", word)
	}
	b.WriteString("data: [DONE]\n\n")
	id := p.join(oddLLM(t, map[string]string{"Content-Type": "text/event-stream"}, b.String()))
	if got := p.read(p.post(t.Context(), id, say("go on", `,"stream":true`))); got != b.String() {
		t.Errorf("passed on %d of %d bytes", len(got), b.Len())
	}
	msgs := p.ledger(id)
	if last := msgs[len(msgs)-1]; len(last.Content) > llmadapter.MaxAnswer || len(last.Content) < llmadapter.MaxAnswer-2*len(word) || !last.CutGenerated {
		t.Errorf("kept %d bytes, cut %v", len(last.Content), last.CutGenerated)
	}
}

// TestChatSecretInError checks that a key that an upstream repeats in an error is not stored with
// the failure.
func TestChatSecretInError(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	id := p.join(oddLLM(t, map[string]string{"Content-Type": "text/event-stream"},
		"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"key configured-secret-key is over its quota\"}}\n\n"))
	res := p.post(t.Context(), id, say("go", `,"stream":true`))
	_, _ = io.ReadAll(res.Body)
	msgs := p.ledger(id)
	last := msgs[len(msgs)-1]
	if last.Failure == nil || strings.Contains(last.Failure.Message, "configured-secret-key") || !strings.Contains(last.Failure.Message, "quota") {
		t.Errorf("failure %+v", last.Failure)
	}
}
