package handlers_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// gated is an upstream that sends pieces when the test says so.
type gated struct {
	t       *testing.T
	url     string
	pieces  chan string // each is written and flushed; closing it ends the answer
	calls   atomic.Int32
	dropped chan struct{} // one for each call that was left
}

// breakOff is a piece that breaks the upstream's connection.
const breakOff = ""

func newGated(t *testing.T, contentType string) *gated {
	t.Helper()
	g := &gated{t: t, pieces: make(chan string), dropped: make(chan struct{}, 16)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		g.calls.Add(1)
		w.Header().Set("Content-Type", contentType)
		for {
			select {
			case <-r.Context().Done():
				g.dropped <- struct{}{}
				return
			case p, ok := <-g.pieces:
				if !ok {
					return
				}
				if p == breakOff {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, p)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}))
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// say makes the upstream send a piece now.
func (g *gated) say(piece string) {
	g.t.Helper()
	select {
	case g.pieces <- piece:
	case <-time.After(patience):
		g.t.Fatal("the upstream is not asked")
	}
}

// soon makes the upstream send a piece when it is called.
func (g *gated) soon(piece string) {
	go func() {
		select {
		case g.pieces <- piece:
		case <-g.t.Context().Done():
		}
	}()
}

// patience is how long a test waits for what another goroutine does.
const patience = 2 * time.Minute

func delta(text string) string {
	return `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"` + text + `"}}]}` + "\n\n"
}

// joining runs a proxy whose agents join duplicates. It returns how many requests have joined.
func joining(t *testing.T) (*proxy, func() float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	p := newProxy(t, func(c *turn.Config) { c.Metrics, c.Defaults.Duplicates = reg, turn.DuplicatesJoin })
	return p, func() float64 {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == "heardlog_joined_requests_total" {
				return f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return -1
	}
}

// comes waits until other goroutines have made a condition true.
func comes(t *testing.T, what string, true func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !true(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// next reads a stream up to and including a text.
func next(t *testing.T, r io.Reader, words string) string {
	t.Helper()
	got := ""
	for b := make([]byte, 4096); !strings.Contains(got, words); {
		n, err := r.Read(b)
		if got += string(b[:n]); err != nil && !strings.Contains(got, words) {
			t.Fatalf("%q, %v before %q", got, err, words)
		}
	}
	return got
}

const (
	count      = `{"messages":[{"role":"user","content":"Count."}],"stream":true,"temperature":1}`
	countAgain = ` { "temperature": 1.0, "stream":true, "timestamp":1780000000000, "messages":[ {"content":"Count.","role":"user"} ] } `
)

// TestJoinStream checks that an identical request gets the first one's answer from its start, and
// that the upstream is called once.
func TestJoinStream(t *testing.T) {
	t.Parallel()
	p, joined := joining(t)
	g := newGated(t, "text/event-stream")
	agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
	g.soon(delta("One"))
	first := p.post(t.Context(), agent, count)
	got := next(t, first.Body, "One")
	second := p.post(t.Context(), agent, countAgain)
	if first.Header.Get("X-Heardlog-Joined") != "" || second.Header.Get("X-Heardlog-Joined") != "true" || second.Header.Get("X-Heardlog-Turn") != "0" ||
		second.Header.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(second.Header.Get("Server-Timing"), "joined;dur=") {
		t.Errorf("first %v\nsecond %v", first.Header, second.Header)
	}
	if a, b := first.Header.Get("X-Request-Id"), second.Header.Get("X-Request-Id"); a == b || b == "" {
		t.Errorf("request ids %q and %q", a, b)
	}
	g.say(delta(" two"))
	g.say("data: [DONE]\n\n")
	close(g.pieces)
	got += p.read(first)
	if diff := cmp.Diff(got, p.read(second)); diff != "" || got != delta("One")+delta(" two")+"data: [DONE]\n\n" {
		t.Errorf("%q\n%s", got, diff)
	}
	if diff := cmp.Diff([]string{"user: Count.", "assistant: One two"}, lines(p.ledger(agent))); diff != "" || g.calls.Load() != 1 || joined() != 1 {
		t.Errorf("%d calls, %v joined\n%s", g.calls.Load(), joined(), diff)
	}
}

// TestJoinOutlivesFirst checks that the first client may leave: the answer goes on for the others,
// and ends when the last one leaves.
func TestJoinOutlivesFirst(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]bool{"the second stays": false, "the second leaves too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := joining(t)
			g := newGated(t, "text/event-stream")
			agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
			g.soon(delta("One"))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			next(t, p.post(ctx, agent, count).Body, "One")
			ctx2, leave2 := context.WithCancel(t.Context())
			defer leave2()
			second := p.post(ctx2, agent, count)
			next(t, second.Body, "One")
			leave()
			g.say(delta(" two"))
			next(t, second.Body, "two")
			g.say(delta(" three"))
			next(t, second.Body, "three")
			if last {
				leave2()
				select {
				case <-g.dropped:
				case <-time.After(patience):
					t.Fatal("the upstream is still read, for nobody")
				}
				if m := p.settled(agent, 2)[1]; !m.Interrupted || m.Content != "One two three" {
					t.Errorf("%+v", m)
				}
				return
			}
			g.say("data: [DONE]\n\n")
			close(g.pieces)
			p.read(second)
			if m := p.ledger(agent)[1]; m.Interrupted || m.Content != "One two three" || g.calls.Load() != 1 {
				t.Errorf("%d calls; %+v", g.calls.Load(), m)
			}
		})
	}
}

// TestJoinBeforeFirstToken checks that an answer can be joined and kept alive before its first
// word.
func TestJoinBeforeFirstToken(t *testing.T) {
	t.Parallel()
	p, joined := joining(t)
	g := newGated(t, "text/event-stream")
	agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(count))
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			t.Error("the first got an answer")
		}
	}()
	comes(t, "the upstream is asked", func() bool { return g.calls.Load() == 1 })
	answers := make(chan string, 1)
	go func() { answers <- p.read(p.post(t.Context(), agent, count)) }()
	comes(t, "the second joins", func() bool { return joined() == 1 })
	leave()
	<-left
	g.say(delta("One") + "data: [DONE]\n\n")
	close(g.pieces)
	if got := <-answers; got != delta("One")+"data: [DONE]\n\n" || g.calls.Load() != 1 {
		t.Errorf("%d calls: %q", g.calls.Load(), got)
	}
}

// TestJoinIsCut checks that an interruption ends the answer cleanly for all that follow it.
func TestJoinIsCut(t *testing.T) {
	t.Parallel()
	p, _ := joining(t)
	g := newGated(t, "text/event-stream")
	agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
	g.soon(delta("One"))
	first := p.post(t.Context(), agent, count)
	next(t, first.Body, "One")
	second := p.post(t.Context(), agent, count)
	next(t, second.Body, "One")
	if _, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, res := range []*http.Response{first, second} {
		if rest := p.read(res); !strings.HasSuffix(rest, "data: [DONE]\n\n") {
			t.Errorf("%q", rest)
		}
	}
	if m := p.ledger(agent)[1]; !m.Interrupted || m.SentText() != "One" {
		t.Errorf("%+v", m)
	}
}

// TestJoinBreaks checks that a break of the upstream breaks the answer of all that follow it, and
// none gets it as a complete one.
func TestJoinBreaks(t *testing.T) {
	t.Parallel()
	p, _ := joining(t)
	g := newGated(t, "text/event-stream")
	agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
	g.soon(delta("One"))
	first := p.post(t.Context(), agent, count)
	second := p.post(t.Context(), agent, count)
	g.say(breakOff)
	for _, res := range []*http.Response{first, second} {
		if rest, err := io.ReadAll(res.Body); err == nil || !strings.Contains(string(rest), "broke off") {
			t.Errorf("%v: %q", err, rest)
		}
	}
}

// TestJoinWhole checks that unary answers are joined, both errors and successes.
func TestJoinWhole(t *testing.T) {
	t.Parallel()
	const body = `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"One."},"finish_reason":"stop"}]}`
	for name, tt := range map[string]struct {
		body   string
		status int
	}{"an answer": {body, 200}, "a page": {"<html>", 502}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, joined := joining(t)
			g := newGated(t, "application/json")
			agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
			var all sync.WaitGroup
			got := make([]string, 4)
			for i := range got {
				all.Go(func() {
					res := p.post(t.Context(), agent, say("Count.", ""))
					if got[i] = p.read(res); res.StatusCode != tt.status {
						t.Errorf("%s", res.Status)
					}
				})
			}
			comes(t, "three join", func() bool { return joined() == 3 })
			g.say(tt.body)
			close(g.pieces)
			all.Wait()
			for _, one := range got {
				if one != got[0] || tt.status == 200 && one != body {
					t.Errorf("%q", one)
				}
			}
			if n := len(p.ledger(agent)); n != 2 || g.calls.Load() != 1 {
				t.Errorf("%d messages, %d calls", n, g.calls.Load())
			}
		})
	}
}

// TestJoinNot checks that a request that cannot join replaces the first.
func TestJoinNot(t *testing.T) {
	t.Parallel()
	long := delta(strings.Repeat("a", 300<<10))
	for name, tt := range map[string]struct {
		edit   func(*memory.LLMSettings)
		first  string // of the answer
		second string // request
		header []string
	}{
		"setting":       {func(l *memory.LLMSettings) { l.Duplicates = turn.DuplicatesSupersede }, delta("One"), count, nil},
		"another form":  {nil, delta("One"), strings.Replace(count, `"temperature":1`, `"temperature":0`, 1), nil},
		"another mode":  {nil, delta("One"), count, []string{"X-Heardlog-Mode", "reconcile"}},
		"over its size": {nil, long, count, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, joined := joining(t)
			g := newGated(t, "text/event-stream")
			agent := p.join(func(l *memory.LLMSettings) {
				if l.URL = g.url; tt.edit != nil {
					tt.edit(l)
				}
			})
			g.soon(tt.first)
			first := p.post(t.Context(), agent, count, "X-Heardlog-Mode", "reconcile", "Idempotency-Key", "k")
			next(t, first.Body, tt.first)
			if tt.header == nil {
				tt.header = []string{"X-Heardlog-Mode", "reconcile", "Idempotency-Key", "k"}
			}
			answers := make(chan string, 1)
			go func() { answers <- p.read(p.post(t.Context(), agent, tt.second, tt.header...)) }()
			if rest := p.read(first); !strings.HasSuffix(rest, "data: [DONE]\n\n") {
				t.Errorf("the first ended in %.100q", rest)
			}
			<-g.dropped
			comes(t, "a second call", func() bool { return g.calls.Load() == 2 })
			g.say(delta("Two") + "data: [DONE]\n\n")
			if got := <-answers; !strings.Contains(got, "Two") || joined() != 0 {
				t.Errorf("%v joined: %q", joined(), got)
			}
		})
	}
}
