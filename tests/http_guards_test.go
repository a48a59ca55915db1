package tests

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestCrossSite: a page of another site cannot make the user's browser write to an open server.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, header := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		s.post(v1+"/agents", `{"name":"n"}`, append(header, "Content-Type", "text/plain")...).refused(http.StatusForbidden, "InvalidPermission", "other sites")
	}
	s.post(v1+"/agents", `{"name":"n"}`, "Origin", s.url, "Sec-Fetch-Site", "same-origin").ok(nil)
	for _, path := range []string{"/metrics", "/docs", "/docs/openapi.yaml", "/docs/viewer.js", "/docs/guide", "/docs/guide/README.md", "/docs/guide/start/curl.md", "/openapi.yaml", "/", "/calls/x", "/overview", "/callers", "/callers/x", "/webhooks", "/demo", "/page/app.js", "/sign-in", "/sign-in/callback", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		s.get(path, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission")
	}
	s.get("/healthz", "Host", "evil.example").ok(nil)
}

// TestForeignMetadata: clients cannot set our own metadata keys.
func TestForeignMetadata(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL=http://127.0.0.1:9/v1")
	id := s.join("n", nil)
	s.post(agent(id, "/think"), `{"text":"go","metadata":{"source":"asr","interrupted":"x","original":"o","k":"v"}}`).ok(nil)
	m := s.ledger(id)[0]
	if m.Metadata["source"] != "command" || m.Metadata["k"] != "v" || m.Metadata["original"] != nil || m.Metadata["interrupted"] != nil {
		t.Errorf("metadata %v", m.Metadata)
	}
	cut := s.say(id, map[string]any{"role": "assistant", "content": "a b", "metadata": map[string]any{"interrupted": true, "original": "a b c"}})[0]
	if at, ok := cut.Metadata["interrupt_timestamp"].(float64); !ok || at < 1e12 {
		t.Errorf("interrupt_timestamp %v, want the time of arrival", cut.Metadata["interrupt_timestamp"])
	}
	for body, words := range map[string]string{
		`{"role":"assistant","content":"zebra","metadata":{"interrupted":true,"original":"a b c"}}`: "original",
		`{"role":"assistant","content":"","tool_calls":[5]}`:                                        "tool_calls[0]",
		`{"role":"user","content":"x","timestamp":"soon"}`:                                          "timestamp",
		`{"role":"user","content":"x","metadata":{"k":"` + strings.Repeat("y", 20<<10) + `"}}`:      "at most",
	} {
		got := s.post(agent(id, "/messages"), body)
		got.refused(http.StatusBadRequest, "InvalidFieldValue", words)
		if strings.Contains(string(got.body), "Request") {
			t.Errorf("the error names a Go type: %s", got.body)
		}
	}
}

// TestZeroValues: Agora's clients send zero for fields that are not set.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{
		"turn_detection": map[string]any{"config": map[string]any{"speech_threshold": 0}}, "tts": map[string]any{"vendor": "", "params": nil},
		"llm": map[string]any{"max_history": 0, "style": ""}, "rtc": map[string]any{"encryption_mode": 0},
	})
	s.get(agent(id, "/turns?page_size=0")).ok(nil)
	s.get(agent(id, "/history?limit=0")).ok(nil)
	s.get(v1 + "/agents?limit=0").ok(nil)
	s.post(agent(id, "/interrupt"), " \n").ok(nil)
	for _, name := range []string{"   ", "\\n", "a\\u0007"} {
		s.post(v1+"/agents", `{"name":"`+name+`"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "name")
	}
	for _, system := range []string{`[{}]`, `[{"role":5}]`, `[{"role":"system"}]`, `["x"]`} {
		got := s.post(v1+"/agents", `{"name":"m","properties":{"llm":{"system_messages":`+system+`}}}`)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "properties.llm.system_messages[0]") {
			t.Errorf("system_messages %s: %d %s", system, got.status, got.body)
		}
	}
}

// TestTailOfTheEnded: a reader that has seen the agent's end is told not to reconnect.
func TestTailOfTheEnded(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.say(id, user("Hi"))
	first := s.tail(id)
	if e, _ := first.next(); e.name != "agent" {
		t.Errorf("a fresh tail begins with %q, want the agent as it is", e.name)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	end, _ := first.next()
	for end.name == "state" { // what the agent was doing
		end, _ = first.next()
	}
	s.post(agent(id, "/think"), `{"text":"x"}`).refused(http.StatusNotFound, "TaskNotFound", "stopped at", "OK")
	if rev, err := strconv.Atoi(end.id); err != nil || end.name != "agent" {
		t.Fatalf("the end came as %+v", end)
	} else {
		for _, at := range []string{end.id, strconv.Itoa(rev + 100)} {
			for _, base := range []string{v1, agora, cn} {
				if got := s.get(base+"/agents/"+id+"/events", "Last-Event-ID", at); got.status != http.StatusNoContent {
					t.Errorf("%s: %d, want 204", at, got.status)
				}
			}
		}
	}
}
