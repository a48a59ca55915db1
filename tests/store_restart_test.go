package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/app"
)

// TestRestart: all acknowledged data survives a restart, and agents go on.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	running := s.join("running", map[string]any{"channel": "c", "labels": map[string]string{"a": "b"}, "llm": map[string]any{"greeting_message": "Hello"}})
	stopped := s.join("stopped", nil)
	s.say(running, map[string]any{"id": "m-1", "role": "user", "content": "a", "source": "asr", "metadata": map[string]any{"user": "42"}}, assistant("b c d"),
		map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"id": "c1"}}}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": "x"}, user("y"))
	s.interrupt(running, `{"turn_id":1,"heard":"b"}`).ok(nil)
	s.say(stopped, user("bye"))
	s.post(agent(stopped, "/leave"), nil, "Idempotency-Key", "bye-1").ok(nil)
	tl := s.tail(running)
	first, _ := tl.next()
	tl.close()
	look := func(s *server) map[string]string {
		out := map[string]string{}
		for _, id := range []string{running, stopped} {
			for _, what := range []string{"", "/history", "/history?limit=all", "/turns", "/messages"} {
				out[id+what] = string(s.get(agent(id, what)).ok(nil).body)
			}
		}
		out["list"] = string(s.get(v1 + "/agents?status=running,stopped").ok(nil).body)
		return out
	}
	before := look(s)
	s = s.again()
	if diff := cmp.Diff(before, look(s)); diff != "" {
		t.Errorf("the restart changed what is answered:\n%s", diff)
	}
	if got := s.say(running, map[string]any{"id": "m-1", "role": "user", "content": "a", "source": "asr"}); got[0].Seq != 2 {
		t.Errorf("the same message again: %+v", got)
	}
	s.post(agent(stopped, "/leave"), nil, "Idempotency-Key", "bye-1").ok(nil) // the same call again
	s.post(agent(stopped, "/leave"), nil, "Idempotency-Key", "bye-2").refused(http.StatusNotFound, "TaskNotFound")
	s.post(agent(stopped, "/leave"), nil, "Idempotency-Key", "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	next := s.say(running, assistant("answer"), user("next"))
	if diff := cmp.Diff([]string{"1 assistant: answer", "2 user: next"}, texts(next)); diff != "" {
		t.Errorf("the numbering after a restart:\n%s", diff)
	}
	s.post(v1+"/join", `{"name":"running"}`).refused(http.StatusConflict, "TaskConflict")
	s.stream(agent(running, "/events"), "Last-Event-ID", first.id).message("what came after the restart", func(m message) bool { return m.Content == "next" })
	s.post(agent(running, "/leave"), nil).ok(nil)
}

// TestTimersAfterRestart: a running agent's idle time goes on.
func TestTimersAfterRestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"idle_timeout": 1})
	s = s.again()
	s.gone("n")
	if a := s.agent(id); a.Message != "agent exits with reason: Idle for too long" {
		t.Errorf("%+v", a)
	}
}

// TestAppendsDuringStop: what was acknowledged during a stop is there afterwards, in order and
// once.
func TestAppendsDuringStop(t *testing.T) {
	t.Parallel()
	s := start(t)
	const writers = 8
	var ids []string
	for w := range writers {
		ids = append(ids, s.join(fmt.Sprint("n", w), nil))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
	acked := make([]int, writers)
	warm := make(chan struct{}, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				if i == 5 {
					warm <- struct{}{}
				}
				resp, err := client.Post(s.url+agent(ids[w], "/messages"), "application/json", strings.NewReader(fmt.Sprintf(`{"id":"%d","role":"user","content":"%d"}`, i, i)))
				if err != nil {
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					return
				}
				acked[w] = i + 1
			}
		})
	}
	for range writers {
		<-warm
	}
	s.stop()
	wg.Wait()
	client.CloseIdleConnections()
	s = s.again()
	for w, id := range ids {
		var all []message
		for cursor := ""; ; {
			var l ledger
			s.get(agent(id, fmt.Sprint("/messages?limit=1000&cursor=", cursor))).ok(&l)
			all = append(all, l.Messages...)
			if l.NextCursor == "" {
				break
			}
			cursor = l.NextCursor
		}
		if len(all) < acked[w] || len(all) > acked[w]+1 {
			t.Errorf("agent %d: %d messages are stored, %d were acknowledged", w, len(all), acked[w])
		}
		for i, m := range all {
			if m.Content != fmt.Sprint(i) {
				t.Fatalf("agent %d: message %d is %q", w, i, m.Content)
			}
		}
	}
}

// TestSecondServer: one store belongs to one process.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s := start(t)
	c, err := config.Load(func(name string) string {
		for _, e := range s.env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.New(t.Context(), c, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), filepath.Base(c.StorePath)) {
		t.Errorf("a second server on the same store: %v", err)
	}
	s.join("the first lives on", nil)
}

// TestBadStart: New fails on settings that cannot work, and releases what it had opened.
func TestBadStart(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	settings := func(edit func(*config.Config)) config.Config {
		c, err := config.Load(func(name string) string {
			return map[string]string{"HEARDLOG_ADDR": "127.0.0.1:0", "HEARDLOG_STORE": "sqlite:" + filepath.Join(dir, "x.db")}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		edit(&c)
		return c
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*config.Config){
		"an address in use":     func(c *config.Config) { c.Addr = strings.TrimPrefix(s.url, "http://") },
		"a store in a file":     func(c *config.Config) { c.StorePath = filepath.Join(dir, "file", "x.db") },
		"a secret with a break": func(c *config.Config) { c.WebhookURL, c.WebhookSecret = "https://h.example/", "v1,whsec_x" },
	} {
		if a, err := app.New(t.Context(), settings(edit), zerolog.Nop()); err == nil {
			t.Errorf("%s: the server started at %s", name, a.Addr())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	// The same file again.
	a, err := app.New(t.Context(), settings(func(*config.Config) {}), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestNotReady: a server whose store fails, or that is stopping, is not ready, and keeps running.
func TestNotReady(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	api := handlers.New(handlers.Config{
		Access: &handlers.Access{}, Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), Log: zerolog.Nop(),
		Ready: func(context.Context) error { return errors.New("disk full at /secret/path") },
	})
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	s := &server{t: t, url: srv.URL, client: &http.Client{Transport: sp.Transport(t, nil)}}
	got := s.get("/readyz")
	var out struct{ Status, Detail string }
	if err := json.Unmarshal(got.body, &out); err != nil || got.status != http.StatusServiceUnavailable || out.Status != "unavailable" || strings.Contains(out.Detail, "secret") {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.get("/healthz").ok(nil)
}
