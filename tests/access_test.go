package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const twoTenants = "HEARDLOG_CREDENTIALS=p1=alice:wonder,p2=bob:builder,p1=anna:secret:with:colons"

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	const p1 = "/api/conversational-ai-agent/v2/projects/p1"
	for _, tt := range []struct{ name, path, header string }{
		{"basic", p1, basic("alice", "wonder")},
		{"basic, lower case", p1, "basic" + strings.TrimPrefix(basic("alice", "wonder"), "Basic")},
		{"basic, a second pair of the project", p1, basic("anna", "secret:with:colons")},
		{"basic under /cn", "/cn" + p1, basic("alice", "wonder")},
		{"basic under /v1", "/v1", basic("alice", "wonder")},
		{"bearer with the secret", "/v1", "Bearer wonder"},
		{"bearer with both", "/v1", "Bearer alice:wonder"},
		{"agora token", p1, "agora token=wonder"},
		{"agora token in quotes", p1, `agora token="wonder"`},
		{"agora token with both", p1, `agora token="alice:wonder"`},
	} {
		if got := s.get(tt.path+"/agents", "Authorization", tt.header); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", tt.name, got.status, got.body)
		}
	}
	n := 0
	for _, tt := range []struct{ name, header, words string }{
		{"none", "", "Missing authorization header"},
		{"a wrong secret", basic("alice", "Wonder"), "not valid"},
		{"another's secret", basic("alice", "builder"), "not valid"},
		{"an unknown id", basic("mallory", "wonder"), "not valid"},
		{"no secret", basic("alice", ""), "not valid"},
		{"nothing in it", basic("", ""), "not valid"},
		{"not base64", "Basic !!!", "not valid"},
		{"a wrong token", "Bearer wonde", "not valid"},
		{"an empty token", "Bearer ", "not valid"},
		{"an unknown scheme", "Digest alice", "not valid"},
		{"agora without a token", "agora wonder", "not valid"},
	} {
		var headers []string
		if tt.header != "" {
			headers = []string{"Authorization", tt.header}
		}
		elsewhere := func() *server { // too many wrong secrets from one address are answered 429
			n++
			return s.from(fmt.Sprintf("127.0.%d.%d", 1+n/200, 1+n%200))
		}
		for _, path := range []string{p1 + "/agents", "/cn" + p1 + "/agents", "/v1/agents", "/v1/agents/x/history"} {
			elsewhere().get(path, headers...).refused(http.StatusUnauthorized, "InvalidPermission", tt.words)
		}
		for _, path := range []string{"/v1/models", "/v1/models/m", "/v1/agents/x/models", "/v1/agents/x/models/m"} {
			if got := elsewhere().get(path, headers...); got.status != http.StatusUnauthorized || !strings.Contains(string(got.body), `"type":"authentication_error"`) {
				t.Errorf("%s, %s: %d %s", tt.name, path, got.status, got.body)
			}
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/agents/x/chat/completions"} {
			if got := elsewhere().post(path, `{"messages":[]}`, headers...); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s, %s: %d %s", tt.name, path, got.status, got.body)
			}
		}
		for _, c := range calls {
			if got := elsewhere().do(c.method, strings.Replace(c.path, "{id}", "x", 1), c.body, headers...); got.status != http.StatusUnauthorized {
				t.Errorf("%s: %s without credentials: %d", tt.name, c.path, got.status)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/docs", "/docs/openapi.yaml", "/docs/viewer.js", "/docs/guide/README.md", "/docs/guide/start/curl.md"} {
		s.get(path).ok(nil) // these need none
	}
}

// calls is every call of the project's part, with a body that would be taken.
var calls = []struct {
	method, path string
	body         any
}{
	{"POST", "/v1/join", `{"name":"x"}`},
	{"POST", "/v1/agents", `{"name":"y"}`},
	{"GET", "/v1/agents", nil},
	{"GET", "/v1/agents/{id}", nil},
	{"POST", "/v1/agents/{id}/update", `{}`},
	{"GET", "/v1/agents/{id}/history", nil},
	{"GET", "/v1/agents/{id}/history?limit=all", nil},
	{"GET", "/v1/agents/{id}/turns", nil},
	{"POST", "/v1/agents/{id}/speak", `{"text":"x"}`},
	{"POST", "/v1/agents/{id}/think", `{"text":"x"}`},
	{"POST", "/v1/agents/{id}/interrupt", nil},
	{"POST", "/v1/agents/{id}/interrupt", `{"heard":"Hi"}`},
	{"POST", "/v1/agents/{id}/evidence/twilio", `{"type":"interrupt","utteranceUntilInterrupt":"Hi"}`},
	{"POST", "/v1/agents/{id}/messages", `{"role":"user","content":"x"}`},
	{"GET", "/v1/agents/{id}/messages", nil},
	{"GET", "/v1/agents/{id}/events", nil},
	{"POST", "/v1/agents/{id}/context", nil},
	{"GET", "/v1/agents/{id}/snapshot", nil},
	{"PUT", "/v1/agents/{id}/snapshot", `[]`},
	{"GET", "/v1/agents/{id}/summarizable", nil},
	{"POST", "/v1/agents/{id}/trim", `{"keep_recent":1}`},
	{"POST", "/v1/agents/{id}/repair", nil},
	{"POST", "/v1/agents/{id}/clear", nil},
	{"GET", "/v1/agents/{id}/summary", nil},
	{"PUT", "/v1/agents/{id}/summary", `{"summary":"x"}`},
	{"DELETE", "/v1/agents/{id}/summary", nil},
	{"DELETE", "/v1/agents/{id}/working-memory", nil},
	{"DELETE", "/v1/agents/{id}/working-memory/k", nil},
	{"DELETE", "/v1/agents/{id}", nil},
	{"POST", "/v1/agents/{id}/leave", nil},
}

// TestTenants: another project's data is answered exactly like data that does not exist, under
// every base path and in every call.
//
// Rules: 000-11
func TestTenants(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.join("same name", map[string]any{"channel": "c", "llm": map[string]any{"greeting_message": "Hi"}}, alice...)
	s.join("same name", nil, bob...) // names of one project are free in another
	unknown := "00000000" + id[8:]
	for _, c := range calls {
		if !strings.Contains(c.path, "{id}") {
			continue
		}
		for _, base := range []string{"/v1", "/api/conversational-ai-agent/v2/projects/p2", "/cn/api/conversational-ai-agent/v2/projects/p2"} {
			path := strings.Replace(c.path, "/v1", base, 1)
			foreign := s.do(c.method, strings.Replace(path, "{id}", id, 1), c.body, bob...)
			missing := s.do(c.method, strings.Replace(path, "{id}", unknown, 1), c.body, bob...)
			foreign.absent("agent")
			if without(foreign.body, id) != without(missing.body, unknown) || foreign.status != missing.status {
				t.Errorf("%s %s: another's agent gives %d %s, an unknown one %d %s", c.method, path, foreign.status, foreign.body, missing.status, missing.body)
			}
			for k := range foreign.header {
				if _, ok := missing.header[k]; !ok {
					t.Errorf("%s %s: only another's agent gives the header %s", c.method, path, k)
				}
			}
		}
	}
	for _, c := range []struct{ method, path string }{{"POST", "/v1/agents/{id}/chat/completions"}, {"GET", "/v1/agents/{id}/models"}} {
		foreign := s.do(c.method, strings.Replace(c.path, "{id}", id, 1), `{"messages":[{"role":"user","content":"x"}]}`, bob...)
		missing := s.do(c.method, strings.Replace(c.path, "{id}", unknown, 1), `{"messages":[{"role":"user","content":"x"}]}`, bob...)
		if foreign.status != http.StatusNotFound || without(foreign.body, id) != without(missing.body, unknown) {
			t.Errorf("%s: another's agent gives %d %s, an unknown one %d %s", c.path, foreign.status, foreign.body, missing.status, missing.body)
		}
	}
	for _, name := range []string{id, unknown} {
		got := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, append(bob, "X-Agent-Id", name)...)
		if got.status != http.StatusNotFound {
			t.Errorf("X-Agent-Id %s: %d %s", name, got.status, got.body)
		}
	}
	// Another's project is like one that does not exist.
	for _, base := range []string{"/api/conversational-ai-agent/v2/projects/", "/cn/api/conversational-ai-agent/v2/projects/"} {
		for _, c := range calls {
			rest := strings.TrimPrefix(strings.Replace(c.path, "{id}", id, 1), "/v1")
			if c.path == "/v1/agents" && c.method == "POST" {
				continue // under /v1 only
			}
			theirs := s.do(c.method, base+"p1"+rest, c.body, bob...)
			nobodys := s.do(c.method, base+"p3"+rest, c.body, bob...)
			theirs.refused(http.StatusNotFound, "TaskNotFound", "project not found")
			if string(theirs.body) != string(nobodys.body) {
				t.Errorf("%s: another's project gives %s, none %s", rest, theirs.body, nobodys.body)
			}
		}
	}
	if mine := s.find("", alice...).Agents; len(mine) != 1 || mine[0].AgentID != id {
		t.Errorf("alice sees %+v", mine)
	}
	// No cursor is a way into another's list.
	for _, query := range []string{"", "?cursor=9000000000000-9", "?q=Hi", "?user_id=anna"} {
		for _, a := range s.find(query, bob...).Agents {
			if a.AgentID == id {
				t.Errorf("bob sees alice's agent with %q", query)
			}
		}
	}
	if got := s.history(id, alice...).Contents; len(got) != 1 || got[0].Content != "Hi" {
		t.Errorf("after all of bob's calls alice's agent holds %+v", got)
	}
}

// without returns an answer without the requested ID, which errors repeat.
func without(body []byte, id string) string { return strings.ReplaceAll(string(body), id, "ID") }

// TestForeignHost: an open server answers only to names of this machine, since a web page in the
// user's browser could reach it under a name of its own.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, host := range []string{"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.168.1.5", "[2001:db8::1]:80", "localhost.evil.example"} {
		for _, c := range calls {
			for _, base := range []string{v1, agora, cn} {
				if c.path == "/v1/agents" && c.method == "POST" && base != v1 {
					continue
				}
				path := strings.Replace(strings.Replace(c.path, "{id}", "x", 1), v1, base, 1)
				s.do(c.method, path, c.body, "Host", host).refused(http.StatusForbidden, "InvalidPermission", host)
			}
		}
		for _, path := range []string{"/v1/models", "/v1/models/m", "/v1/agents/x/models", "/v1/agents/x/models/m"} {
			if got := s.get(path, "Host", host); got.status != http.StatusForbidden || !strings.Contains(string(got.body), `"type":"permission_error"`) {
				t.Errorf("%s under %s: %d %s", path, host, got.status, got.body)
			}
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/agents/x/chat/completions"} {
			if got := s.post(path, `{}`, "Host", host); got.status != http.StatusForbidden {
				t.Errorf("%s under %s: %d %s", path, host, got.status, got.body)
			}
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:8080", "app.localhost", "127.0.0.1", "127.8.9.10:1", "[::1]:8080", "localhost."} {
		s.get(v1+"/agents", "Host", host).ok(nil)
	}
	with := start(t, twoTenants) // credentials are what protects here
	with.get("/v1/agents", "Host", "memory.example", "Authorization", "Bearer wonder").ok(nil)
}

// TestOpenServerProjects: without credentials each name in a path is a project of its own, and /v1
// is the default one.
func TestOpenServerProjects(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_DEFAULT_PROJECT=home")
	id := s.join("n", nil)
	s.get("/api/conversational-ai-agent/v2/projects/home/agents/" + id).ok(nil)
	s.get("/api/conversational-ai-agent/v2/projects/other/agents/"+id).refused(http.StatusNotFound, "TaskNotFound", id)
	for _, bad := range []string{"-x", ".", "a%20b", "a%00b", strings.Repeat("x", 129), "%E2%82%AC"} {
		s.get("/api/conversational-ai-agent/v2/projects/"+bad+"/agents").refused(http.StatusNotFound, "TaskNotFound")
		s.post("/cn/api/conversational-ai-agent/v2/projects/"+bad+"/join", `{"name":"n"}`).refused(http.StatusNotFound, "TaskNotFound")
	}
}
