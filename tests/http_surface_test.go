package tests

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/handlers"
)

// notReachable lists documented answers that no request can bring about at will.
var notReachable = map[string]bool{
	"POST …/agents/{id}/think 410":        true, // an agent that ends between two looks of one call
	"GET …/realtime 101":                  true, // sockets are opened by another client
	"GET …/agents/{id}/realtime 101":      true,
	"GET /metrics 500":                    true, // a store that cannot be counted
	"PATCH …/users/{user}/facts/{id} 422": true, // 5,000 facts of one caller
	"POST …/embeddings/rebuild 422":       true, // a collection that outgrew its memory beside a model that answers
}

// TestRoutesAreDescribed compares the URL map with the description, both ways.
func TestRoutesAreDescribed(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	api := handlers.New(handlers.Config{
		Access: &handlers.Access{}, Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), UI: true,
	})
	differ, err := sp.Routes(api)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differ {
		t.Error(d)
	}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		var out struct{ Status string }
		s.get(path).ok(&out)
		if out.Status != "ok" {
			t.Errorf("%s: %q", path, out.Status)
		}
	}
	if got := s.get("/openapi.yaml").ok(nil); string(got.body) != string(heardlog.Spec) {
		t.Error("/openapi.yaml is not openapi.yaml")
	}
}

// TestDocs: the page shows the description with a script that this server sends.
func TestDocs(t *testing.T) {
	t.Parallel()
	s := start(t)
	page := s.get("/docs").ok(nil)
	if csp := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; connect-src 'self';") {
		t.Errorf("Content-Security-Policy %q", csp)
	}
	for _, name := range []string{"openapi.yaml", "docs/viewer.js"} {
		if !strings.Contains(string(page.body), `"`+name+`"`) {
			t.Errorf("the page does not name %s", name)
		}
		s.get("/" + name).ok(nil)
	}
}

// TestGuide: the documents are pages of this server.
func TestGuide(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/docs/guide", "/docs/guide/README.md", "/docs/guide/guides/heard.md"} {
		if page := s.get(path).ok(nil); !strings.Contains(string(page.body), "<h1") {
			t.Errorf("%s is no page: %s", path, page.body)
		}
	}
	s.get("/docs/guide/pictures/call.png").ok(nil)
	s.get("/docs/guide/none.md").refused(http.StatusNotFound, "TaskNotFound", "there is no such document; /docs/guide lists all")
	s.get("/docs/guide/guides/none.md").refused(http.StatusNotFound, "TaskNotFound", "there is no such document")
}

// TestUnknownPathsAndMethods: every 4xx has a JSON body, since one of Agora's clients fails
// without.
func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for _, path := range []string{agora + "/nothing", cn + "/agents/" + id + "/nothing", "/api/conversational-ai-agent/v2/projects/"} {
		s.get(path).refused(http.StatusNotFound, "TaskNotFound", "no Route matched with those values")
	}
	for _, path := range []string{"/nothing", "/v1", "/v2/join", "/docs/x"} {
		s.get(path).refused(http.StatusNotFound, "TaskNotFound", "this path does not exist; /docs shows every path")
	}
	for path, words := range map[string]string{
		"/responses/r_1/cancel": "/responses/{id}", "/completions": "client.responses.create", "/assistants": "chat completions",
		"/chat":         "/chat/completions",
		"/audio/speech": "not served", "/images/generations": "not served", "/nothing": "/docs shows every path", "/nothing/": "slash at the end",
		"/v1/chat/completions": "/v1 twice",
	} {
		for _, base := range []string{v1, agent(id)} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				s.do(method, base+path, nil).failed(http.StatusNotFound, "not_found", words)
			}
		}
	}
	s.post(v1+"/audio/speech", nil).failed(http.StatusNotFound, "not_found", "HEARDLOG_PASSTHROUGH=/v1/audio/*")
	s.post(v1+"/moderations", nil).failed(http.StatusNotFound, "not_found", "HEARDLOG_PASSTHROUGH=/v1/moderations sends")
	s.get(v1+"/agents/").failed(http.StatusNotFound, "not_found", "slash at the end")
	s.post("/chat/completions", nil).failed(http.StatusNotFound, "not_found", "must end in /v1")
	// Base URLs are often written with a slash too many.
	for _, path := range []string{v1 + "/chat/completions/", v1 + "//chat/completions", "//v1/chat/completions", agent(id, "//chat/completions/"), v1 + "/responses/"} {
		s.post(path, nil).failed(http.StatusBadRequest, "bad_request", "")
	}
	for _, c := range []struct{ method, path, allow string }{
		{"GET", v1 + "/join", "POST"}, {"PUT", agent(id), "DELETE, GET, HEAD, PATCH"}, {"PUT", v1 + "/agents", "GET, HEAD, POST"}, {"GET", agent(id, "/leave"), "POST"},
		{"POST", agent(id, "/history"), "GET, HEAD"}, {"POST", "/metrics", "GET, HEAD"}, {"PATCH", cn + "/agents/" + id, "DELETE, GET, HEAD"}, {"POST", agora + "/agents", "GET, HEAD"},
		{"POST", "/", "GET, HEAD"}, {"PUT", "/healthz", "GET, HEAD"}, {"INVENTED", agent(id), "DELETE, GET, HEAD, PATCH"}, {"GET", v1 + "/chat/completions", "POST"}, {"POST", agent(id, "/summary"), "DELETE, GET, HEAD, PUT"},
	} {
		got := s.do(c.method, c.path, nil).refused(http.StatusMethodNotAllowed, "InvalidRequest", c.method, "allowed are: "+c.allow)
		if allow := got.header.Get("Allow"); allow != c.allow {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.path, allow, c.allow)
		}
	}
	for _, c := range [][2]string{{"PUT", v1 + "/responses/r_1"}, {"GET", agent(id, "/chat/completions")}, {"PUT", v1 + "/models"}} {
		if got := s.do(c[0], c[1], nil); got.status != http.StatusMethodNotAllowed || !strings.Contains(string(got.body), `"error":{"message":"method `+c[0]+" is not allowed here") {
			t.Errorf("%s %s: %d %s", c[0], c[1], got.status, got.body)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := map[string]bool{}
	for _, sent := range []string{"", "a b", strings.Repeat("x", 129), "naïve", "a;b", "<script>", `"`} {
		got := s.get("/healthz", "X-Request-Id", sent).header.Get("X-Request-Id")
		if got == sent || len(got) != 36 {
			t.Errorf("sent %q, got %q; a made one is wanted", sent, got)
		}
		made[got] = true
	}
	if len(made) != 7 {
		t.Errorf("%d different ids were made for 7 requests", len(made))
	}
	for _, sent := range []string{"a", "trace-1_2.3:4/5+6=7@8", strings.Repeat("x", 128)} {
		for _, path := range []string{"/healthz", "/nothing", v1 + "/agents", agent("unknown"), v1 + "/models"} {
			if got := s.get(path, "X-Request-Id", sent).header.Get("X-Request-Id"); got != sent {
				t.Errorf("%s: sent %q, got %q", path, sent, got)
			}
		}
	}
	if !strings.Contains(s.log.String(), `"request_id":"trace-1_2.3:4/5+6=7@8"`) {
		t.Error("the log does not name the request id")
	}
}

// TestPanic: a panic in a handler is answered with a 500 in the documented form and logged with its
// stack, and the server keeps running.
func TestPanic(t *testing.T) {
	t.Parallel()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	// Without a service behind it each call of an agent panics.
	api := handlers.New(handlers.Config{
		Access: &handlers.Access{DefaultProject: "p"}, Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), MaxBody: 1 << 20,
	})
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	s := &server{t: t, url: srv.URL, client: &http.Client{Transport: sp.Transport(t, nil)}}
	for range 2 {
		s.get(agent("a")).refused(http.StatusInternalServerError, "InternalError", "internal error")
		s.post(v1+"/join", `{"name":"n"}`).refused(http.StatusInternalServerError, "InternalError")
	}
}

// TestLogHidesNumbers: telephone numbers in paths do not get into the log, nor into metrics.
func TestLogHidesNumbers(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{
		"/users/+4930111", "/users/+4930111/facts", "/users/+4930111/nothing", "/users/+4930111/", "/users//+4930111", "/user/+4930111", "/users/%2B4930111/facts",
		"/users/+4930111/facts/none", "/agents/+4930111", "/agents/twilio.call:+4930111/leave", "/kv/users/+4930111", "/memories/+4930111", "/saved-conversations/+4930111",
		"/nothing/+4930111", "/agents?user_id=%2B4930111",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			s.do(method, v1+path, `{}`)
		}
	}
	for name, text := range map[string]string{"the log": s.log.String(), "the metrics": string(s.get("/metrics").ok(nil).body)} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "4930111") {
				t.Errorf("%s has %s", name, line)
			}
		}
	}
	for _, want := range []string{`"path":"/v1/users/{user}/facts"`, `"path":"/v1/users/…/nothing"`, `"path":"/v1/agents/{id}"`} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}
