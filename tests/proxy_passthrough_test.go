package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// other is an upstream with more than chat completions; it keeps what came.
type other struct {
	mu   sync.Mutex
	seen []string
	last http.Header
	gone chan struct{} // closed when a client of /v1/slow has gone
}

func newOther(t *testing.T) (*other, string) {
	t.Helper()
	o := &other{gone: make(chan struct{})}
	srv := httptest.NewServer(o)
	t.Cleanup(srv.Close)
	return o, srv.URL + "/v1"
}

func (o *other) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	o.seen = append(o.seen, fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, body))
	o.last = r.Header.Clone()
	o.mu.Unlock()
	h := w.Header()
	h.Set("Set-Cookie", "a=b")
	h.Set("X-Ratelimit-Remaining-Requests", "9")
	switch r.URL.Path {
	case "/v1/embeddings":
		h.Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[%q]}`, "e")
	case "/v1/audio/speech":
		h.Set("Content-Type", "audio/mpeg")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "noise")
	case "/v1/files":
		h["Content-Type"] = nil
		_, _ = io.WriteString(w, "<script>")
	case "/v1/slow":
		h.Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(o.gone)
	case "/v1/stalls":
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/v1/broken":
		h.Set("Content-Length", "100")
		_, _ = io.WriteString(w, "part")
	default:
		h.Set("Content-Type", "application/json")
		h.Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"message":"no more for sk-server-QWERTY"}}`)
	}
}

func (o *other) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.seen...)
}

// plain returns the server with a client that accepts answers of the upstream's own paths, which
// openapi.yaml cannot list.
func (s *server) plain() *server {
	sub := *s
	sub.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &sub
}

// TestPassThrough: paths of the setting are forwarded with the server's key and none of the
// client's credentials, and answers come back unchanged.
func TestPassThrough(t *testing.T) {
	t.Parallel()
	o, base := newOther(t)
	s := start(t, "HEARDLOG_LLM_URL="+base+"?tag=t1", "HEARDLOG_LLM_API_KEY=sk-server-QWERTY", "HEARDLOG_PASSTHROUGH=/v1/embeddings, /v1/audio/*,/v1/files,/v1/other,/v1/slow,/v1/broken,/v1/stalls", "HEARDLOG_LLM_IDLE_TIMEOUT=500ms",
		"HEARDLOG_CREDENTIALS=p1=me:secret-of-mine", "HEARDLOG_MAX_BODY=20000")
	auth := []string{"Authorization", basic("me", "secret-of-mine"), "Cookie", "session=1", "X-Custom", "no", "Traceparent", "00-1-2-01"}
	got := s.post(v1+"/embeddings", `{"model":"e1","input":"x"}`, auth...).ok(nil)
	if string(got.body) != `{"object":"list","data":["e"]}` || got.header.Get("Set-Cookie") != "" || got.header.Get("X-Ratelimit-Remaining-Requests") != "9" {
		t.Errorf("%s %v", got.body, got.header)
	}
	if h := o.last; h.Get("Authorization") != "Bearer sk-server-QWERTY" || h.Get("Cookie") != "" || h.Get("X-Custom") != "" || h.Get("Traceparent") == "" {
		t.Errorf("the upstream got %v", h)
	}
	p := s.plain()
	speech := p.post(v1+"/audio/speech?voice=a", `{"input":"x"}`, append(auth, "Content-Type", "multipart/form-data; boundary=b", "Accept", "audio/mpeg")...).ok(nil)
	if string(speech.body) != "noise" || speech.header.Get("Content-Type") != "audio/mpeg" || o.last.Get("Content-Type") != "multipart/form-data; boundary=b" || o.last.Get("Accept") != "audio/mpeg" {
		t.Errorf("%q %v, upstream %v", speech.body, speech.header, o.last)
	}
	files := p.get(v1+"/files", auth...).ok(nil)
	if files.header.Get("X-Content-Type-Options") != "nosniff" || files.header.Get("Content-Security-Policy") != "sandbox" || strings.Contains(files.header.Get("Content-Type"), "html") {
		t.Errorf("a browser may take the answer for a page of ours: %v", files.header)
	}
	refused := p.do(http.MethodDelete, v1+"/other", nil, auth...)
	if refused.status != http.StatusTooManyRequests || refused.header.Get("Retry-After") != "7" || strings.Contains(string(refused.body), "QWERTY") || !strings.Contains(string(refused.body), "[secret]") {
		t.Errorf("%d %v %s", refused.status, refused.header, refused.body)
	}
	want := []string{`POST /v1/embeddings?tag=t1 {"model":"e1","input":"x"}`, `POST /v1/audio/speech?tag=t1&voice=a {"input":"x"}`, "GET /v1/files?tag=t1 ", "DELETE /v1/other?tag=t1 "}
	if seen := o.requests(); strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the upstream saw %q", seen)
	}
	s.post(v1+"/embeddings", "x"+strings.Repeat("x", 20000), auth...).failed(413, "too_large", "20000")
	s.post(v1+"/embeddings", `{}`).failed(401, "unauthenticated", "authorization")
	if got := s.find("", auth...).Agents; len(got) > 0 {
		t.Errorf("something is remembered: %+v", got)
	}
	s.abandoned(t, o, auth)
}

// abandoned: a client that disconnects ends the upstream's answer, and an upstream that breaks off
// does not count as complete.
func (s *server) abandoned(t *testing.T, o *other, auth []string) {
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+v1+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(auth[0], auth[1])
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Errorf("%v: %q", err, line)
	}
	leave()
	_ = resp.Body.Close()
	<-o.gone
	for _, path := range []string{"/broken", "/stalls"} {
		req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+v1+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(auth[0], auth[1])
		if resp, err = http.DefaultTransport.RoundTrip(req); err == nil {
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%s: a part came as a whole: %q", path, b)
			}
			_ = resp.Body.Close()
		}
	}
}

// TestPassThroughRefused: other paths are not forwarded, and no path can be read in two ways.
func TestPassThroughRefused(t *testing.T) {
	t.Parallel()
	o, base := newOther(t)
	for name, tt := range map[string]struct {
		setting string
		paths   []string
	}{
		"off":   {"", []string{"/v1/embeddings", "/v1/files", "/v1/audio/speech"}},
		"some":  {"/v1/audio/*", []string{"/v1/embeddings", "/v1/audio", "/v1/audio/", "/v1/audiox/y", "/v1/audio/../files", "/v1/audio/%2e%2e/files", "/v1/audio/..%2ffiles", "/v1/audio//files", "/v1/audio/a%2fb", "/v1/audio/./x", `/v1/audio/a\b`, "/v1/audio/a%00"}},
		"*":     {"*", []string{"/v1//evil.example/x", "//evil.example/v1/x", "/v1/%2f%2fevil.example", "/v1/../healthz/x", "/v1/agents/x/y/z", "/v1/join/x", "/v1/chat/other", "/v1/Chat/completions", "/v1/AGENTS", "/v1/", "/v1/x@evil%2eexample", "/v2/files", "/v1x/files"}},
		"whole": {"/v1/embeddings", []string{"/v1/embeddings/x", "/v1/Embeddings", "/v1/embeddings/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_PASSTHROUGH="+tt.setting)
			for _, path := range tt.paths {
				if status := s.raw(t, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"); !strings.HasPrefix(status, "HTTP/1.1 404") && !strings.HasPrefix(status, "HTTP/1.1 405") && !strings.HasPrefix(status, "HTTP/1.1 400") && !strings.HasPrefix(status, "HTTP/1.1 403") {
					t.Errorf("%s: %s", path, status)
				}
			}
		})
	}
	t.Cleanup(func() {
		if seen := o.requests(); len(seen) > 0 {
			t.Errorf("the upstream saw %q", seen)
		}
	})
	s := start(t, "HEARDLOG_PASSTHROUGH=*", "HEARDLOG_RATE_LIMIT=1000")
	s.post(v1+"/embeddings", `{}`).failed(400, "missing", "llm.url")
	s.post(v1+"/embeddings", `{}`, "X-Agent-Id", "unknown").failed(404, "not_found", "agent")
	s.post(v1+"/embeddings", `{}`, "Host", "evil.example").failed(403, "forbidden", "localhost")
	if got := s.plain().do(http.MethodPatch, v1+"/files", `{}`); got.status != http.StatusNotImplemented {
		t.Errorf("PATCH: %d", got.status)
	}
	start(t).post(v1+"/embeddings", `{}`).failed(404, "not_found", "HEARDLOG_PASSTHROUGH=/v1/embeddings")
	slow := start(t, "HEARDLOG_RATE_LIMIT=1")
	for range 20 {
		if got := slow.post(v1+"/embeddings", `{}`); got.status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("the path is not limited")
}

// TestPassThroughAgent: the agent that a header names is asked by its own upstream, with its own
// key.
func TestPassThroughAgent(t *testing.T) {
	t.Parallel()
	o, base := newOther(t)
	never, neverBase := newOther(t)
	s := start(t, "HEARDLOG_LLM_URL="+neverBase, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_PASSTHROUGH=/v1/embeddings")
	id := s.join("n", map[string]any{"llm": map[string]any{"url": base + "/chat/completions", "api_key": "key-of-the-agent", "vendor": "azure"}})
	s.post(v1+"/embeddings", `{}`, "X-Agent-Id", id).ok(nil)
	if o.last.Get("Api-Key") != "key-of-the-agent" || o.last.Get("Authorization") != "" || len(never.requests()) != 0 {
		t.Errorf("the upstream got %v, the server's %q", o.last, never.requests())
	}
	odd := s.join("odd", map[string]any{"llm": map[string]any{"url": base + "/answer"}})
	s.post(v1+"/embeddings", `{}`, "X-Agent-Id", odd).failed(501, "unsupported", "/chat/completions")
}

// raw sends bytes unchanged and returns the first line of the answer.
func (s *server) raw(t *testing.T, request string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
