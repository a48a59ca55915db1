package tests

import (
	"strings"
	"testing"
)

// TestMemoryStore: a server with HEARDLOG_STORE=memory: serves everything, says that it keeps
// nothing, and keeps nothing.
func TestMemoryStore(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_STORE=memory:")
	if !strings.Contains(s.log.String(), "lost when the server stops") {
		t.Errorf("no warning in the log:\n%s", s.log)
	}
	if a := s.do("POST", "/v1/agents", map[string]any{"name": "desk"}); a.status != 201 && a.status != 200 {
		t.Fatalf("create: status %d: %s", a.status, a.body)
	}
	if a := s.do("GET", "/readyz", nil); a.status != 200 {
		t.Errorf("readiness: status %d, want 200", a.status)
	}
	list := func() bool { return strings.Contains(string(s.do("GET", "/v1/agents", nil).body), "desk") }
	if !list() {
		t.Error("the agent is not there")
	}
	if s = s.again(); list() {
		t.Error("the agent is there after a restart")
	}
}
