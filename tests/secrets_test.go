package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// eavesdropper keeps every byte of every answer.
type eavesdropper struct {
	base http.RoundTripper
	mu   sync.Mutex
	all  bytes.Buffer
}

func (e *eavesdropper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.base.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(&e.all, "%s %s: %d\n", req.Method, req.URL.Path, resp.StatusCode)
	_ = resp.Header.Write(&e.all)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, writerFunc(func(p []byte) (int, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.all.Write(p)
	})), resp.Body}
	return resp, nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSecretsStayIn: keys, tokens and secrets appear in no answer, log line, metric or webhook and,
// if a key is set, are not readable in the store's files.
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	needsFile(t)
	secrets := map[string]string{
		"llm.api_key": "sk-agent-QWERTY0001", "token": "007token-QWERTY0002", "llm.headers": "header-QWERTY0003", "tts key": "tts-QWERTY0004",
		"server key": "sk-server-QWERTY0005", "webhook secret": "hook-QWERTY0006", "credential": "cred-QWERTY0007", "secret key": "store-key-QWERTY0008",
		"updated token": "007token-QWERTY0009", "mllm key": "mllm-QWERTY0010",
	}
	r := receive(t, "hook-QWERTY0006")
	// The upstream repeats the keys it was sent, as real ones do.
	_, base := upstream(t, fake.Script{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: sk-server-QWERTY0005."}}`})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=sk-server-QWERTY0005", "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET=hook-QWERTY0006",
		"HEARDLOG_CREDENTIALS=p1=me:cred-QWERTY0007", "HEARDLOG_SECRET_KEY=store-key-QWERTY0008", "HEARDLOG_LOG_LEVEL=debug")
	ear := &eavesdropper{base: s.client.Transport}
	s.client.Transport = ear
	auth := []string{"Authorization", basic("me", "cred-QWERTY0007")}
	props := voice(func(p map[string]any) {
		p["token"] = "007token-QWERTY0002"
		p["llm"] = map[string]any{"url": base + "/chat/completions", "api_key": "sk-agent-QWERTY0001", "headers": map[string]string{"X-Key": "header-QWERTY0003"},
			"params": map[string]any{"fake": map[string]any{"body": `{"error":{"message":"Incorrect API key provided: sk-agent-QWERTY0001, header-QWERTY0003."}}`}}}
		p["tts"] = map[string]any{"vendor": "v", "params": map[string]any{"key": "tts-QWERTY0004"}}
		p["mllm"] = map[string]any{"api_key": "mllm-QWERTY0010"}
	})
	for name, props := range map[string]any{"own key": props, "server's key": nil} {
		id := s.join(name, props, auth...)
		tail := s.tail(id, auth...)
		s.post(agent(id, "/update"), `{"properties":{"token":"007token-QWERTY0009"}}`, auth...).ok(nil)
		for _, stream := range []bool{false, true} {
			if got := s.chat(agent(id, "/chat/completions"), "x", stream, auth...); got.status != http.StatusUnauthorized {
				t.Errorf("the upstream's error is passed on as %d %s", got.status, got.body)
			}
		}
		s.post(agent(id, "/think"), `{"text":"x"}`, auth...).ok(nil)
		s.get(agent(id, "/models"), auth...)
		for _, what := range []string{"", "/history?limit=all", "/turns", "/messages"} {
			s.get(agent(id, what), auth...).ok(nil)
		}
		s.post(v1+"/join", map[string]any{"name": name, "properties": props}, auth...).refused(http.StatusConflict, "TaskConflict")
		s.post(v1+"/join", map[string]any{"name": "bad", "properties": voice(func(p map[string]any) {
			p["llm"] = map[string]any{"api_key": "sk-agent-QWERTY0001\n", "url": "https://llm.example/"}
		})}, auth...).refused(http.StatusBadRequest, "InvalidFieldValue", "api_key")
		s.post(agent(id, "/leave"), nil, auth...).ok(nil)
		tail.end()
	}
	s.get(v1+"/agents", auth...).ok(nil)
	s.get(v1+"/agents", "Authorization", "Basic cred-QWERTY0007").refused(http.StatusUnauthorized, "InvalidPermission")
	s.get(v1+"/agents", "Authorization", "Bearer sk-agent-QWERTY0001").refused(http.StatusUnauthorized, "InvalidPermission")
	s.get("/metrics").ok(nil)
	s.get("/docs").ok(nil)
	var hooks strings.Builder
	for ends := 0; ends < 2; {
		for _, n := range r.next(t, 1) {
			hooks.WriteString(n.body)
			if n.EventType == 103 {
				ends++
			}
		}
	}
	s.stop()
	ear.mu.Lock()
	heard := ear.all.String()
	ear.mu.Unlock()
	if !strings.Contains(heard, "Incorrect API key provided") {
		t.Error("the upstream's error was not passed on: the test proves nothing")
	}
	places := map[string]string{"an answer": heard, "the log": s.log.String(), "a webhook": hooks.String()}
	dir := ""
	for _, e := range s.env {
		if path, ok := strings.CutPrefix(e, "HEARDLOG_STORE=sqlite:"); ok {
			dir = filepath.Dir(path)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) == 0 {
		t.Fatalf("the store's files: %v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		places["the file "+f.Name()] = string(b)
	}
	for where, text := range places {
		for what, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s holds the %s: …%s…", where, what, text[max(0, at-200):min(len(text), at+60)])
			}
		}
	}
}

// TestMetrics: the documented names are there, and no label takes a value that a caller may invent.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret)
	_, base := upstream(t, fake.Script{Answer: "Yes. And no."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret, "HEARDLOG_RATE_LIMIT=1000000")
	talk := func(n int) {
		project := fmt.Sprintf("/api/conversational-ai-agent/v2/projects/project-%d", n)
		id := s.join(fmt.Sprint("name-", n), map[string]any{"channel": fmt.Sprint("channel-", n)})
		tail := s.tail(id)
		s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
		s.chat(agent(id, "/chat/completions"), "y", false).ok(nil)
		s.post(agent(id, "/think"), `{"text":"z"}`).ok(nil)
		tail.message("the answer", func(m message) bool { return m.Role == "assistant" && m.TurnID == 2 })
		s.interrupt(id, nil).ok(nil)
		s.get(agent(id, "/history")).ok(nil)
		s.get(fmt.Sprintf("/nothing-%d", n)).refused(http.StatusNotFound, "TaskNotFound")
		s.get(project + "/agents").ok(nil)
		s.get(fmt.Sprintf("%s/agents/agent-%d", project, n)).refused(http.StatusNotFound, "TaskNotFound")
		s.do(fmt.Sprint("INVENTED", n), agent(id), nil).refused(http.StatusMethodNotAllowed, "InvalidRequest")
		s.post(agent(id, "/leave"), nil).ok(nil)
		tail.end()
		for ends := 0; ends < 1; {
			if _, ok := r.next(t, 1)[112]; ok {
				ends++
			}
		}
	}
	series := func() (map[string]bool, string) {
		page := string(s.get("/metrics").ok(nil).body)
		out := map[string]bool{}
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "#") {
				out[line[:strings.LastIndexByte(line, ' ')]] = true
			}
		}
		return out, page
	}
	talk(1)
	talk(2)
	series() // counts itself
	before, page := series()
	for _, name := range []string{
		"heardlog_http_requests_total{", "heardlog_http_request_seconds_bucket{", `heardlog_agents{status="RUNNING"}`, `heardlog_agents{status="STOPPED"} 2`,
		"heardlog_messages_appended_total ", "heardlog_commit_batch_size_bucket{", "heardlog_commit_seconds_count ", "heardlog_history_bytes_total ", "heardlog_proxy_overhead_seconds_count 6",
		"heardlog_time_to_first_token_seconds_count ", "heardlog_time_to_first_sentence_seconds_count ", "heardlog_interruptions_total{", `heardlog_webhook_backlog{state="pending"}`,
		"heardlog_webhook_oldest_due_age_seconds ", `heardlog_webhook_attempts_total{outcome="ok"}`, "go_goroutines ", "process_resident_memory_bytes ",
		`route="/v1/agents/{id}/chat/completions"`, `route="none"`, `method="other"`,
	} {
		if !strings.Contains(page, name) {
			t.Errorf("%s is not on the metrics page", name)
		}
	}
	for n := 3; n < 8; n++ {
		talk(n)
	}
	after, page := series()
	for k := range after {
		if !before[k] {
			t.Errorf("a new series came with new agents, projects and paths: %s", k)
		}
	}
	for _, word := range []string{"name-", "channel-", "project-", "nothing-", "agent-", "INVENTED", "appid=\"default"} {
		if strings.Contains(page, word) {
			t.Errorf("the metrics page holds %q", word)
		}
	}
}
