package tests

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bare calls the server without following redirects.
func (s *server) bare(method, path string) answer {
	s.t.Helper()
	plain := *s
	client := *s.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	plain.client = &client
	return plain.do(method, path, nil, "X-Request-Id", "same", "Accept-Encoding", "gzip")
}

// TestHeadAsGet: HEAD is answered wherever GET is, with the same status and headers, without a body
// and without waiting for the end of a stream.
func TestHeadAsGet(t *testing.T) {
	t.Parallel()
	s := start(t)
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	id := s.join("n", nil)
	values := strings.NewReplacer("{id}", id, "{appid}", "default", "{user}", "ann", "{namespace}", "z", "{key}", "k", "{file}", "README.md", "{folder}", "guides")
	s.do(http.MethodPut, kvPath("z", "k"), `{"value":1}`).ok(nil)
	paths := []string{"/page/app.js", "/v1/nothing", "/nothing", cn + "/agents/" + id, v1 + "/chat/completions", v1 + "/join", "/mcp"}
	for op := range sp.Parameters() {
		if path, ok := strings.CutPrefix(op, "GET "); ok {
			paths = append(paths, values.Replace(path))
		}
	}
	rest := regexp.MustCompile(`\{[a-z_]+\}`)
	for _, path := range slices.Sorted(slices.Values(paths)) {
		path = rest.ReplaceAllString(path, "none")
		head := s.bare(http.MethodHead, path)
		if strings.HasSuffix(path, "/events") && head.status == http.StatusOK {
			if got := head.header.Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("HEAD %s: Content-Type %q", path, got)
			}
			continue // the stream of a live agent
		}
		get := s.bare(http.MethodGet, path)
		for _, name := range []string{"Date", "Content-Length", "Transfer-Encoding"} {
			if name == "Content-Length" && head.header.Get(name) == "" {
				get.header.Del(name) // of a redirect, whose short body HEAD does not make
			}
			if name == "Content-Length" && get.status == http.StatusMethodNotAllowed {
				head.header.Del(name) // the text names the method
				get.header.Del(name)
			}
			if name != "Content-Length" {
				head.header.Del(name)
				get.header.Del(name)
			}
		}
		if head.status != get.status || len(head.body) > 0 || !maps.EqualFunc(head.header, get.header, slices.Equal) {
			t.Errorf("%s: HEAD %d %v with %d bytes, GET %d %v", path, head.status, head.header, len(head.body), get.status, get.header)
		}
	}
	for path, status := range map[string]int{
		"/": 200, "/healthz": 200, "/readyz": 200, "/metrics": 200, "/openapi.yaml": 200, "/docs": 200, "/docs/openapi.yaml": 200, "/docs/viewer.js": 200,
		agent(id): 200, agent(id, "/history"): 200, agent(id, "/events"): 200, v1 + "/agents?limit=1": 200, v1 + "/agents?limt=1": 400, agent("none"): 404, v1 + "/chat/completions": 405,
	} {
		if got := s.bare(http.MethodHead, path); got.status != status {
			t.Errorf("HEAD %s: %d, want %d", path, got.status, status)
		}
	}
}
