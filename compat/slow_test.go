package compat_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// dial opens a bare connection to the server.
func dial(t testing.TB, s *server) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSlowHeaders checks that a client that sends its headers byte by byte is disconnected.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn := dial(t, s)
	began := time.Now()
	gone := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(conn)
		gone <- err
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	request := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + strings.Repeat("a", 100000)
	for i := 0; i < len(request); i++ {
		if _, err := conn.Write([]byte{request[i]}); err != nil {
			break
		}
		select {
		case <-gone:
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			s.call(t, 200, "GET", "/healthz", nil, nil)
			return
		case <-tick.C:
		}
	}
	if time.Since(began) > time.Minute {
		t.Error("the client was never cut off")
	}
}

// TestSlowBody checks that a body that never arrives holds its connection for a bounded time, and
// delays no other client.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join(t, "slow", nil)
	conn := dial(t, s)
	began := time.Now()
	fmt.Fprintf(conn, "POST /v1/agents/%s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", id)
	for range 50 {
		s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"role": "user", "content": "meanwhile"}, nil)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 400 || !isAgoraError(body) {
			t.Errorf("%s %s", res.Status, body)
		}
	}
	if took := time.Since(began); took < 5*time.Second || took > time.Minute {
		t.Errorf("the connection was held for %s (%v)", took, err)
	}
	if n := len(s.ledger(t, id)); n != 50 {
		t.Errorf("%d messages", n)
	}
}

// TestLargeBody checks that a body of one byte over the limit is refused in the form of its path,
// and one of exactly the limit is accepted.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	id := s.join(t, "large", nil)
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	for path, body := range map[string]string{
		"/v1/agents":                                            `{"name":"large-2"}`,
		"/v1/agents/" + id + "/messages":                        `{"role":"user","content":"x"}`,
		"/v1/agents/" + id + "/interrupt":                       `{"at":1}`,
		"/v1/agents/" + id + "/chat/completions":                `{"messages":[{"role":"user","content":"x"}]}`,
		"/api/conversational-ai-agent/v2/projects/default/join": `{"name":"large-3"}`,
	} {
		status, got, err := s.try(t.Context(), "POST", path, pad(body, limit+1))
		if err != nil || status != 413 {
			t.Errorf("%s: %d %s %v", path, status, got, err)
		}
	}
	s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", pad(`{"role":"user","content":"x"}`, limit), nil)
	// The length need not be known in advance.
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/agents/"+id+"/messages", io.MultiReader(strings.NewReader(pad(`{"role":"user","content":"x"}`, limit)), strings.NewReader(" ")))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("chunked: %s", res.Status)
	}
	deep := `{"role":"user","content":"x","metadata":{"a":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}}`
	s.call(t, 400, "POST", "/v1/agents/"+id+"/messages", deep, nil)
	if n := len(s.ledger(t, id)); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestIdleConnections checks that thousands of silent connections are closed in the end, cost
// little, and delay no other client.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const many = 2000
	s := start(t)
	closed := make(chan error, many)
	for range many {
		conn := dial(t, s)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			closed <- err
		}()
	}
	began := time.Now()
	s.call(t, 200, "GET", "/readyz", nil, nil)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("with %d idle connections a call took %s", many, took)
	}
	if mb := s.memory(t, "VmRSS"); mb > 200 {
		t.Errorf("with %d idle connections the server takes %d MB", many, mb)
	} else {
		t.Logf("%d MB with %d idle connections", mb, many)
	}
	for range many {
		select {
		case err := <-closed:
			if err == nil {
				t.Error("the server sent something")
			}
		case <-time.After(patience):
			t.Fatal("idle connections are kept for ever")
		}
	}
	s.call(t, 200, "GET", "/readyz", nil, nil)
}

// memory returns the memory of the process in MB: VmRSS is what it has, VmHWM the most that it had.
func (s *server) memory(t testing.TB, what string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Skipf("the memory of a process is read from /proc: %v", err)
	}
	kb, err := strconv.Atoi(string(regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(b)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}
