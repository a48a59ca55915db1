package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// until reads events until one holds text.
func until(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("%q did not come: %v", text, err)
		}
	}
}

// settled waits until the agent has n messages and returns them.
func (p *proxy) settled(agent string, n int) []memory.Message {
	p.t.Helper()
	feed := p.mem.Messages.Follow("p1", agent)
	changed, stop := feed.Wake(), feed.Close
	defer stop()
	for {
		if msgs := p.ledger(agent); len(msgs) >= n {
			return msgs
		}
		select {
		case <-changed:
		case <-p.t.Context().Done():
			p.t.Fatalf("no %d messages came: %q", n, lines(p.ledger(agent)))
		case <-time.After(patience):
			p.t.Fatalf("no %d messages came: %q", n, lines(p.ledger(agent)))
		}
	}
}

// TestChatClientLeaves checks that a client that disconnects cancels the upstream call in each
// phase, and that what was sent is stored.
func TestChatClientLeaves(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script map[string]any
		more   string
		wait   string // what the client reads before it leaves
		phase  string // in which the upstream saw the cancel
		want   string
	}{
		"mid-stream":      {map[string]any{"chunks": []string{"One. ", "Two. ", "Three. "}, "hang_after": 2}, `,"stream":true`, "Two", "stream", "assistant: One. Two.  (interrupted)"},
		"no event yet":    {map[string]any{"hang": true, "heartbeat": "5ms"}, `,"stream":true`, "thinking", "first", "assistant:  (empty) (interrupted)"},
		"no headers yet":  {map[string]any{"hang": true}, `,"stream":true`, "", "headers", "assistant:  (empty) (interrupted)"},
		"unary":           {map[string]any{"hang": true}, ``, "", "headers", "assistant:  (empty) (interrupted)"},
		"between letters": {map[string]any{"raw_pieces": []string{"data: {\"choices\":[{\"delta\":{\"content\":\"One\"}}]}\n\n", "data: {\"choices\":[{\"del", ": x"}, "hang_after": 2}, `,"stream":true`, "One", "stream", "assistant: One (interrupted)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(tt.script))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if tt.wait == "" {
				go func() {
					_, _ = p.llm.WaitRequests(ctx, 1)
					leave()
				}()
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(say("hi", tt.more)))
				if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
					t.Fatalf("%v", err)
				}
			} else {
				res := p.post(ctx, agent, say("hi", tt.more))
				until(t, bufio.NewReader(res.Body), tt.wait)
				leave()
			}
			cancels, err := p.llm.WaitCancels(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if cancels[0].Phase != tt.phase {
				t.Errorf("the upstream saw the cancel in phase %q, want %q", cancels[0].Phase, tt.phase)
			}
			msgs := p.settled(agent, 2)
			if got := lines(msgs)[1]; got != tt.want {
				t.Errorf("stored %q, want %q", got, tt.want)
			}
			if m := msgs[1]; m.Method != memory.DisconnectOnly || !m.CutGenerated || m.InterruptBy != memory.ByStartOfSpeech {
				t.Errorf("stored %+v", m)
			}
		})
	}
}

// TestChatDrain checks that drain stores at once what was sent, and what was generated when the
// upstream has finished.
func TestChatDrain(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	goOn := make(chan struct{})
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"One. \"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Two.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(back.Close)
	agent := p.join(func(l *memory.LLMSettings) { l.URL, l.OnDisconnect = back.URL, "drain" })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	res := p.post(ctx, agent, say("hi", `,"stream":true`))
	until(t, bufio.NewReader(res.Body), "One")
	leave()
	m := p.settled(agent, 2)[1] // while the upstream still talks
	if !m.Interrupted || m.Content != "One. " || !m.CutGenerated {
		t.Errorf("stored at once: %+v", m)
	}
	feed := p.mem.Messages.Follow("p1", agent)
	changed, stop := feed.Wake(), feed.Close
	defer stop()
	close(goOn)
	for m.CutGenerated { // what is told first may still be of the record above
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatalf("the drain changed nothing: %+v", m)
		}
		m = p.ledger(agent)[1]
	}
	if m.Content != "One. " || m.Generated != "One. Two." || m.CutGenerated || !m.Interrupted || m.SentText() != "One. " {
		t.Errorf("after the drain: %+v", m)
	}
}

// TestChatDrainBounds checks that a drain that takes too long, or one too many, is cancelled.
func TestChatDrainBounds(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]turn.DrainLimits{
		"time":  {Time: time.Millisecond},
		"calls": {Calls: -1},
		"bytes": {Bytes: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, func(c *turn.Config) { c.Drain = limits })
			agent := p.join(func(l *memory.LLMSettings) {
				script(map[string]any{"chunks": strings.Split(strings.Repeat("word;", 20_000), ";"), "delay_chunk": "2ms"})(l)
				l.OnDisconnect = "drain"
			})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			until(t, bufio.NewReader(p.post(ctx, agent, say("hi", `,"stream":true`)).Body), "word")
			leave()
			if _, err := p.llm.WaitCancels(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if m := p.settled(agent, 2)[1]; !m.Interrupted || !m.CutGenerated {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestChatStalledReader checks that a reader that stops reading does not hold a stream.
func TestChatStalledReader(t *testing.T) {
	t.Parallel()
	p := newProxy(t, func(c *turn.Config) { c.WriteTimeout = time.Second })
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\""+strings.Repeat("x", 4000)+"\"}}]}\n\n"); err != nil {
				return
			}
		}
	}))
	t.Cleanup(back.Close)
	agent := p.join(func(l *memory.LLMSettings) { l.URL = back.URL })
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := say("hi", `,"stream":true`)
	_, err = io.WriteString(conn, "POST /v1/agents/"+agent+"/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body)
	if err != nil {
		t.Fatal(err)
	}
	m := p.settled(agent, 2)[1] // without a byte being read
	if !m.Interrupted || m.Content == "" || len(m.Content) > len(m.Original()) {
		t.Errorf("interrupted %v, %d of %d", m.Interrupted, len(m.Content), len(m.Original()))
	}
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

// TestChatUpstreamBreaks checks that a stream that the upstream broke does not end like a complete
// one.
func TestChatUpstreamBreaks(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]map[string]any{
		"reset":                 {"chunks": []string{"One. ", "Two."}, "cut_after": 1},
		"silence between words": {"chunks": []string{"One. ", "Two."}, "hang_after": 1},
		"silence with comments": {"raw_pieces": []string{"data: {\"choices\":[{\"delta\":{\"content\":\"One. \"}}]}\n\n"}, "hang_after": 1, "heartbeat": "5ms"},
		"reset within an event": {"raw_pieces": []string{"data: {\"choices\":[{\"delta\":{\"content\":\"One. \"}}]}\n\n", "data: {\"cho", ""}, "cut_after": 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) { script(s)(l); l.IdleTimeoutMS = 100 })
			res := p.post(t.Context(), agent, say("hi", `,"stream":true`))
			got, err := io.ReadAll(res.Body)
			if err == nil {
				t.Errorf("the client takes %q for a whole answer", got)
			}
			if strings.Contains(string(got), "[DONE]") || !strings.Contains(string(got), `data: {"error":{"message":"the LLM `) {
				t.Errorf("got %q", got)
			}
			if events := strings.Split(strings.TrimSuffix(string(got), "\n\n"), "\n\n"); !json.Valid([]byte(strings.TrimPrefix(events[len(events)-1], "data: "))) {
				t.Errorf("the last event is no JSON: %q", events[len(events)-1])
			}
			m := p.ledger(agent)[1]
			if m.Content != "One. " || m.Interrupted || m.Failure == nil || !m.CutGenerated {
				t.Errorf("stored %+v", m)
			}
		})
	}
}

// TestChatFinishedThenSilent checks that a stream ends cleanly if it was finished and its
// connection stays open.
func TestChatFinishedThenSilent(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"after finish_reason": 2, "after DONE": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(map[string]any{"chunks": []string{"One."}, "hang_after": n}))
			res := p.post(t.Context(), agent, say("hi", `,"stream":true`))
			got := p.read(res)
			if strings.Contains(got, "error") || strings.Contains(got, "[DONE]") != (n == 3) {
				t.Errorf("got %q", got)
			}
			if m := p.ledger(agent)[1]; m.Content != "One." || m.Failure != nil || m.CutGenerated || m.Interrupted {
				t.Errorf("stored %+v", m)
			}
		})
	}
}

// TestChatUpstreamErrors checks what the client gets for an upstream's errors.
func TestChatUpstreamErrors(t *testing.T) {
	t.Parallel()
	const dead = "http://127.0.0.1:1/v1/chat/completions" // nothing listens there
	for name, tt := range map[string]struct {
		settings func(*memory.LLMSettings)
		more     string
		status   int
		body     string
		header   map[string]string
		failure  int
	}{
		"rate limit": {script(map[string]any{"status": 429, "retry_after": "7", "body": `{"error":{"message":"slow down, sk-abcdef123456 and server-key-1234 and Bearer abcdefghijk","type":"t"}}`}), "", 429,
			`{"error":{"message":"slow down, [secret] and [secret] and [secret]","type":"t"}}`, map[string]string{"Retry-After": "7", "X-Ratelimit-Remaining-Requests": "0", "Content-Type": "application/json"}, 429},
		"streamed rate limit": {script(map[string]any{"status": 429, "body": `{"error":{"message":"m"}}`}), `,"stream":true`, 429, `{"error":{"message":"m"}}`, map[string]string{"Content-Type": "application/json"}, 429},
		"HTML":                {script(map[string]any{"status": 503, "body": "<h1>Bad</h1>", "type": "text/html"}), "", 503, `{"error":{"message":"<h1>Bad</h1>","type":"upstream_error","param":null,"code":null}}`, map[string]string{"Content-Type": "application/json"}, 503},
		"redirect":            {script(map[string]any{"status": 302}), "", 502, "redirect", map[string]string{"Location": ""}, 502},
		"dead":                {func(l *memory.LLMSettings) { l.URL = dead }, "", 502, "cannot be reached", nil, 502},
		"silent":              {func(l *memory.LLMSettings) { script(map[string]any{"hang": true})(l); l.FirstTokenTimeoutMS = 50 }, `,"stream":true`, 504, "first token", nil, 504},
		"headers then silent": {func(l *memory.LLMSettings) { script(map[string]any{"delay_body": "1h"})(l); l.FirstTokenTimeoutMS = 50 }, `,"stream":true`, 504, "first token", nil, 504},
		"too long in all":     {func(l *memory.LLMSettings) { script(map[string]any{"hang": true})(l); l.TotalTimeoutMS = 50 }, "", 504, "whole answer", nil, 504},
		"not a URL":           {func(l *memory.LLMSettings) { l.URL = "ftp://user:hunter2@x/" }, "", 400, "llm.url", nil, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(tt.settings)
			res := p.post(t.Context(), agent, say("hi", tt.more))
			body := p.read(res)
			if res.StatusCode != tt.status || !strings.Contains(body, tt.body) || !json.Valid([]byte(body)) || strings.Contains(body, "hunter2") {
				t.Errorf("%s %s", res.Status, body)
			}
			for k, want := range tt.header {
				if got := res.Header.Get(k); got != want {
					t.Errorf("%s: %q, want %q", k, got, want)
				}
			}
			m := p.ledger(agent)[1]
			if m.State != memory.Empty || m.Failure == nil || m.Failure.Code != tt.failure || strings.Contains(m.Failure.Message, "server-key") {
				t.Errorf("stored %+v %+v", m, m.Failure)
			}
		})
	}
}

// TestChatFailureMessage checks that failure_message is sent as if the model had said it, whatever
// failed before the first word.
func TestChatFailureMessage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script map[string]any
		stream bool
	}{
		"status, streamed":      {map[string]any{"status": 500}, true},
		"status, whole":         {map[string]any{"status": 429}, false},
		"reset":                 {map[string]any{"cut_after": 0, "raw_pieces": []string{": hi\n\n", "x"}, "hang_after": 1}, true},
		"error event":           {map[string]any{"raw": "data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n"}, true},
		"error event with role": {map[string]any{"raw": "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"error\":\"no\"}\n\n"}, true},
		"error in a 200":        {map[string]any{"body": `{"error":{"message":"no"}}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) {
				script(tt.script)(l)
				l.FailureMessage, l.Variables = "Sorry, {{who}}.", map[string]string{"who": "Ann"}
				l.FirstTokenTimeoutMS = 200
			})
			more := ""
			if tt.stream {
				more = `,"stream":true`
			}
			res := p.post(t.Context(), agent, say("hi", more))
			body := p.read(res)
			if res.StatusCode != 200 {
				t.Fatalf("%s %s", res.Status, body)
			}
			if tt.stream != strings.HasSuffix(body, "data: [DONE]\n\n") || !strings.Contains(body, `"content":"Sorry, Ann."`) || !strings.Contains(body, `"finish_reason":"stop"`) || strings.Contains(body, "error") {
				t.Errorf("answer %q", body)
			}
			m := p.ledger(agent)[1]
			if m.Content != "Sorry, Ann." || m.Source != memory.SourceLLMFailure || m.Failure == nil {
				t.Errorf("stored %+v", m)
			}
		})
	}
}

// TestChatCut checks that an interrupted answer ends cleanly.
func TestChatCut(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *proxy, agent string) error{
		"interrupt": func(p *proxy, agent string) error {
			_, err := p.mem.Turns.Interrupt(p.t.Context(), "p1", agent, agents.InterruptRequest{})
			return err
		},
		"speak": func(p *proxy, agent string) error {
			p.mem.Turns.Cut(p.t.Context(), "p1", agent, agents.ErrSpeak)
			return nil
		},
		"leave": func(p *proxy, agent string) error {
			p.mem.Turns.Cut(p.t.Context(), "p1", agent, agents.ErrLeave)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(map[string]any{"chunks": []string{"One. ", "Two."}, "hang_after": 1}))
			res := p.post(t.Context(), agent, say("hi", `,"stream":true`))
			r := bufio.NewReader(res.Body)
			until(t, r, "One")
			if err := cut(p, agent); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(r)
			if err != nil {
				t.Fatalf("the stream was aborted: %v", err)
			}
			if !strings.HasSuffix(string(rest), "data: [DONE]\n\n") || !strings.Contains(string(rest), `"finish_reason":"stop"`) {
				t.Errorf("ends in %q", rest)
			}
			if m := p.ledger(agent)[1]; !m.Interrupted || m.SentText() != "One. " {
				t.Errorf("stored %+v", m)
			}
			if _, err := p.llm.WaitCancels(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestChatGhost checks that a second request for the same user message ends the first stream and
// replaces its answer.
func TestChatGhost(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	list := func(user, more string) string {
		return `{"messages":[{"role":"assistant","content":"Hello"},{"role":"user","content":"` + user + `"}],"stream":true` + more + `}`
	}
	first := p.post(t.Context(), agent, list("I want", `,"fake":{"chunks":["What?","x"],"hang_after":1}`))
	r := bufio.NewReader(first.Body)
	until(t, r, "What")
	second := p.read(p.post(t.Context(), agent, list("I want a ticket.", `,"fake":{"chunks":["Where to?"]}`)))
	if !strings.Contains(second, "Where to?") {
		t.Errorf("second: %q", second)
	}
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the first ends in %q, %v", rest, err)
	}
	want := []string{"assistant: Hello", "user: I want a ticket.", "assistant: What? (superseded)", "assistant: Where to?"}
	if diff := cmp.Diff(want, lines(p.settled(agent, 4))); diff != "" {
		t.Error(diff)
	}
	// Again, after the answer is complete: it is replaced, not added.
	p.read(p.post(t.Context(), agent, list("I want a ticket.", `,"fake":{"chunks":["To Rome?"]}`)))
	want = []string{"assistant: Hello", "user: I want a ticket.", "assistant: What? (superseded)", "assistant: Where to? (superseded)", "assistant: To Rome?"}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
}

// TestChatManyStreams runs a thousand streams at once and loses none.
func TestChatManyStreams(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agents := make([]string, 50)
	for i := range agents {
		agents[i] = p.join(func(l *memory.LLMSettings) {
			script(map[string]any{"chunks": []string{"One ", "two ", "three."}, "delay_first": "100ms", "delay_chunk": "20ms"})(l)
			l.OnQuestion = prompt.OnQuestionKeep
		})
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	t.Cleanup(client.CloseIdleConnections)
	errs := make(chan error, 1000)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			// In one agent, each call is a turn of its own.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/agents/"+agents[i%len(agents)]+"/chat/completions", strings.NewReader(say("message "+itoa(i), `,"stream":true`)))
			if err != nil {
				errs <- err
				return
			}
			res, err := client.Do(req)
			if err != nil {
				errs <- err
				return
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			if err == nil && (!strings.Contains(string(b), "three.") || !strings.HasSuffix(string(b), "data: [DONE]\n\n")) {
				err = errors.New("answer " + string(b))
			}
			errs <- err
		})
	}
	wg.Wait()
	for range 1000 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
