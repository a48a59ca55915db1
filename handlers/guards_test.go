package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// newAPI starts the API on a store in memory, without an LLM.
func newAPI(t testing.TB, edit func(*handlers.Config)) (*httptest.Server, *agents.Service) {
	t.Helper()
	mem := agents.NewService(agents.Config{
		Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return uuid.Must(uuid.NewV7()).String() },
	})
	c := handlers.Config{
		Memory: mem, Access: &handlers.Access{DefaultProject: "p", ValidProject: func(string) bool { return true }}, Log: zerolog.Nop(),
		Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MaxBody: 1 << 20,
		Ready: func(context.Context) error { return nil }, MetricsPage: http.NotFoundHandler(),
	}
	if edit != nil {
		edit(&c)
	}
	srv := httptest.NewServer(handlers.New(c))
	t.Cleanup(srv.Close)
	return srv, mem
}

// TestBodyThatNeverComes checks that a client that announces a body and never sends it does not
// hold its connection, also on paths that do not read the body.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	srv, _ := newAPI(t, func(c *handlers.Config) { c.BodyTimeout = 200 * time.Millisecond })
	for _, call := range []string{"GET /healthz", "POST /nope", "POST /v1/agents/x/leave", "POST /v1/agents", "GET /v1/agents/x/history"} {
		for _, size := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
			t.Run(call+" "+size, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", call, size)
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the connection is still held: %v", err)
				}
			})
		}
	}
}

// TestPanicInTheMiddle checks that a panic in the middle of an answer breaks the connection, so
// that half an answer is not taken for a complete one.
func TestPanicInTheMiddle(t *testing.T) {
	t.Parallel()
	srv, _ := newAPI(t, func(c *handlers.Config) {
		c.MetricsPage = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half of an ans")
			_ = http.NewResponseController(w).Flush()
			panic("boom")
		})
	})
	res, err := http.Get(srv.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("a clean end after %q", body)
	}
	res, err = http.Get(srv.URL + "/healthz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the server did not live on: %v", err)
	}
	res.Body.Close()
}

// FuzzAppend checks that any body is answered with 200 or 4xx, and that what is answered as stored
// is in the ledger.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{
		`{"role":"user","content":"hi"}`, `[{"role":"assistant","content":"a","metadata":{"interrupted":true,"original":"a b"}}]`,
		`{"messages":[{"role":"tool","tool_call_id":"c","content":"x"},{"role":"user","content":[{"type":"text","text":"y"}],"turn_id":4}]}`,
		`{"role":"user","content":"\ud800","timestamp":1780000000,"metadata":{"user":"4","k":{"a":[1]}}}`, `{"role":"user","content":"a\u0000"}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}`, `{"role":"user","content":"x","id":"a","turn_id":-1}`, `[]`, `{`, `nul`,
		`{"messages":[{"role":"user","content":"a","turn_id":7}],"messages":[{"role":"user","content":"b"}]}`,
	} {
		f.Add([]byte(s))
	}
	srv, mem := newAPI(f, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: uuid.NewString()})
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.Post(srv.URL+"/v1/agents/"+a.ID+"/messages", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(bufio.NewReader(res.Body))
		if err != nil || !json.Valid(answer) {
			t.Fatalf("%d %q: %v", res.StatusCode, answer, err)
		}
		_, stored, err := mem.Messages.Recent(t.Context(), "p", a.ID, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			if res.StatusCode >= 500 || len(stored) > 0 {
				t.Fatalf("%q: %d with %d messages stored: %s", body, res.StatusCode, len(stored), answer)
			}
			return
		}
		var got struct {
			Messages []struct {
				Seq     int64
				Role    memory.Role
				Content string
			}
		}
		if err := json.Unmarshal(answer, &got); err != nil || len(got.Messages) == 0 && len(stored) > 0 {
			t.Fatalf("%s: %v", answer, err)
		}
		bySeq := map[int64]memory.Message{}
		for _, m := range stored {
			bySeq[m.Seq] = m
		}
		for _, m := range got.Messages {
			if s := bySeq[m.Seq]; s.Role != m.Role || s.Content != m.Content {
				t.Fatalf("%q: answered %+v, stored %+v", body, m, s)
			}
		}
	})
}

// FuzzListQuery checks that no query of the list makes the server fail, and that no cursor shows
// more than there is.
func FuzzListQuery(f *testing.F) {
	for _, s := range []string{"", "cursor=", "cursor=abc&limit=1", "state=0%2C1%2C2", "from_time=-1", "limit=99999999999999999999", "to_time=1&from_time=2", "cursor=%00", "a;b", "state=,"} {
		f.Add(s)
	}
	srv, mem := newAPI(f, nil)
	for range 3 {
		if _, err := mem.Agents.Join(f.Context(), agents.JoinRequest{Project: "p", Name: uuid.NewString()}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, query string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/agents", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Skip("not a request at all")
		}
		defer res.Body.Close()
		var got struct {
			Data struct{ Count int }
			Meta struct{ Total int }
		}
		answer, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 500 {
			t.Fatalf("%q: %d %s %v", query, res.StatusCode, answer, err)
		}
		if res.StatusCode == http.StatusOK {
			if err := json.Unmarshal(answer, &got); err != nil || got.Data.Count > 3 || got.Meta.Total > 3 {
				t.Fatalf("%q: %s %v", query, answer, err)
			}
		}
	})
}
