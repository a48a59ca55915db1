package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// fallbacks is the setting for upstreams to fall back to.
func fallbacks(t testing.TB, list ...map[string]any) string {
	t.Helper()
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return "HEARDLOG_LLM_FALLBACKS=" + string(b)
}

// lastAnswer returns the ledger's newest entry as the API shows it.
func (s *server) lastAnswer(id string) (e struct {
	Role, Content, State, Upstream, Filler string
	Failure                                *struct{ Code int }
}) {
	s.t.Helper()
	var page struct{ Messages []json.RawMessage }
	s.get(agent(id, "/messages")).ok(&page)
	if err := json.Unmarshal(page.Messages[len(page.Messages)-1], &e); err != nil {
		s.t.Fatal(err)
	}
	return e
}

// TestFallOver: what makes another upstream answer, the client seeing nothing of the first.
func TestFallOver(t *testing.T) {
	t.Parallel()
	hang := fake.Duration(time.Hour)
	for name, tt := range map[string]struct {
		script fake.Script
		first  bool // the limit for the first token is what ends it: streams only
	}{
		"unreachable":              {fake.Script{}, false},
		"429":                      {fake.Script{Status: 429, RetryAfter: "7"}, false},
		"500":                      {fake.Script{Status: 500}, false},
		"503, a page":              {fake.Script{Status: 503, Body: "<h1>no</h1>", Type: "text/html"}, false},
		"200, a page":              {fake.Script{Body: "<h1>no</h1>", Type: "text/html"}, false},
		"200, another JSON":        {fake.Script{Body: `{"ok":true}`, Type: "application/json"}, false},
		"200, an error":            {fake.Script{Body: `{"error":{"message":"overloaded","code":529}}`, Type: "application/json"}, false},
		"silent":                   {fake.Script{Hang: true}, true},
		"headers, then silence":    {fake.Script{DelayBody: hang}, true},
		"comments only":            {fake.Script{Hang: true, Heartbeat: fake.Duration(10 * time.Millisecond)}, true},
		"metadata only":            {fake.Script{RawPieces: []string{"data: {\"object\":\"chat.completion.custom_metadata\",\"metadata\":{\"hello\":1}}\n\n"}, HangAfter: 1}, true},
		"breaks before its first":  {fake.Script{RawPieces: []string{": hello\n\n"}, CutAfter: 1}, true},
		"breaks after its role":    {fake.Script{Chunks: []string{"", "x"}, CutAfter: 1, DelayChunk: fake.Duration(5 * time.Millisecond)}, true},
		"role, then silence":       {fake.Script{RawPieces: []string{"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"}, HangAfter: 1}, true},
		"a filter, then silence":   {fake.Script{RawPieces: []string{"data: {\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":0}]}\n\n"}, HangAfter: 1}, true},
		"nothing but [DONE]":       {fake.Script{Raw: "data: [DONE]\n\n"}, true},
		"role and [DONE]":          {fake.Script{Raw: "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: [DONE]\n\n"}, true},
		"role and stop":            {fake.Script{Raw: "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"}, true},
		"an error of vLLM":         {fake.Script{Raw: "data: {\"object\":\"error\",\"message\":\"overloaded\",\"code\":503}\n\ndata: [DONE]\n\n"}, true},
		"an error in the choice":   {fake.Script{Raw: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"error\":{\"message\":\"overloaded\",\"code\":502},\"finish_reason\":\"error\"}]}\n\n"}, true},
		"a whole empty answer":     {fake.Script{Body: `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`, Type: "application/json"}, false},
		"ends without a word":      {fake.Script{RawPieces: []string{": hello\n\n"}}, true},
		"an error instead of data": {fake.Script{Raw: "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm, base := upstream(t, tt.script)
			if name == "unreachable" {
				base = "http://127.0.0.1:1/v1"
			}
			spare, spareBase := upstream(t, fake.Script{Answer: "At nine."})
			s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=key-of-the-first", "HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT=60ms",
				"HEARDLOG_LLM_MODEL=m1", fallbacks(t, map[string]any{"name": "spare", "url": spareBase, "api_key": "key-of-the-spare", "model": "m2"}))
			id := s.join("n", nil)
			for _, stream := range []bool{true, false} {
				if !stream && tt.first {
					continue
				}
				got := s.chat(agent(id, "/chat/completions"), "When?", stream).ok(nil)
				if !strings.Contains(string(got.body), "nine.") || strings.Contains(string(got.body), "hello") || got.header.Get("X-Heardlog-Upstream") != "spare" {
					t.Errorf("stream %v: %q from %q", stream, got.body, got.header.Get("X-Heardlog-Upstream"))
				}
				if e := s.lastAnswer(id); e.Content != "At nine." || e.Upstream != "spare" || e.Failure != nil || e.State != "final" {
					t.Errorf("stream %v: the ledger has %+v", stream, e)
				}
			}
			seen := spare.Requests()
			if len(seen) == 0 || seen[0].Header.Get("Authorization") != "Bearer key-of-the-spare" || !strings.Contains(string(seen[0].Body), `"model":"m2"`) {
				t.Errorf("the spare was asked %+v", seen)
			}
			if n := len(llm.Requests()); n > 2 {
				t.Errorf("the first was asked %d times", n)
			}
			if page := string(s.get("/metrics").ok(nil).body); !strings.Contains(page, `heardlog_upstream_attempts_total{outcome="answered",upstream="spare"}`) {
				t.Error("the attempts are not counted")
			}
		})
	}
}

// TestNoFallOver: no fallback is asked if the request itself is at fault or the answer has started.
func TestNoFallOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script fake.Script
		status int
		words  string
	}{
		"400":                    {fake.Script{Status: 400}, 400, "told to fail"},
		"401":                    {fake.Script{Status: 401}, 401, "told to fail"},
		"404":                    {fake.Script{Status: 404}, 404, "told to fail"},
		"breaks after a word":    {fake.Script{Answer: "One two three four", CutAfter: 2, DelayChunk: fake.Duration(5 * time.Millisecond)}, 200, "One "},
		"breaks in a tool call":  {fake.Script{ToolName: "book", ToolArgs: `{"seat":1}`, CutAfter: 2, DelayChunk: fake.Duration(5 * time.Millisecond)}, 200, "book"},
		"an error after a word":  {fake.Script{Answer: "One two", ErrorAfter: 1}, 200, "overloaded"},
		"an error that is a 400": {fake.Script{Raw: "data: {\"error\":{\"message\":\"no such model\",\"code\":400}}\n\n"}, 200, "no such model"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm, base := upstream(t, tt.script)
			spare, spareBase := upstream(t, fake.Script{Answer: "Never."})
			s := start(t, "HEARDLOG_LLM_URL="+base, fallbacks(t, map[string]any{"url": spareBase}))
			id := s.join("n", nil)
			resp := s.open(id, `{"stream":true,"messages":[{"role":"user","content":"Count"}]}`)
			body, _ := io.ReadAll(resp.Body) // a broken stream ends with an error
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.words) || resp.Header.Get("X-Heardlog-Upstream") != "primary" {
				t.Errorf("%d %q from %q", resp.StatusCode, body, resp.Header.Get("X-Heardlog-Upstream"))
			}
			if n, m := len(llm.Requests()), len(spare.Requests()); n != 1 || m != 0 {
				t.Errorf("the first was asked %d times and the spare %d times", n, m)
			}
		})
	}
}

// open asks an agent and returns the answer while it streams.
func (s *server) open(id, body string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+agent(id, "/chat/completions"), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestLeavingIsNoFailure: if a client disconnects while the first upstream is silent, no fallback
// is asked and no breaker opens.
func TestLeavingIsNoFailure(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Hang: true})
	spare, spareBase := upstream(t, fake.Script{Answer: "Never."})
	s := start(t, "HEARDLOG_LLM_URL="+base, fallbacks(t, map[string]any{"name": "spare", "url": spareBase}))
	const calls = 8
	for i := range calls {
		id := s.join(fmt.Sprint("n", i), nil)
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+agent(id, "/chat/completions"), strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		wait, stop := context.WithTimeout(t.Context(), patience)
		if _, err := llm.WaitRequests(wait, i+1); err != nil {
			t.Fatal(err)
		}
		leave()
		<-done
		if _, err := llm.WaitCancels(wait, i+1); err != nil {
			t.Fatal(err)
		}
		stop()
		tl := s.tail(id, "Last-Event-ID", "0")
		tl.message("the answer", func(m message) bool { return m.Role == "assistant" })
	}
	if n := len(spare.Requests()); n != 0 {
		t.Errorf("the spare was asked %d times for nobody", n)
	}
	page := string(s.get("/metrics").ok(nil).body)
	for _, line := range []string{`heardlog_upstream_breaker{upstream="primary"} 0`, fmt.Sprintf(`heardlog_upstream_attempts_total{outcome="abandoned",upstream="primary"} %d`, calls)} {
		if !strings.Contains(page, line) {
			t.Errorf("the metrics lack %s:\n%s", line, grep(page, "heardlog_upstream"))
		}
	}
}

func grep(page, word string) string {
	var out strings.Builder
	for line := range strings.Lines(page) {
		if strings.Contains(line, word) && !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestBreaker: after five failures in a row an upstream is no longer asked first, but still if no
// other is left. Its state is shown.
func TestBreaker(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Status: 500})
	spare, spareBase := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_RETRIES=0", fallbacks(t, map[string]any{"name": "spare", "url": spareBase}))
	id := s.join("n", nil)
	for range 7 {
		s.chat(agent(id, "/chat/completions"), "x", false).ok(nil)
	}
	if n, m := len(llm.Requests()), len(spare.Requests()); n != 5 || m != 7 {
		t.Errorf("the first was asked %d times, the spare %d times; want 5 and 7", n, m)
	}
	if page := string(s.get("/metrics").ok(nil).body); !strings.Contains(page, `heardlog_upstream_breaker{upstream="primary"} 2`) || !strings.Contains(page, `heardlog_upstream_breaker{upstream="spare"} 0`) {
		t.Errorf("the breakers are shown as\n%s", grep(page, "heardlog_upstream"))
	}
	// Where the spare fails too, the first is asked against its breaker.
	failing := s.join("failing", map[string]any{"llm": map[string]any{"params": map[string]any{"fake": map[string]any{"status": 503}}}})
	got := s.chat(agent(failing, "/chat/completions"), "x", false)
	if got.status != http.StatusServiceUnavailable || len(llm.Requests()) != 6 || got.header.Get("X-Heardlog-Upstream") != "primary" {
		t.Errorf("%d from %q after %d requests", got.status, got.header.Get("X-Heardlog-Upstream"), len(llm.Requests()))
	}
}

// flaky answers the first n calls with status and header, then as the fake does.
func flaky(t *testing.T, n int64, status int, header ...string) (*atomic.Int64, string) {
	t.Helper()
	llm := fake.New(fake.Options{Script: fake.Script{Answer: "At nine."}})
	calls := &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > n {
			llm.ServeHTTP(w, r)
			return
		}
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return calls, srv.URL
}

// TestRetry: an upstream that is alone is asked again, within the budget and no sooner than it
// wants.
func TestRetry(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails  int64
		status int
		header []string
		env    []string
		want   int
		calls  int64
		least  time.Duration
	}{
		"500 once":            {1, 500, nil, nil, 200, 2, 100 * time.Millisecond},
		"429 with a wait":     {1, 429, []string{"Retry-After-Ms", "300"}, nil, 200, 2, 300 * time.Millisecond},
		"429 with a long one": {1, 429, []string{"Retry-After", "7"}, []string{"HEARDLOG_LLM_RETRY_BUDGET=5s"}, 429, 1, 0},
		"500 for ever":        {99, 500, nil, nil, 500, 2, 0},
		"three times":         {3, 502, nil, []string{"HEARDLOG_LLM_RETRIES=3", "HEARDLOG_LLM_RETRY_BUDGET=1m"}, 200, 4, 0},
		"not at all":          {1, 500, nil, []string{"HEARDLOG_LLM_RETRIES=0"}, 500, 1, 0},
		"no budget":           {1, 500, nil, []string{"HEARDLOG_LLM_RETRY_BUDGET=0"}, 500, 1, 0},
		"400":                 {1, 400, nil, nil, 400, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, base := flaky(t, tt.fails, tt.status, tt.header...)
			// A machine may be slow.
			s := start(t, append([]string{"HEARDLOG_LLM_URL=" + base, "HEARDLOG_LLM_RETRY_BUDGET=30s"}, tt.env...)...)
			id := s.join("n", nil)
			began := time.Now()
			got := s.chat(agent(id, "/chat/completions"), "When?", true)
			if took := time.Since(began); got.status != tt.want || calls.Load() != tt.calls || took < tt.least {
				t.Errorf("%d after %d calls and %v, want %d after %d and at least %v: %s", got.status, calls.Load(), took, tt.want, tt.calls, tt.least, got.body)
			}
			if tt.want != 200 && len(tt.header) > 0 && got.header.Get(tt.header[0]) != tt.header[1] {
				t.Errorf("the client is not told %v", tt.header)
			}
		})
	}
}

// TestLastIsNotCut: the limit for the first token is for choosing between upstreams; it does not
// apply to the last one.
func TestLastIsNotCut(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Hang: true})
	_, slow := upstream(t, fake.Script{Answer: "At last.", DelayFirst: fake.Duration(250 * time.Millisecond)})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT=50ms", fallbacks(t, map[string]any{"url": slow}))
	id := s.join("n", nil)
	if got := s.chat(agent(id, "/chat/completions"), "x", true).ok(nil); !strings.Contains(string(got.body), "last.") || got.header.Get("X-Heardlog-Upstream") != "fallback-1" {
		t.Errorf("%q", got.body)
	}
	// With something to say instead, there is no wait.
	id = s.join("sorry", map[string]any{"llm": map[string]any{"failure_message": "Sorry."}})
	if got := s.chat(agent(id, "/chat/completions"), "x", true).ok(nil); !strings.Contains(string(got.body), "Sorry.") {
		t.Errorf("%q", got.body)
	}
	// The total time covers all attempts: the second is cut by what the first has left, and the
	// third is not made.
	for ms := 1000; ; ms *= 4 {
		hung, hungBase := upstream(t, fake.Script{Hang: true})
		id = s.join(fmt.Sprint("hung", ms), map[string]any{"llm": map[string]any{"url": hungBase}, "heardlog": map[string]any{
			"timeouts": map[string]any{"first_token_ms": ms * 6 / 10, "total_ms": ms}, "upstreams": []any{map[string]any{"url": hungBase}, map[string]any{"url": hungBase}},
		}})
		s.chat(agent(id, "/chat/completions"), "x", true).failed(504, "upstream_timeout", "whole")
		n := len(hung.Requests())
		if n == 1 && ms < 60_000 { // a busy machine came too late to the end of the first attempt
			continue
		}
		if n != 2 {
			t.Errorf("%d attempts", n)
		}
		return
	}
}

// TestAgentsUpstreams: an agent's own list, with keys, models and vendors, survives a restart. No
// upstream gets another's key.
func TestAgentsUpstreams(t *testing.T) {
	t.Parallel()
	_, down := upstream(t, fake.Script{Status: 503})
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	never, neverBase := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+down, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_SECRET_KEY=a text that is long enough", fallbacks(t, map[string]any{"url": neverBase, "api_key": "k"}))
	id := s.join("n", map[string]any{
		"llm": map[string]any{"params": map[string]any{"model": "m1", "temperature": 0.5}},
		"heardlog": map[string]any{"upstreams": []any{
			map[string]any{"url": "http://127.0.0.1:1/v1"},
			map[string]any{"name": "azure", "url": base + "?api-version=2024-10-21", "api_key": "key-of-azure", "vendor": "azure", "model": "m3", "headers": map[string]string{"X-Team": "blue"}},
		}},
	})
	s = s.again()
	got := s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	if got.header.Get("X-Heardlog-Upstream") != "azure" || s.lastAnswer(id).Upstream != "azure" {
		t.Errorf("answered by %q", got.header.Get("X-Heardlog-Upstream"))
	}
	seen := llm.Requests()[0]
	if h := seen.Header; h.Get("Api-Key") != "key-of-azure" || h.Get("Authorization") != "" || h.Get("X-Team") != "blue" {
		t.Errorf("headers %v", h)
	}
	if b := string(seen.Body); strings.Count(b, `"model"`) != 1 || !strings.Contains(b, `"model":"m3"`) || !strings.Contains(b, `"temperature":0.5`) || !strings.Contains(b, "When?") {
		t.Errorf("body %s", b)
	}
	// An agent with an LLM of its own has only the fallbacks that it named.
	alone := s.join("alone", map[string]any{"llm": map[string]any{"url": down + "/chat/completions"}})
	if got := s.chat(agent(alone, "/chat/completions"), "x", false); got.status != http.StatusServiceUnavailable {
		t.Errorf("%d", got.status)
	}
	if n := len(never.Requests()); n != 0 {
		t.Errorf("the server's spare was asked %d times", n)
	}
}

// TestUpstreamsRefused: mistakes in an agent's list name the field.
func TestUpstreamsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	ok := map[string]any{"url": "https://llm.example/v1"}
	with := func(k string, v any) map[string]any { return map[string]any{"url": "https://llm.example/v1", k: v} }
	var nine []any
	for range 9 {
		nine = append(nine, ok)
	}
	for name, tt := range map[string]struct {
		list   []any
		reason string
		words  []string
	}{
		"too many":  {nine, "InvalidFieldValue", []string{"properties.heardlog.upstreams", "8"}},
		"no url":    {[]any{ok, map[string]any{}}, "MissingRequiredField", []string{"properties.heardlog.upstreams[1].url"}},
		"bad url":   {[]any{map[string]any{"url": "ftp://x"}}, "InvalidFieldValue", []string{"properties.heardlog.upstreams[0].url", "ftp"}},
		"password":  {[]any{map[string]any{"url": "http://u:hunter2@x"}}, "InvalidFieldValue", []string{"user name"}},
		"bad name":  {[]any{with("name", "a b")}, "InvalidFieldValue", []string{"upstreams[0].name"}},
		"primary":   {[]any{with("name", "primary")}, "InvalidFieldValue", []string{"primary"}},
		"twice":     {[]any{with("name", "a"), with("name", "a")}, "InvalidFieldValue", []string{"upstreams[1].name"}},
		"bad key":   {[]any{with("api_key", "hunter2\n")}, "InvalidFieldValue", []string{"upstreams[0].api_key"}},
		"bad names": {[]any{with("headers", map[string]string{"a b": "hunter2"})}, "InvalidFieldValue", []string{"upstreams[0].headers"}},
	} {
		got := s.post(v1+"/join", map[string]any{"name": name, "properties": map[string]any{"heardlog": map[string]any{"upstreams": tt.list}}}).
			refused(http.StatusBadRequest, tt.reason, tt.words...)
		if strings.Contains(string(got.body), "hunter2") {
			t.Errorf("%s: %s", name, got.body)
		}
	}
}

// TestUpstreamSecrets: keys of upstreams are never shown, even if an upstream repeats them, and are
// not readable in the store.
func TestUpstreamSecrets(t *testing.T) {
	t.Parallel()
	secrets := []string{"sk-first-QWERTY01", "sk-spare-QWERTY02", "head-spare-QWERTY03", "sk-agents-QWERTY04", "head-agents-QWERTY05", "query-QWERTY06", "query-QWERTY07"}
	_, down := upstream(t, fake.Script{Status: 503})
	repeats := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "not good: %s, %s, no key %s in %s", r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.URL.Query().Get("k"), r.URL)
	}))
	t.Cleanup(repeats.Close)
	dir := t.TempDir()
	s := start(t, "HEARDLOG_STORE=sqlite:"+dir+"/h.db", "HEARDLOG_SECRET_KEY=a text that is long enough", "HEARDLOG_LLM_URL="+down, "HEARDLOG_LLM_API_KEY="+secrets[0], "HEARDLOG_LOG_LEVEL=debug",
		fallbacks(t, map[string]any{"name": "spare", "url": repeats.URL + "?k=" + secrets[5], "api_key": secrets[1], "headers": map[string]string{"X-Key": secrets[2]}}))
	var out strings.Builder
	for name, props := range map[string]any{"server": nil, "agent": map[string]any{"heardlog": map[string]any{"upstreams": []any{
		map[string]any{"name": "mine", "url": repeats.URL + "/x?k=" + secrets[6], "api_key": secrets[3], "headers": map[string]string{"X-Key": secrets[4]}},
	}}}} {
		id := s.join(name, props)
		for _, stream := range []bool{true, false} {
			got := s.chat(agent(id, "/chat/completions"), "x", stream)
			if got.status != http.StatusUnauthorized || !strings.Contains(string(got.body), "not good: Bearer [secret], [secret], no key [secret] in /") {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
			fmt.Fprintf(&out, "%v %s", got.header, got.body)
		}
		for _, what := range []string{"", "/history", "/turns", "/messages"} {
			out.Write(s.get(agent(id, what)).ok(nil).body)
		}
	}
	out.Write(s.get("/metrics").ok(nil).body)
	s.stop()
	out.WriteString(s.log.String())
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	for _, secret := range secrets {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s came out", secret)
		}
	}
}

// TestFallbacksOfProjects: an entry that names projects serves those alone.
func TestFallbacksOfProjects(t *testing.T) {
	t.Parallel()
	_, down := upstream(t, fake.Script{Status: 503})
	_, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+down, "HEARDLOG_LLM_RETRIES=0", "HEARDLOG_CREDENTIALS=p1=a:secret-1,p2=b:secret-2",
		fallbacks(t, map[string]any{"name": "ours", "url": base, "projects": []string{"p1"}}))
	for secret, want := range map[string]int{"secret-1": http.StatusOK, "secret-2": http.StatusServiceUnavailable} {
		auth := []string{"Authorization", "Bearer " + secret}
		id := s.join("n", nil, auth...)
		if got := s.chat(agent(id, "/chat/completions"), "When?", true, auth...); got.status != want {
			t.Errorf("%s: %d %s", secret, got.status, got.body)
		}
	}
}

// TestEndedBetweenUpstreams: an interrupt while the first upstream is silent ends the call without
// asking a fallback.
func TestEndedBetweenUpstreams(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Hang: true, Heartbeat: fake.Duration(10 * time.Millisecond)})
	spare, spareBase := upstream(t, fake.Script{Answer: "Never."})
	s := start(t, "HEARDLOG_LLM_URL="+base, fallbacks(t, map[string]any{"url": spareBase}))
	id := s.join("n", nil)
	done := make(chan answer, 1)
	go func() { done <- s.chat(agent(id, "/chat/completions"), "When?", true) }()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := llm.WaitRequests(ctx, 1); err != nil {
		t.Fatal(err)
	}
	s.post(agent(id, "/interrupt"), nil).ok(nil)
	if got := (<-done).ok(nil); !strings.HasSuffix(string(got.body), "data: [DONE]\n\n") || strings.Contains(string(got.body), "thinking") {
		t.Errorf("%q", got.body)
	}
	if n := len(spare.Requests()); n != 0 {
		t.Errorf("the spare was asked %d times", n)
	}
}

// TestThinkFallsOver: a turn without a client has the same upstreams.
func TestThinkFallsOver(t *testing.T) {
	t.Parallel()
	_, down := upstream(t, fake.Script{Status: 503})
	_, base := upstream(t, fake.Script{Answer: "Done."})
	s := start(t, "HEARDLOG_LLM_URL="+down, fallbacks(t, map[string]any{"name": "spare", "url": base}))
	id := s.join("n", map[string]any{"filler_words": fillers("shuffle", "Let me see.")})
	tail := s.tail(id)
	s.post(agent(id, "/think"), map[string]any{"text": "Do it"}).ok(nil)
	tail.message("the answer", func(m message) bool { return m.Role == "assistant" && m.Content == "Done." })
	if e := s.lastAnswer(id); e.Upstream != "spare" || e.Filler != "" {
		t.Errorf("the ledger has %+v", e)
	}
}
