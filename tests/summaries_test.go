package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// twoModels is an upstream with two LLMs: one for model "small", which can be replaced, and one for
// all others.
type twoModels struct {
	turns *fake.LLM
	small atomic.Pointer[fake.LLM]
	base  string
}

func newTwoModels(t *testing.T, turns, small fake.Script) *twoModels {
	t.Helper()
	u := &twoModels{turns: fake.New(fake.Options{Script: turns})}
	u.small.Store(fake.New(fake.Options{Script: small}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var asked struct{ Model string }
		if json.Unmarshal(body, &asked) == nil && asked.Model == "small" {
			u.small.Load().ServeHTTP(w, r)
			return
		}
		u.turns.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	u.base = srv.URL + "/v1"
	return u
}

// summarizing joins an agent that summarises at 80 of 100 tokens and keeps two messages.
func (s *server) summarizing(name string, llm map[string]any) string {
	s.t.Helper()
	return s.join(name, map[string]any{"llm": llm, "heardlog": map[string]any{
		"policy": map[string]any{"strategy": "summarize", "max_tokens": 100, "summarize_at": 0.8, "keep_recent": 2, "summary_model": "small"},
	}})
}

// turnsOf runs turns of about 15 tokens through the proxy. Each answer starts with the turn's
// number and ends in words that the caller does not hear.
func (s *server) turnsOf(id string, from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		heard := fmt.Sprintf("Answer %d is this, and", i)
		s.post(agent(id, "/chat/completions"), map[string]any{
			"stream": true, "messages": []any{user(fmt.Sprintf("Question %d of the caller?", i))}, "fake": map[string]any{"answer": heard + " CANARY was not heard."},
		}).ok(nil)
		s.interrupt(id, map[string]any{"turn_id": i, "heard": heard}).ok(nil)
	}
}

// waitSummary waits until the agent has a summary that is accepted by fits.
func (s *server) waitSummary(id string, fits func(text string) bool) {
	s.t.Helper()
	tail := s.tail(id)
	defer tail.close()
	for {
		var got struct{ Summary string }
		s.get(agent(id, "/summary")).ok(&got)
		if fits(got.Summary) {
			return
		}
		if _, ok := tail.next(); !ok {
			s.t.Fatal("the tail ended before the summary")
		}
	}
}

// count returns a counter's value, 0 if it has none.
func (s *server) count(name string) string {
	s.t.Helper()
	for line := range strings.Lines(string(s.get("/metrics").ok(nil).body)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return v
		}
	}
	return "0"
}

// contextOf returns what an LLM would get now, one message a line.
func (s *server) contextOf(id string) string {
	s.t.Helper()
	var got struct {
		Messages []struct{ Role, Content string }
	}
	s.post(agent(id, "/context"), map[string]any{}).ok(&got)
	var b strings.Builder
	for _, m := range got.Messages {
		fmt.Fprintf(&b, "%s: %s\n", m.Role, m.Content)
	}
	return b.String()
}

// TestSummaries runs a long conversation through the proxy. Its older part becomes a summary of
// heard words. The next turn gets it under its heading, after the system messages, and no turn
// waits for it.
//
// Rules: 001-28, 001-29
func TestSummaries(t *testing.T) {
	t.Parallel()
	u := newTwoModels(t, fake.Script{}, fake.Script{Hang: true})
	s := start(t, "HEARDLOG_LLM_URL="+u.base, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_LLM_MODEL=large")
	id := s.summarizing("long", map[string]any{
		"system_messages": []any{map[string]any{"role": "system", "content": "Be brief."}}, "vendor": "custom",
		"params": map[string]any{"max_tokens": 20, "temperature": 0.2, "stop": []string{"."}, "tools": []any{}},
	})
	s.turnsOf(id, 0, 12) // of these the model for summaries answers none; they end all the same
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hung := u.small.Load()
	if _, err := hung.WaitRequests(ctx, 1); err != nil {
		t.Fatal("no summary is asked for:", err)
	}
	var none struct{ Summary string }
	if s.get(agent(id, "/summary")).ok(&none); none.Summary != "" {
		t.Errorf("a summary before the model answered: %q", none.Summary)
	}
	u.small.Store(fake.New(fake.Options{Script: fake.Script{Answer: "The caller asked much."}}))
	s = s.again() // what is being made is given up, and found again
	s.waitSummary(id, func(text string) bool { return text == "The caller asked much." })
	s.turnsOf(id, 12, 13)
	told := s.contextOf(id)
	if !strings.HasPrefix(told, "system: Be brief.\n\n[Earlier conversation summary]\nThe caller asked much.\n") || strings.Contains(told, "Question 3 ") || !strings.Contains(told, "Question 12 ") {
		t.Errorf("what the model is told: %s", told)
	}
	turns := u.turns.Requests()
	if last := string(turns[len(turns)-1].Body); !strings.Contains(last, `[Earlier conversation summary]\nThe caller asked much.`) || !strings.Contains(last, `"max_tokens":20`) {
		t.Errorf("the turn behind the summary: %s", last)
	}
	asked := append(hung.Requests(), u.small.Load().Requests()...)
	all := ""
	for _, r := range asked {
		body := string(r.Body)
		all += body
		for _, no := range []string{"CANARY", "max_tokens", "stop\"", "tools\"", "turn_id", "Be brief", "interruptable"} {
			if strings.Contains(body, no) {
				t.Errorf("%q goes to the model for summaries: %s", no, body)
			}
		}
		if !strings.Contains(body, `"temperature":0.2`) || r.Header.Get("Authorization") != "Bearer key-of-the-server" {
			t.Errorf("it is not asked as the agent's turns are: %s %v", body, r.Header)
		}
	}
	if !strings.Contains(all, `USER: Question 0 of the caller?\nASSISTANT: Answer 0 is this, and\nUSER: Question 1`) {
		t.Errorf("the transcript: %s", all)
	}
	if len(s.ledger(id)) != 26 {
		t.Errorf("the ledger has %d messages", len(s.ledger(id)))
	}
	if s.metric(`heardlog_summaries_total{outcome="ok"}`) == "0" {
		t.Error("no summary is counted")
	}
}

// TestSummariesFail: a failing model changes nothing and leaks no secret, and other agents still
// get their summaries.
//
// Rules: 001-29
func TestSummariesFail(t *testing.T) {
	t.Parallel()
	u := newTwoModels(t, fake.Script{}, fake.Script{Answer: "Made."})
	broken, url := upstream(t, fake.Script{Status: http.StatusInternalServerError, Body: `{"error":{"message":"bad key sk-secret-of-the-agent"}}`})
	s := start(t, "HEARDLOG_LLM_URL="+u.base)
	good := s.summarizing("good", nil)
	bad := s.summarizing("bad", map[string]any{"url": url + "/chat/completions", "api_key": "sk-secret-of-the-agent"})
	for i := range 8 {
		for _, id := range []string{good, bad} {
			s.say(id, user(fmt.Sprintf("Question %d of the caller?", i)), assistant(fmt.Sprintf("Answer %d, which is heard in full.", i)))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := broken.WaitRequests(ctx, 1); err != nil {
		t.Fatal("no summary is asked for:", err)
	}
	s.waitSummary(good, func(text string) bool { return text == "Made." })
	var none struct{ Summary string }
	if s.get(agent(bad, "/summary")).ok(&none); none.Summary != "" || !strings.Contains(s.contextOf(bad), "Question 7 ") {
		t.Errorf("a model that fails made %q", none.Summary)
	}
	var whole struct{ Messages []any }
	if s.post(agent(bad, "/context"), `{"policy":{"preset":"full"}}`).ok(&whole); len(whole.Messages) != 16 {
		t.Errorf("%d messages are left in memory", len(whole.Messages))
	}
	for end := time.Now().Add(patience); s.count(`heardlog_summaries_total{outcome="upstream_error"}`) == "0"; {
		if time.Now().After(end) {
			t.Fatal("the failure is not counted")
		}
	}
	s.stop()
	if log := s.log.String(); strings.Contains(log, "sk-secret") || !strings.Contains(log, `"kind":"memory_summary","outcome":"retried"`) {
		t.Errorf("the log: %s", log)
	}
}

// TestSummariesOff: where the settings want none, none is made, and the window still cuts.
func TestSummariesOff(t *testing.T) {
	t.Parallel()
	u := newTwoModels(t, fake.Script{}, fake.Script{Answer: "Made."})
	s := start(t, "HEARDLOG_LLM_URL="+u.base, "HEARDLOG_SUMMARIES=0")
	id := s.summarizing("n", nil)
	s.turnsOf(id, 0, 12)
	s.stop()
	if n := len(u.small.Load().Requests()); n != 0 {
		t.Errorf("%d summaries were asked for", n)
	}
}

// TestSummaryUpstreams: a summary is requested like an answer: if the agent's first upstream fails,
// the next is asked with its own key. It has a trace without any text. An unstreamed answer is
// accepted too.
func TestSummaryUpstreams(t *testing.T) {
	t.Parallel()
	broken, first := upstream(t, fake.Script{Status: http.StatusServiceUnavailable})
	works := fake.New(fake.Options{})
	whole := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		works.ServeHTTP(httptest.NewRecorder(), r) // notes the request
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"In one piece."},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(whole.Close)
	second := whole.URL + "/v1"
	traces := newCollector(t)
	s := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.url)
	id := s.join("n", map[string]any{
		"llm": map[string]any{"url": first + "/chat/completions", "api_key": "key-one"},
		"heardlog": map[string]any{
			"upstreams": []any{map[string]any{"name": "second", "url": second, "api_key": "key-two", "model": "own"}},
			"policy":    map[string]any{"strategy": "summarize", "max_messages": 4, "keep_recent": 1, "summary_model": "small"},
		},
	})
	s.say(id, user("SAIDWORD"), assistant("b"), user("c"), assistant("d"))
	s.waitSummary(id, func(text string) bool { return text == "In one piece." })
	s.stop()
	got := append(broken.Requests(), works.Requests()...)
	if len(got) != 2 || !strings.Contains(string(got[0].Body), `"model":"small"`) || got[0].Header.Get("Authorization") != "Bearer key-one" ||
		!strings.Contains(string(got[1].Body), `"model":"own"`) || got[1].Header.Get("Authorization") != "Bearer key-two" {
		t.Errorf("asked: %+v", got)
	}
	if n := len(traces.named("summarize")); n != 1 || strings.Contains(traces.text(), "SAIDWORD") {
		t.Errorf("%d traces: %s", n, traces.text())
	}
}
