package tests

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// subscribed creates a store in which the receiver is an endpoint with this filter, and returns the
// setting for it.
func subscribed(t *testing.T, r *receiver, secret string, filter ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "heardlog.db")
	subscribe(t, path, r, secret, filter...)
	return "HEARDLOG_STORE=sqlite:" + path
}

func subscribe(t *testing.T, path string, r *receiver, key string, filter ...string) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	e := webhook.Endpoint{
		ID: "own", Project: "default", URL: r.url, Events: filter, Agora: true, Secrets: []webhook.SigningSecret{{ID: "s", Value: secret.String(key)}},
	}
	if err := webhook.CreateEndpoint(t.Context(), store, e, 0); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// eventView is what the tests read of payloads of every type.
type eventView struct {
	Sequence  int64
	Interrupt int64 `json:"interrupt_timestamp"`
	Cut       bool  `json:"interrupted"`
	Heard     string
	Generated string
	Evidence  struct{ Method string }
	Messages  []message
	Contents  []message
	Metrics   []map[string]int64
	EndReason string `json:"end_reason"`
	EndTurn   int64  `json:"end_turn_id"`
}

func (n notice) told(t *testing.T) eventView {
	t.Helper()
	var out eventView
	if err := json.Unmarshal(n.Payload, &out); err != nil {
		t.Fatalf("%v: %s", err, n.body)
	}
	return out
}

// of waits for n events of the type and returns them by sequence. Other events that come meanwhile
// must be of the types in also.
func (r *receiver) of(t *testing.T, eventType, n int, also ...int) []notice {
	t.Helper()
	var out []notice
	for timeout := time.After(patience); len(out) < n; {
		select {
		case e := <-r.got:
			if e.EventType == eventType {
				out = append(out, e)
			} else if !slices.Contains(also, e.EventType) {
				t.Errorf("an event too many: %s", e.body)
			}
		case <-timeout:
			t.Fatalf("%d events of type %d came, want %d", len(out), eventType, n)
		}
	}
	slices.SortFunc(out, func(a, b notice) int { return int(a.told(t).Sequence - b.told(t).Sequence) })
	return out
}

// TestOptInEvents: agent.interrupted and agent.metrics are sent only to endpoints whose filter
// names them.
func TestOptInEvents(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	unasked, asked := receive(t, hookSecret), receive(t, hookSecret)
	s := start(t, subscribed(t, asked, hookSecret, "agent.interrupted", "111"), "HEARDLOG_LLM_URL="+base,
		"HEARDLOG_WEBHOOK_URL="+unasked.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	id := s.join("n", map[string]any{"channel": "room-1", "labels": map[string]string{"tenant": "t1"}})
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	s.interrupt(id, map[string]any{"at": s.last(id).Timestamp + 100}).ok(nil)
	first := asked.of(t, 10001, 1)[0].told(t)
	if !first.Cut || first.Heard != "" || first.Evidence.Method != "rate_estimate" || first.Interrupt == 0 {
		t.Errorf("%+v", first)
	}
	for range 2 {
		s.interrupt(id, `{"turn_id":0,"heard":"At nine"}`).ok(nil)
	}
	second := asked.of(t, 10001, 1)[0].told(t)
	if second.Heard != "At nine" || second.Generated != "At nine from platform two." || second.Evidence.Method != "vendor_text" || second.Sequence <= first.Sequence {
		t.Errorf("%+v after sequence %d", second, first.Sequence)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	metrics := asked.of(t, 111, 1)[0].told(t)
	if len(metrics.Metrics) != 1 || metrics.Metrics[0]["turn_id"] != 0 || metrics.Sequence <= second.Sequence {
		t.Errorf("%+v", metrics)
	}
	unasked.next(t, 4)
	for _, r := range []*receiver{asked, unasked} {
		select {
		case e := <-r.got:
			t.Errorf("one event too many: %s", e.body)
		default:
		}
	}
}

// TestMessageEventsMirror: a receiver that keeps the highest sequence of each seq in agent.message
// has the history.
func TestMessageEventsMirror(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	r := receive(t, hookSecret)
	s := start(t, subscribed(t, r, hookSecret, "agent.message"), "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"llm": map[string]any{"greeting_message": "Hello"}})
	s.say(id, user("a"), assistant("b c"), user("d"), assistant("e"))
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	s.interrupt(id, `{"heard":"At nine"}`).ok(nil)
	s.chat(agent(id, "/chat/completions"), "And the next one?", false).ok(nil)
	type version struct {
		sequence int64
		message
	}
	kept := map[int64]version{}
	// A greeting, a batch, two questions, two answers, and what was heard of one.
	for _, e := range r.of(t, 10002, 7) {
		p := e.told(t)
		for _, m := range p.Messages {
			if p.Sequence > kept[m.Seq].sequence {
				kept[m.Seq] = version{p.Sequence, m}
			}
		}
	}
	var mirror []message
	for _, seq := range slices.Sorted(maps.Keys(kept)) {
		m := kept[seq].message
		m.Seq, m.State = 0, ""
		mirror = append(mirror, m)
	}
	if diff := cmp.Diff(s.history(id).Contents, mirror); diff != "" {
		t.Errorf("the mirror differs from the history:\n%s", diff)
	}
}

// streaming opens a stream and returns it once the first words have come.
func (s *server) streaming(id, text string) *bufio.Scanner {
	s.t.Helper()
	resp := s.open(id, `{"stream":true,"messages":[{"role":"user","content":"`+text+`"}]}`)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "One") {
			return lines
		}
	}
	s.t.Fatalf("the stream ended before its first words: %v", lines.Err())
	return nil
}

// TestActiveCalls: the metric for autoscaling counts exactly the calls that are being answered.
func TestActiveCalls(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Chunks: []string{"One", " two"}, HangAfter: 1})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	a, b := s.join("a", nil), s.join("b", nil)
	for i, want := range []string{"0", "1", "2"} {
		if got := s.metric("heardlog_active_calls"); got != want {
			t.Errorf("%d streams are open: heardlog_active_calls %s", i, got)
		}
		switch i {
		case 0:
			s.streaming(a, "Count.")
		case 1:
			s.streaming(b, "Count.")
		}
	}
	s.post(agent(a, "/leave"), nil).ok(nil)
	s.post(agent(b, "/leave"), nil).ok(nil)
	for deadline := time.Now().Add(patience); s.metric("heardlog_active_calls") != "0"; {
		if time.Now().After(deadline) {
			t.Fatal("the streams have ended and still count")
		}
	}
}

// TestHistoryOfRunningTurn: if an agent is stopped during a turn, event 103 holds what was said in
// it, or the reason why it holds nothing.
func TestHistoryOfRunningTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script fake.Script
		join   map[string]any
		ask    func(s *server, llm *fake.LLM, id string)
		want   []string
		reason string
	}{
		"while it is said": {
			fake.Script{Chunks: []string{"One ", "two ", "three"}, HangAfter: 4, DelayChunk: fake.Duration(time.Millisecond)}, nil,
			func(s *server, _ *fake.LLM, id string) {
				lines := s.streaming(id, "Count.")
				for !strings.Contains(lines.Text(), "three") && lines.Scan() {
				}
			},
			[]string{"0 user: Count.", "0 assistant: One two three"}, "",
		},
		"while it is said, with a farewell": {
			fake.Script{Chunks: []string{"One ", "two ", "three"}, DelayChunk: fake.Duration(50 * time.Millisecond)},
			map[string]any{"parameters": map[string]any{"farewell_config": map[string]any{"graceful_enabled": true, "graceful_timeout_seconds": 30}}},
			func(s *server, _ *fake.LLM, id string) { s.streaming(id, "Count.") },
			[]string{"0 user: Count.", "0 assistant: One two three"}, "",
		},
		"while the model thinks": {
			fake.Script{Hang: true}, nil,
			func(s *server, llm *fake.LLM, id string) {
				req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+agent(id, "/chat/completions"), strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"Count."}]}`))
				if err != nil {
					s.t.Fatal(err)
				}
				done := make(chan struct{})
				s.t.Cleanup(func() { <-done })
				go func() {
					defer close(done)
					if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}()
				if _, err := llm.WaitRequests(s.t.Context(), 1); err != nil {
					s.t.Fatal(err)
				}
			},
			[]string{"0 user: Count."}, "answer_cut",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, hookSecret)
			llm, base := upstream(t, tt.script)
			s := start(t, subscribed(t, r, hookSecret, "agent.history"), "HEARDLOG_LLM_URL="+base)
			id := s.join("n", tt.join)
			tt.ask(s, llm, id)
			s.post(agent(id, "/leave"), nil).ok(nil)
			got := r.of(t, 103, 1)[0].told(t)
			if diff := cmp.Diff(tt.want, texts(got.Contents)); diff != "" {
				t.Errorf("contents:\n%s", diff)
			}
			last := got.Contents[len(got.Contents)-1]
			if cut := last.Metadata["interrupted"] == true; cut != (name == "while it is said") {
				t.Errorf("interrupted %v: %+v", cut, last)
			}
			if got.EndReason != tt.reason || got.EndTurn != 0 {
				t.Errorf("end_reason %q of turn %d, want %q", got.EndReason, got.EndTurn, tt.reason)
			}
		})
	}
}

// TestExpiringEvent: an agent with less than an hour of its lifetime left causes one event.
func TestExpiringEvent(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret)
	setting := before(t, map[string]time.Duration{"old": 71*time.Hour + 30*time.Minute, "young": 70 * time.Hour}, memory.Running)
	subscribe(t, strings.TrimPrefix(setting, "HEARDLOG_STORE=sqlite:"), r, hookSecret, "agent.expiring", "agent.left")
	s := start(t, setting)
	e := r.of(t, 104, 1)[0]
	var p struct {
		Start   int64 `json:"start_ts"`
		Expire  int64 `json:"expire_ts"`
		Message string
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil || e.SID != "old" || p.Expire != p.Start+72*3600 || p.Message != "Task exceeded maximum lifetime" {
		t.Errorf("%v: %s", err, e.body)
	}
	s = s.again()
	s.post(agent("old", "/leave"), nil).ok(nil)
	s.post(agent("young", "/leave"), nil).ok(nil)
	r.of(t, 102, 2)
}

// TestEventsOfNewEndpoint: an endpoint's filter takes effect with the answer to the call that sets
// it, also for agents that joined before.
func TestEventsOfNewEndpoint(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.say(id, user("before"))
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.message"}})
	words := func(want string) {
		t.Helper()
		c := h.next(t)
		var p eventView
		if err := json.Unmarshal(c.Payload, &p); err != nil || c.EventType != 10002 || len(p.Messages) != 1 || p.Messages[0].Content != want {
			t.Errorf("%v: want %q: %s", err, want, c.body)
		}
	}
	s.say(id, user("with"))
	words("with")
	change := func(fields map[string]any) {
		t.Helper()
		s.do(http.MethodPatch, hooks+"/endpoints/"+e.ID, fields).ok(nil)
	}
	change(map[string]any{"events": []string{"agent.interrupted"}})
	s.say(id, user("without"))
	change(map[string]any{"events": []string{"agent.*"}})
	s.say(id, user("again"))
	words("again")
	change(map[string]any{"disabled": true})
	s.say(id, user("disabled"))
	change(map[string]any{"disabled": false})
	s.say(id, user("enabled"))
	words("enabled")
	s.do(http.MethodDelete, hooks+"/endpoints/"+e.ID, nil)
	s.say(id, user("gone"))
	s.stop()
	h.quiet(t)
}
