package handlers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
)

// TestServerTiming checks that every answer says where its time went, and that the ledger keeps
// what the upstream took.
func TestServerTiming(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	all := regexp.MustCompile(`^proxy;dur=[0-9.]+, memory;dur=[0-9.]+, upstream_ttfb;dur=([0-9.]+)$`)
	own := regexp.MustCompile(`^proxy;dur=[0-9.]+, memory;dur=[0-9.]+$`)
	for name, tt := range map[string]struct {
		script map[string]any
		more   string
		status int
		want   *regexp.Regexp
	}{
		"stream":       {map[string]any{"delay_first": "30ms"}, `,"stream":true`, 200, all},
		"silent start": {map[string]any{"delay_body": "30ms"}, `,"stream":true`, 200, all},
		"whole":        {map[string]any{"delay_first": "30ms"}, ``, 200, all},
		"refused":      {map[string]any{"status": 429}, `,"stream":true`, 429, own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := p.join(script(tt.script))
			res := p.post(t.Context(), agent, say("hi", tt.more))
			body := p.read(res)
			got := tt.want.FindStringSubmatch(res.Header.Get("Server-Timing"))
			if res.StatusCode != tt.status || got == nil {
				t.Fatalf("%s, Server-Timing %q", res.Status, res.Header.Get("Server-Timing"))
			}
			if tt.want == own {
				return
			}
			var ms float64
			if _, err := fmt.Sscan(got[1], &ms); err != nil || ms < 25 || ms > 20_000 {
				t.Errorf("the upstream took its time: %s", got[0])
			}
			m := p.ledger(agent)[1]
			if m.Timings.UpstreamFirstByteMS < 25 || m.Timings.UpstreamFirstByteMS > m.Timings.FirstTokenMS || m.Timings.UpstreamBytes != int64(len(body)) {
				t.Errorf("%d bytes came; %+v", len(body), m.Timings)
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		agent := p.join(func(l *memory.LLMSettings) { l.URL = "http://127.0.0.1:1" })
		if res := p.post(t.Context(), agent, say("hi", "")); res.StatusCode != http.StatusBadGateway || !own.MatchString(res.Header.Get("Server-Timing")) {
			t.Errorf("%s, Server-Timing %q", res.Status, res.Header.Get("Server-Timing"))
		}
	})
	t.Run("no turn", func(t *testing.T) {
		t.Parallel()
		if res := p.post(t.Context(), "unknown", say("hi", "")); res.StatusCode != http.StatusNotFound || res.Header.Get("Server-Timing") != "" {
			t.Errorf("%s, Server-Timing %q", res.Status, res.Header.Get("Server-Timing"))
		}
	})
}

// raw serves fixed bytes as an answer and returns the URL.
func raw(t *testing.T, contentType, body string) string {
	t.Helper()
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(back.Close)
	return back.URL
}

// TestCustomMetadata checks that metadata in front of an answer reaches the client and is not part
// of it: not of its text or ID, and not an answer on its own.
func TestCustomMetadata(t *testing.T) {
	t.Parallel()
	const meta = `data: {"id":"r1","object":"chat.completion.custom_metadata","choices":[{"delta":{"content":"no"}}],"metadata":{"interruptable":false,"tts_params":{"params":{"rate":1.1}}}}` + "\n\n"
	const hello = `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}` + "\n\n"
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) { l.URL = raw(t, "text/event-stream", meta+hello+"data: [DONE]\n\n") })
	if got := p.read(p.post(t.Context(), agent, say("hi", `,"stream":true`))); got != meta+hello+"data: [DONE]\n\n" {
		t.Errorf("%q", got)
	}
	if m := p.ledger(agent)[1]; m.Original() != "Hello." || m.UpstreamID != "c1" {
		t.Errorf("%+v", m)
	}
	empty := p.join(func(l *memory.LLMSettings) { l.URL = raw(t, "text/event-stream", meta) })
	res := p.post(t.Context(), empty, say("hi", `,"stream":true`))
	if _, err := io.ReadAll(res.Body); err == nil && res.StatusCode < 500 {
		t.Errorf("metadata without an answer ended as one: %s", res.Status)
	}
	if m := p.ledger(empty)[1]; m.Failure == nil || m.Original() != "" {
		t.Errorf("%+v", m)
	}
}

// TestCustomMetadataIsNoFirstToken checks that the limit for the first token includes metadata.
func TestCustomMetadataIsNoFirstToken(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) {
		script(map[string]any{"raw": `data: {"id":"r1","object":"chat.completion.custom_metadata","choices":[],"metadata":{}}` + "\n\n", "hang_after": 1})(l)
		l.FirstTokenTimeoutMS, l.IdleTimeoutMS = 100, 60_000
	})
	res := p.post(t.Context(), agent, say("hi", `,"stream":true`))
	_, _ = io.Copy(io.Discard, res.Body) // it breaks off
	if m := p.ledger(agent)[1]; m.Failure == nil || !strings.Contains(m.Failure.Message, "first token") || m.Timings.FirstTokenMS != 0 {
		t.Errorf("%+v %+v", m.Failure, m.Timings)
	}
}

// TestAudioAnswer checks that of an answer in audio the text is stored, the audio is not, and the
// client gets all of it.
func TestAudioAnswer(t *testing.T) {
	t.Parallel()
	sound := strings.Repeat("UklGRg==", 8<<10)
	chunk := func(audio string) string {
		return `data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"audio":` + audio + `},"finish_reason":null}]}` + "\n\n"
	}
	stream := chunk(`{"id":"a1","transcript":"At "}`) + chunk(`{"data":"`+sound+`"}`) + chunk(`{"transcript":"nine.","words":[{"text":"nine.","start_ts":0,"end_ts":300,"duration":300}]}`) + "data: [DONE]\n\n"
	whole := `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"audio":{"id":"a1","data":"` + sound + `","expires_at":1,"transcript":"At nine."}},"finish_reason":"stop"}]}`
	both := `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"At nine.","audio":{"id":"a1","data":"` + sound + `","expires_at":1,"transcript":"At nine."}},"finish_reason":"stop"}]}`
	for name, tt := range map[string]struct{ typ, body, more string }{
		"stream":       {"text/event-stream", stream, `,"stream":true`},
		"whole":        {"application/json", whole, ""},
		"text as well": {"application/json", both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, func(c *turn.Config) { c.Defaults.URL = raw(t, tt.typ, tt.body) })
			agent := p.join(nil)
			if got := p.read(p.post(t.Context(), agent, say("When?", tt.more))); got != tt.body {
				t.Errorf("%d bytes came of %d", len(got), len(tt.body))
			}
			msgs := p.ledger(agent)
			if diff := cmp.Diff([]string{"user: When?", "assistant: At nine."}, lines(msgs)); diff != "" {
				t.Error(diff)
			}
			if kept := fmt.Sprintf("%+v", msgs); strings.Contains(kept, "UklGRg") {
				t.Error("the sound is kept")
			}
		})
	}
}
