package compat_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// streaming starts a streamed answer, waits for its first words, and returns the rest.
func streaming(t testing.TB, s *server, id, text string) (*http.Response, *bufio.Reader) {
	t.Helper()
	res, err := s.client.Post(s.url+"/v1/agents/"+id+"/chat/completions", "application/json",
		strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"`+text+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	r := bufio.NewReader(res.Body)
	line, err := r.ReadString('\n')
	if err != nil || res.StatusCode != 200 || !strings.HasPrefix(line, "data: {") {
		t.Fatalf("%s %q %v", res.Status, line, err)
	}
	return res, r
}

// refused reports whether the server accepts no connections any more.
func (s *server) refused() bool {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), patience)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// TestGracefulStop checks that at SIGTERM and SIGINT new work is refused, the running stream ends
// by itself, the exit code is 0, and what was streamed is stored.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
			id := s.join(t, "stop", scripted(object{"answer": "one two three four five six seven eight nine ten", "delay_chunk": "80ms"}))
			idle := s.join(t, "idle", nil)
			res, rest := streaming(t, s, id, "Count.")
			s.signal(t, sig)
			eventually(t, "new connections are refused", s.refused)
			if !s.running() {
				t.Error("the server did not wait for the stream")
			}
			text, err := io.ReadAll(rest)
			if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				t.Errorf("the stream was cut: %v %q", err, text)
			}
			res.Body.Close()
			if code := s.wait(t); code != 0 {
				t.Errorf("exit code %d\n%s", code, s.stderr)
			}
			again := start(t, "HEARDLOG_STORE=sqlite:"+s.store)
			if diff := cmp.Diff([]string{"user: Count.", "assistant: one two three four five six seven eight nine ten"}, said(again.ledger(t, id))); diff != "" {
				t.Error(diff)
			}
			if got := again.statusOf(t, idle); got != "RUNNING" {
				t.Errorf("an agent that ran is %s", got)
			}
		})
	}
}

// TestShutdownTimeout checks that a stream that is slower than the shutdown timeout is cut, and
// that what was sent of it is stored.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_SHUTDOWN_TIMEOUT=300ms")
	id := s.join(t, "slow", scripted(object{"answer": "one two three", "hang_after": 2, "delay_chunk": "1ms"}))
	_, rest := streaming(t, s, id, "Count.")
	second := ""
	for second == "" || second == "\n" { // the first event's blank line
		var err error
		if second, err = rest.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	code := s.wait(t)
	if took := time.Since(began); took < 300*time.Millisecond || took > 10*time.Second {
		t.Errorf("the end took %s", took)
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if text, err := io.ReadAll(rest); err == nil || strings.Contains(string(text), "[DONE]") {
		t.Errorf("the cut stream looks whole: %q", text)
	}
	again := start(t, "HEARDLOG_STORE=sqlite:"+s.store)
	if diff := cmp.Diff([]string{"user: Count.", "assistant: one two  [interrupted]"}, said(again.ledger(t, id))); diff != "" {
		t.Error(diff)
	}
}

// TestSecondSignal checks that a second signal ends the program at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_SHUTDOWN_TIMEOUT=1h")
	id := s.join(t, "hang", scripted(object{"answer": "one two three", "hang_after": 1, "delay_chunk": "1ms"}))
	streaming(t, s, id, "Count.")
	s.signal(t, syscall.SIGTERM)
	if _, ok := s.stderr.find(func(l string) bool { return strings.Contains(l, `"message":"stopping"`) }); !ok {
		t.Fatalf("the server does not say that it stops:\n%s", s.stderr)
	}
	if !s.running() {
		t.Fatal("the first signal ended it")
	}
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != -1 { // it would wait for an hour
		t.Errorf("exit code %d, want an end by the signal", code)
	}
	again := start(t, "HEARDLOG_STORE=sqlite:"+s.store)
	if msgs := again.ledger(t, id); len(msgs) == 0 || msgs[0].said() != "user: Count." {
		t.Errorf("%q", said(msgs))
	}
}

// TestDrainDelay checks that a server that was asked to stop is not ready but serves requests until
// its drain delay is over, and that it ends then.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_DRAIN_DELAY=1h")
	id := s.join(t, "drain", nil)
	s.signal(t, syscall.SIGTERM)
	ready := func() int {
		res, err := s.client.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	eventually(t, "the server is not ready", func() bool { return ready() == http.StatusServiceUnavailable })
	if got := s.statusOf(t, id); got != "RUNNING" {
		t.Errorf("the agent is %s", got)
	}
	s.signal(t, syscall.SIGTERM) // a second signal waits for nothing
	s.wait(t)

	short := start(t, "HEARDLOG_DRAIN_DELAY=300ms")
	began := time.Now()
	short.signal(t, syscall.SIGTERM)
	if code := short.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the end took %s", took)
	}
}
