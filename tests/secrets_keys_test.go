package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// gossip is an upstream and a receiver that fails, and repeats all of the request as it came, as a
// URL, in base64, as JSON and percent-encoded.
type gossip struct {
	mu   sync.Mutex
	seen strings.Builder
}

func (g *gossip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var all bytes.Buffer
	fmt.Fprintf(&all, "%s http://me:CANARY-login@%s%s %s ", r.Method, r.Host, r.URL, url.QueryEscape(r.URL.RawQuery))
	_ = r.Header.Write(&all)
	all.WriteString(url.QueryEscape(r.Header.Get("Authorization")))
	var members map[string]any
	if json.Unmarshal(body, &members) == nil {
		delete(members, "messages")
		b, _ := json.Marshal(members)
		all.Write(b)
	}
	g.mu.Lock()
	g.seen.WriteString(all.String())
	g.mu.Unlock()
	said, _ := json.Marshal(all.String())
	if members["stream"] == true { // the error comes in the stream
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"error\":{\"message\":%s}}\n\n", said)
		return
	}
	w.Header().Set("Retry-After", r.URL.Query().Get("sig"))
	w.Header().Set("Location", "/?"+r.URL.RawQuery)
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprintf(w, `{"error":{"message":%s},"you":%s}`, said, body)
}

var canary = regexp.MustCompile(`CANARY-[a-z0-9-]+`)

// TestKeysStayIn: a secret in any place of a join, of a webhook endpoint and of a request reaches
// the upstream and the receiver, and nothing else: no answer, no tail, log, metric, trace, webhook,
// no file of a store with a key, and no export without secrets.
func TestKeysStayIn(t *testing.T) {
	t.Parallel()
	needsFile(t)
	g := &gossip{}
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	traces := &gossip{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		traces.mu.Lock()
		defer traces.mu.Unlock()
		traces.seen.Write(b)
	}))
	t.Cleanup(collector.Close)
	r := receive(t, hookSecret)
	s := start(t, "HEARDLOG_WEBHOOK_URL="+r.url+"?key=CANARY-own-hook", "HEARDLOG_WEBHOOK_SECRET="+hookSecret, "HEARDLOG_SECRET_KEY=a-long-enough-key",
		"HEARDLOG_LOG_LEVEL=debug", "HEARDLOG_LLM_URL="+srv.URL+"/v1/chat/completions?code=CANARY-own-llm", "HEARDLOG_PASSTHROUGH=/v1/embeddings",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	ear := &eavesdropper{base: s.client.Transport}
	s.client.Transport = ear
	query := func(names ...string) string {
		q := url.Values{}
		for _, n := range names {
			q.Set(n, "CANARY-"+strings.ToLower(n)+"-"+names[0]+"-x")
		}
		return "?api-version=1&" + q.Encode()
	}
	aws := []string{"X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token"}
	props := voice(func(p map[string]any) {
		p["token"] = "CANARY-token"
		p["llm"] = map[string]any{
			"url": srv.URL + "/v1/chat/completions" + query("key", "sig", "token", "subscription-key"), "api_key": "CANARY-api-key",
			"headers":     map[string]string{"Authorization": "Basic Q0FOQVJZOkNBTkFSWS1iYXNpYw==", "X-Key": "CANARY-header", "Cookie": "c=CANARY-cookie"},
			"mcp_servers": []any{map[string]any{"name": "m", "endpoint": "https://me:CANARY-mcp-login@mcp.example/" + query("token"), "headers": map[string]string{"X-Key": "CANARY-mcp-header"}}},
			"params": map[string]any{
				"api_key": "CANARY-param-1", "key": "CANARY-param-2", "extra": map[string]any{"deep": []any{map[string]any{"secret": "CANARY-param-3", "password": "CANARY \"/quoted\""}}},
				"authorization": "Bearer CANARY-param-4", "callback": "https://cb.example/" + query("signature", "password"), "aws": map[string]any{"aws_secret_access_key": "CANARY-param-5"},
			},
		}
		p["heardlog"] = map[string]any{"upstreams": []any{map[string]any{
			"url": srv.URL + "/v1/chat/completions" + query(aws...), "api_key": "CANARY-up-key", "headers": map[string]string{"X-Key": "CANARY-up-header"},
		}}}
		p["tts"] = map[string]any{"vendor": "v", "params": map[string]any{"key": "CANARY-tts", "voice": map[string]any{"access_token": "CANARY-tts-2"}}}
		p["asr"] = map[string]any{"vendor": "v", "params": map[string]any{"api_key": "CANARY-asr"}}
		p["mllm"] = map[string]any{"api_key": "CANARY-mllm", "url": "wss://m.example/" + query("key"), "params": map[string]any{"adc_credentials_string": "CANARY-mllm-2"}}
		p["avatar"] = map[string]any{"params": map[string]any{"api_key": "CANARY-avatar"}}
	})
	var e endpoint
	s.post(hooks+"/endpoints", map[string]any{
		"url": srv.URL + "/h" + query("key", "sig"), "headers": map[string]string{"X-Key": "CANARY-hook-header"}, "auth": map[string]string{"username": "CANARY", "password": "CANARY-hook-password"},
	}).is(http.StatusCreated, &e)
	path := hooks + "/endpoints/" + e.ID
	if !strings.Contains(e.URL, "key=[secret]") {
		t.Errorf("the endpoint's URL is shown as %s", e.URL)
	}
	s.do("PATCH", path, map[string]any{"url": e.URL + "&more=1"}).ok(nil)
	s.do("PUT", path, map[string]any{"url": e.URL, "headers": map[string]string{"X-Key": "***"}, "auth": map[string]string{"username": "CANARY", "password": "[secret]"}}).ok(nil)
	s.do("PATCH", path, map[string]any{"url": "https://elsewhere.example/?key=[secret]", "headers": nil, "auth": nil}).refused(http.StatusBadRequest, "InvalidFieldValue", "url")
	var d delivery
	s.post(path+"/test", nil).is(http.StatusAccepted, &d)
	if got := s.until(d.ID, func(d delivery) bool { return len(d.Attempts) > 0 }); !strings.Contains(got.Attempts[0].Response, "key=[secret]") {
		t.Errorf("%+v", got)
	}
	for i, props := range []any{props, map[string]any{"channel": "c"}} {
		id := s.join(fmt.Sprint("n", i), props)
		tail := s.tail(id)
		s.post(agent(id, "/update"), `{"properties":{"token":"***","llm":{"params":{"temperature":1}}}}`).ok(nil)
		if i == 0 {
			s.post(agent(id, "/update"), map[string]any{"properties": map[string]any{"llm": map[string]any{"params": props.(map[string]any)["llm"].(map[string]any)["params"]}}}).ok(nil)
			s.post(agent(id, "/update"), `{"properties":{"llm":{"params":{"api_key":"[secret]","key":"CANARY-param-2","token":"CANARY-param-6"}}}}`).ok(nil)
			s.post(agent(id, "/update"), `{"properties":{"llm":{"params":{"password":"***"}}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "llm.params.password")
		}
		for _, stream := range []bool{false, true} {
			body := map[string]any{"model": "m", "stream": stream, "messages": []any{map[string]any{"role": "user", "content": "x"}}, "extra_body": map[string]any{"api_key": "CANARY-request"}}
			s.post(agent(id, "/chat/completions"), body)
		}
		s.post(agent(id, "/think"), `{"text":"x"}`).ok(nil)
		s.get(agent(id, "/models"))
		s.post(v1+"/embeddings", `{"input":"x"}`)
		s.post(agent(id, "/context"), `{}`)
		for _, what := range []string{"", "/history?limit=all", "/turns", "/messages"} {
			s.get(agent(id, what)).ok(nil)
		}
		s.post(v1+"/join", map[string]any{"name": fmt.Sprint("n", i), "properties": props}).refused(http.StatusConflict, "TaskConflict")
		s.post(agent(id, "/leave"), nil).ok(nil)
		tail.end()
	}
	bad := voice(func(p map[string]any) {
		p["llm"] = map[string]any{"url": "https://me:CANARY-login-2@llm.example/?key=CANARY-bad-1"}
	})
	s.post(v1+"/join", map[string]any{"name": "bad", "properties": bad}).refused(http.StatusBadRequest, "InvalidFieldValue", "url")
	s.post(hooks+"/endpoints", map[string]any{"url": "https://me:CANARY-login-3@h.example/?key=CANARY-bad-2"}).refused(http.StatusBadRequest, "InvalidFieldValue", "url")
	s.get(v1 + "/agents").ok(nil)
	for _, what := range []string{v1 + "/profiles", hooks + "/endpoints", hooks + "/deliveries", hooks + "/messages/" + d.MessageID, "/metrics"} {
		s.get(what)
	}
	var came strings.Builder
	for ends := 0; ends < 2; {
		for typ, n := range r.next(t, 1) {
			came.WriteString(n.body)
			if typ == 103 {
				ends++
			}
		}
	}
	s.stop()
	g.mu.Lock()
	sent := g.seen.String()
	g.mu.Unlock()
	for _, want := range []string{
		"CANARY-key-key-x", "CANARY-param-1", "CANARY-param-6", "CANARY-param-2", "CANARY-header", "CANARY-api-key", "CANARY-own-llm",
		"CANARY-up-key", "CANARY-x-amz-signature", "CANARY-hook-header", "CANARY-request",
	} {
		if !strings.Contains(sent, want) {
			t.Errorf("%s did not come where it belongs: the test proves nothing", want)
		}
	}
	places := map[string]string{"the log": s.log.String(), "a webhook": came.String(), "a trace": traces.seen.String(), "the export": exported(t, s)}
	ear.mu.Lock()
	places["an answer"] = ear.all.String()
	ear.mu.Unlock()
	files, err := filepath.Glob(filepath.Join(storeDir(s), "*"))
	if err != nil || len(files) == 0 || !strings.Contains(places["a trace"], "invoke_agent") || !strings.Contains(places["the export"], `"agent"`) {
		t.Fatal("no store, traces or export: the test proves nothing", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		places["the file "+filepath.Base(f)] = string(b)
	}
	for where, text := range places {
		for _, at := range canary.FindAllStringIndex(text, 3) {
			t.Errorf("%s holds a secret: …%q…", where, text[max(0, at[0]-160):min(len(text), at[1]+40)])
		}
	}
}

// exported returns the export without secrets of a server that has stopped.
func exported(t *testing.T, s *server) string {
	t.Helper()
	path := ""
	for _, e := range s.env {
		if p, ok := strings.CutPrefix(e, "HEARDLOG_STORE=sqlite:"); ok {
			path = p
		}
	}
	store, err := sqlite.OpenReader(sqlite.Options{Path: path, SealKey: []byte("a-long-enough-key")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b bytes.Buffer
	if _, err := export.Write(t.Context(), &b, store, export.Scope{}, false, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
