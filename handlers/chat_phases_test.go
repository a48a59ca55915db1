package handlers_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestEndsBetweenAttempts checks that a client that leaves or interrupts between two attempts ends
// the call for that reason, not for the failure before it.
func TestEndsBetweenAttempts(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]bool{"the client leaves": false, "an interruption": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				calls.Add(1)
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(back.Close)
			reg := prometheus.NewRegistry()
			p := newProxy(t, func(c *turn.Config) {
				c.Metrics, c.Retries = reg, turn.Retries{Times: 1, Budget: patience}
			})
			agent := p.join(func(l *memory.LLMSettings) { l.URL, l.FailureMessage = back.URL, "Sorry." })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			got := make(chan string, 1)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(count))
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					got <- ""
					return
				}
				defer res.Body.Close()
				b, _ := io.ReadAll(res.Body)
				got <- string(b)
			}()
			counts := func(outcome string) float64 {
				return counted(t, reg, "heardlog_upstream_attempts_total")["outcome="+outcome+",upstream=agent"]
			}
			comes(t, "the first attempt failed", func() bool { return counts("server_error") == 1 })
			want := "client_closed"
			if interrupt {
				want = "interrupted"
				if _, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{}); err != nil {
					t.Fatal(err)
				}
			} else {
				leave()
			}
			body := <-got
			m := p.settled(agent, 2)[1]
			if m.Failure != nil || strings.Contains(m.Content, "Sorry") || strings.Contains(body, "Sorry") || interrupt && !strings.HasSuffix(body, "data: [DONE]\n\n") {
				t.Errorf("%q; the ledger has %+v", body, m)
			}
			if all := counted(t, reg, "heardlog_answers_total"); all["outcome="+want] != 1 || calls.Load() != 1 {
				t.Errorf("%v after %d calls", all, calls.Load())
			}
		})
	}
}

// TestAttemptsThatAreNoAnswers checks that a stream that starts with an error, and a unary answer
// that is none, are recorded as such.
func TestAttemptsThatAreNoAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ typ, body, more, outcome string }{
		"a stream with an error":         {"text/event-stream", "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n", `,"stream":true`, "broken"},
		"a stream with a refusal":        {"text/event-stream", "data: {\"error\":{\"message\":\"no such model\",\"code\":400}}\n\n", `,"stream":true`, "refused"},
		"an error in one piece":          {"application/json", `{"error":{"message":"overloaded","code":529}}`, "", "broken"},
		"something else in one piece":    {"application/json", `{"ok":true}`, "", "broken"},
		"an answer in one piece":         {"application/json", `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"One."},"finish_reason":"stop"}]}`, "", "answered"},
		"a stream that ends in a line":   {"text/event-stream", strings.Replace(strings.TrimSpace(delta("One")), "}]}", `,"finish_reason":"stop"}]}`, 1), `,"stream":true`, "answered"},
		"a stream that is cut in a line": {"text/event-stream", delta("One")[:60], `,"stream":true`, "broken"},
		"a stream with a word":           {"text/event-stream", delta("One"), `,"stream":true`, "answered"},
		"a stream of nothing but an end": {"text/event-stream", "data: [DONE]\n\n", `,"stream":true`, "answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.typ)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(back.Close)
			reg := prometheus.NewRegistry()
			p := newProxy(t, func(c *turn.Config) { c.Metrics = reg })
			agent := p.join(func(l *memory.LLMSettings) { l.URL = back.URL })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(say("hi", tt.more)))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(res.Body) // a broken stream ends with an error
			res.Body.Close()
			if got := counted(t, reg, "heardlog_upstream_attempts_total"); len(got) != 1 || got["outcome="+tt.outcome+",upstream=agent"] != 1 {
				t.Errorf("%v, want one that %s", got, tt.outcome)
			}
		})
	}
}

// TestJoinNotBehindTheEnd checks that a stored answer cannot be joined, even if its upstream still
// holds the connection: the same words are a turn of their own.
func TestJoinNotBehindTheEnd(t *testing.T) {
	t.Parallel()
	p, joined := joining(t)
	var calls atomic.Int32
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, delta([]string{"One", "Two"}[calls.Add(1)-1])+"data: [DONE]\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the grace is over
	}))
	t.Cleanup(back.Close)
	agent := p.join(func(l *memory.LLMSettings) { l.URL = back.URL })
	first := p.post(t.Context(), agent, count)
	next(t, first.Body, "[DONE]")
	second := p.post(t.Context(), agent, count)
	got := next(t, second.Body, "[DONE]")
	p.read(first)
	p.read(second)
	if joined() != 0 || !strings.Contains(got, "Two") || len(p.settled(agent, 4)) != 4 {
		t.Errorf("%v joined: %q; the ledger has %q", joined(), got, lines(p.ledger(agent)))
	}
}

// slowTurns starts turns after a client has left.
type slowTurns struct {
	turn.Turns
	left func()
}

// Begin implements turn.Turns.
func (s slowTurns) Begin(ctx context.Context, project, agent string, r agents.TurnRequest) (*agents.Turn, error) {
	t, err := s.Turns.Begin(ctx, project, agent, r)
	s.left()
	return t, err
}

// TestLeavesBeforeFiller checks a client that left before the LLM was called, of an agent with
// drain and fillers: one goroutine stores what was said while another sets up the filler.
func TestLeavesBeforeFiller(t *testing.T) {
	t.Parallel()
	var leave atomic.Pointer[context.CancelFunc]
	served := make(chan context.Context, 1)
	p := newProxy(t, func(c *turn.Config) {
		c.Turns = slowTurns{c.Turns, func() {
			(*leave.Load())()
			<-(<-served).Done() // the server has noticed
		}}
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served <- r.Context()
		p.routes.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.url = front.URL
	a, err := p.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p1", Name: "filling", Settings: memory.Settings{
		IdleTimeoutS: -1, LLM: memory.LLMSettings{OnDisconnect: "drain"}, Filler: memory.Filler{WaitMS: 10000, Phrases: []string{"Well,"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, stop := context.WithCancel(t.Context())
		leave.Store(&stop)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+a.ID+"/chat/completions", strings.NewReader(count))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			t.Error("the client got an answer")
		}
	}
}

// lateFlush is a connection whose Flush returns only after its reader has acted on what it got.
type lateFlush struct {
	http.ResponseWriter
	wait func()
}

// FlushError implements the method that http.ResponseController uses.
func (w *lateFlush) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.wait()
	return err
}

// Unwrap lets http.ResponseController set deadlines.
func (w *lateFlush) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestLeavesUponLastWrite checks that words whose write is not noted yet count as sent if the
// client leaves after reading them, with drain.
func TestLeavesUponLastWrite(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	goOn := make(chan struct{})
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"One. \"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-goOn
	}))
	t.Cleanup(back.Close)
	agent := p.join(func(l *memory.LLMSettings) { l.URL, l.OnDisconnect = back.URL, "drain" })
	feed := p.mem.Messages.Follow("p1", agent)
	changed, stop := feed.Wake(), feed.Close
	defer stop()
	var once sync.Once
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := func() {
			<-r.Context().Done()
			// A record that does not wait for this write would come now.
			for end := time.After(50 * time.Millisecond); len(p.ledger(agent)) < 2; {
				select {
				case <-changed:
				case <-end:
					return
				}
			}
		}
		p.routes.ServeHTTP(&lateFlush{w, func() { once.Do(left) }}, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(func() { close(goOn) })
	p.url = front.URL
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	until(t, bufio.NewReader(p.post(ctx, agent, say("hi", `,"stream":true`)).Body), "One")
	leave()
	if m := p.settled(agent, 2)[1]; m.SentText() != "One. " || m.Content != "One. " || !m.Interrupted {
		t.Errorf("%+v", m)
	}
}
