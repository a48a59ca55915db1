package spectest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/internal/spectest"
)

func load(t *testing.T) *spectest.Spec {
	t.Helper()
	s, err := spectest.Load(t.Context(), heardlog.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLoadRefuses: the validation includes examples in all places.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		edits [][3]string // old, new, what the error says
	}{
		{"examples", [][3]string{ // one load shows them all, since it takes a while
			// A key that an answer does not have.
			{"value: {message: \"\", start_ts", "value: {mess: \"\", start_ts", "mess"},
			// A status that does not exist.
			{"create_ts: 1780000000, status: RUNNING}}", "create_ts: 1780000000, status: WALKING}}", "WALKING"},
			// An error's reason.
			{"reason: MissingRequiredField}}\n            invalid", "reason: Misplaced}}\n            invalid", "Misplaced"},
			// A request that would be refused.
			{"priority: APPEND, interruptable", "priority: LATER, interruptable", "LATER"},
			// A webhook of another type.
			{"eventType: 103\n", "eventType: 999\n", "999"},
			// A webhook's payload with an unknown key.
			{"is_truncated: false\n                    turns", "is_short: false\n                    turns", "is_short"},
			// A default.
			{"schema: {type: integer, minimum: 0, maximum: 1000, default: 20}", "schema: {type: integer, maximum: 7, default: 20}", "default"},
		}},
		{"a reference to nothing", [][3]string{{"responses/Joined'", "responses/Entered'", "Entered"}}},
		{"a path parameter that is not declared", [][3]string{{"      - {$ref: '#/components/parameters/AppID'}\n    get:", "      - {$ref: '#/components/parameters/Mode'}\n    get:", "appid"}}},
		{"another version", [][3]string{{"openapi: 3.1.0", "openapi: 3.0.3", "3.0.3"}}},
		{"no YAML", [][3]string{{"openapi: 3.1.0", "openapi: [", ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			broken := heardlog.Spec
			for _, e := range tt.edits {
				edited := bytes.Replace(broken, []byte(e[0]), []byte(e[1]), 1)
				if bytes.Equal(broken, edited) {
					t.Fatalf("the description no longer holds %q", e[0])
				}
				broken = edited
			}
			_, err := spectest.Load(t.Context(), broken)
			if err == nil {
				t.Fatal("the broken description was taken")
			}
			for _, e := range tt.edits {
				if !strings.Contains(err.Error(), e[2]) {
					t.Errorf("the error does not speak of %q", e[2])
				}
			}
		})
	}
}

// recorder is a test that only records failures.
type recorder struct {
	testing.TB
	fails []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.fails = append(r.fails, fmt.Sprintf(format, args...))
}

// canned is a transport with a fixed answer.
type canned struct {
	status int
	header http.Header
	body   io.Reader
}

func (c canned) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: c.header, Body: io.NopCloser(c.body), Request: req}, nil
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestTransport(t *testing.T) {
	t.Parallel()
	const (
		id    = "X-Request-Id"
		ct    = "Content-Type"
		json  = "application/json"
		agora = "/api/conversational-ai-agent/v2/projects/p1"
	)
	spec := load(t)
	good := `{"agent_id":"a","create_ts":1,"status":"RUNNING"}`
	gone := `{"detail":"agent not found","reason":"TaskNotFound"}`
	for _, tt := range []struct {
		name, method, path string
		status             int
		header             http.Header
		body               string
		want               string // substring of the failure; "" = none
	}{
		{"join", "POST", "/v1/join", 200, headers(id, "r", ct, json), good, ""},
		{"join under the second base", "POST", agora + "/join", 200, headers(id, "r", ct, json), good, ""},
		{"join under the third base", "POST", "/cn" + agora + "/join/", 200, headers(id, "r", ct, json), good, ""},
		{"a slash behind an agent", "GET", "/v1/agents/a/", 404, headers(id, "r", ct, json), gone, ""},
		{"no request id", "POST", "/v1/join", 200, headers(ct, json), good, "X-Request-Id"},
		{"a bad request id", "POST", "/v1/join", 200, headers(id, "a b", ct, json), good, "X-Request-Id"},
		{"an unknown key", "POST", "/v1/join", 200, headers(id, "r", ct, json), `{"agent_id":"a","create_ts":1,"status":"RUNNING","x":1}`, "x"},
		{"a missing key", "POST", "/v1/join", 200, headers(id, "r", ct, json), `{"agent_id":"a","status":"RUNNING"}`, "create_ts"},
		{"a wrong type", "POST", "/v1/join", 200, headers(id, "r", ct, json), `{"agent_id":"a","create_ts":"1","status":"RUNNING"}`, "create_ts"},
		{"a status word that does not exist", "POST", "/v1/join", 200, headers(id, "r", ct, json), `{"agent_id":"a","create_ts":1,"status":"OK"}`, "status"},
		{"not JSON", "POST", "/v1/join", 200, headers(id, "r", ct, json), `{"agent_id`, "not JSON"},
		{"an undocumented status", "POST", "/v1/join", 201, headers(id, "r", ct, json), good, "status 201 is not documented"},
		{"an undocumented content type", "POST", "/v1/join", 200, headers(id, "r", ct, "text/html"), good, "text/html"},
		{"no content type", "POST", "/v1/join", 200, headers(id, "r"), good, "content type"},
		{"an empty body where one is documented", "POST", "/v1/join", 200, headers(id, "r", ct, json), "", "not JSON"},
		{"an empty body where none is documented", "POST", "/v1/agents/a/leave", 200, headers(id, "r"), "", ""},
		{"a body where none is documented", "POST", "/v1/agents/a/leave", 200, headers(id, "r", ct, json), "{}", "none is documented"},
		{"an error", "GET", agora + "/agents/a", 404, headers(id, "r", ct, json), gone, ""},
		{"an error's reason that does not exist", "GET", agora + "/agents/a", 404, headers(id, "r", ct, json), `{"detail":"d","reason":"Gone"}`, "reason"},
		{"401 without WWW-Authenticate", "GET", "/v1/agents", 401, headers(id, "r", ct, json), `{"detail":"d","reason":"InvalidPermission"}`, "WWW-Authenticate"},
		{"409 with the running agent", "POST", "/v1/join", 409, headers(id, "r", ct, json), `{"detail":"d","reason":"TaskConflict","agent_id":"a","taskId":"a"}`, ""},
		{"409 with half of it", "POST", "/v1/join", 409, headers(id, "r", ct, json), `{"detail":"d","reason":"TaskConflict","agent_id":"a"}`, "taskId"},
		{"an error in the other form", "POST", "/v1/chat/completions", 404, headers(id, "r", ct, json), gone, "anyOf"},
		{"an upstream's page", "POST", "/v1/chat/completions", 503, headers(id, "r", ct, "text/html"), "<p>busy", "text/html"},
		{"an upstream's own status", "POST", "/v1/agents/a/chat/completions", 418, headers(id, "r", ct, json), `{"error":"tea"}`, ""},
		{"an upstream's own form", "POST", "/v1/agents/a/chat/completions", 418, headers(id, "r", ct, json), `{"detail":"tea"}`, ""},
		{"a stream where JSON is documented", "GET", "/v1/agents/a", 200, headers(id, "r", ct, "text/event-stream"), "", "text/event-stream"},
		{"an unknown path", "GET", "/v1/nothing", 404, headers(id, "r", ct, json), gone, ""},
		{"an unknown path without a body", "GET", "/v1/nothing", 404, headers(id, "r", ct, json), "", "not JSON"},
		{"an unknown path that is served", "GET", "/v1/nothing", 200, headers(id, "r", ct, json), "{}", "no such operation"},
		{"a method that is not there", "PUT", "/v1/agents/a", 405, headers(id, "r", ct, json), `{"detail":"d","reason":"InvalidRequest"}`, ""},
		{"a method that should be there", "GET", "/v1/agents/a", 405, headers(id, "r", ct, json), `{"detail":"d","reason":"InvalidRequest"}`, "no such method"},
		{"plain text", "GET", "/metrics", 200, headers(id, "r", ct, "text/plain; version=0.0.4; charset=utf-8"), "a 1\n", ""},
		{"a page", "GET", "/docs", 200, headers(id, "r", ct, "text/html; charset=utf-8"), "<p>", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{TB: t}
			client := &http.Client{Transport: spec.Transport(rec, canned{tt.status, tt.header, strings.NewReader(tt.body)})}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://127.0.0.1:1"+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != tt.body {
				t.Errorf("the caller reads %q, %v", b, err)
			}
			switch {
			case tt.want == "" && len(rec.fails) > 0:
				t.Errorf("a right answer fails: %s", rec.fails)
			case tt.want != "" && (len(rec.fails) != 1 || !strings.Contains(rec.fails[0], tt.want)):
				t.Errorf("failures %q, want one with %q", rec.fails, tt.want)
			}
		})
	}
}

// TestStreamPasses proves that a stream reaches the caller while it is still being written.
func TestStreamPasses(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	client := &http.Client{Transport: load(t).Transport(t, canned{200, headers("X-Request-Id", "r", "Content-Type", "text/event-stream"), r})}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/v1/agents/a/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req) // would wait for ever if the transport read the body
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go func() {
		_, _ = w.Write([]byte("data: 1\n\n"))
		w.CloseWithError(io.ErrUnexpectedEOF)
	}()
	got, err := io.ReadAll(resp.Body)
	if string(got) != "data: 1\n\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	s := load(t)
	for range 2 {
		client := &http.Client{Transport: s.Transport(t, canned{404, headers("X-Request-Id", "r", "Content-Type", "application/json"), strings.NewReader(`{"detail":"d","reason":"TaskNotFound"}`)})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/v1/agents/a/history", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	want := []spectest.Seen{{Method: "GET", Path: "/v1/agents/{id}/history", Status: 404}}
	if diff := cmp.Diff(want, s.Seen()); diff != "" {
		t.Error(diff)
	}
}

func TestEvent(t *testing.T) {
	t.Parallel()
	const joined = `{"sid":"a","noticeId":"n:1:101","productId":17,"eventType":101,"notifyMs":1,"payload":{"agent_id":"a","name":"n","channel":"","start_ts":1,"sequence":8}}`
	spec := load(t)
	full := headers("Content-Type", "application/json", "webhook-id", "n:1:101", "webhook-timestamp", "1780000000", "webhook-attempt", "1")
	for _, tt := range []struct {
		name, method string
		header       http.Header
		body         string
		ok           bool
	}{
		{"right", "POST", full, joined, true},
		{"no id", "POST", headers("Content-Type", "application/json", "webhook-timestamp", "1780000000", "webhook-attempt", "1"), joined, false},
		{"unknown type", "POST", full, strings.Replace(joined, "101,", "999,", 1), false},
		{"unknown key in the payload", "POST", full, strings.Replace(joined, `"name"`, `"x":1,"name"`, 1), false},
		{"unknown key in the envelope", "POST", full, strings.Replace(joined, `"sid"`, `"x":1,"sid"`, 1), false},
		{"another product", "POST", full, strings.Replace(joined, ":17", ":16", 1), false},
		{"another method", "PUT", full, joined, false},
		{"not JSON", "POST", full, "{", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequestWithContext(t.Context(), tt.method, "http://127.0.0.1:1/hook", nil)
			req.Header = tt.header
			if err := spec.Event(req, []byte(tt.body)); (err == nil) != tt.ok {
				t.Errorf("Event: %v", err)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	r := chi.NewRouter()
	r.Get("/healthz", http.NotFound)
	r.Get("/extra", http.NotFound)
	got, err := load(t).Routes(r)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"GET /extra is served and not described", "POST /v1/join is described and not served"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among:\n%s", want, all)
		}
	}
	if strings.Contains(all, "/healthz") {
		t.Error("a route that both have is listed")
	}
	if _, err := load(t).Routes(http.NotFoundHandler()); err == nil {
		t.Error("a handler without routes passes")
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	s := load(t)
	good := `{"agent_id":"a","status":"RUNNING","message":"","start_ts":1,"stop_ts":0}`
	if err := s.Schema("AgentEvent", []byte(good)); err != nil {
		t.Error(err)
	}
	if err := s.Schema("AgentEvent", []byte(strings.Replace(good, "RUNNING", "RUN", 1))); err == nil {
		t.Error("a status that does not exist passes")
	}
	if err := s.Schema("Nothing", []byte(good)); err == nil {
		t.Error("an unknown schema passes")
	}
}
