package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const validatePath = v1 + "/memory-model/validate"

type modelReport struct {
	Valid  bool
	Errors []struct{ Path, Message string }

	Policy        json.RawMessage
	Session       json.RawMessage
	WorkingMemory json.RawMessage                  `json:"working_memory"`
	NotSupported  []struct{ Path, Message string } `json:"not_supported"`
}

// TestMemoryModel: a document is checked, alone or with its variables, and the answer holds nothing
// of the server's environment.
//
// Rules: 004-1, 004-2
func TestMemoryModel(t *testing.T) {
	t.Setenv("HEARDLOG_TEST_SECRET", "of the server")
	s := start(t)
	var whole, wrapped modelReport
	const doc = `{"apiVersion":"ossa/v0.3.4","kind":"MemoryModel","short_term":{"enabled":true,"conversation_context":{"max_messages":"${MAX:-7}"}},"long_term":{"enabled":true}}`
	s.post(validatePath, doc).ok(&whole)
	s.post(validatePath, `{"document":`+doc+`}`).ok(&wrapped)
	if d := cmp.Diff(whole, wrapped); d != "" || !whole.Valid || !strings.Contains(string(whole.Policy), `"max_messages":7`) {
		t.Errorf("whole and wrapped differ by %s: %+v", d, whole)
	}
	s.post(validatePath, `{"document":`+doc+`,"variables":{"MAX":"9"}}`).ok(&wrapped)
	if !strings.Contains(string(wrapped.Policy), `"max_messages":9`) {
		t.Errorf("policy %s", wrapped.Policy)
	}
	got := s.post(validatePath, `{"part":"long_term.vector_store","document":{"embedding_model":"${HEARDLOG_TEST_SECRET}"}}`).ok(&wrapped)
	if wrapped.Valid || !strings.Contains(string(got.body), "HEARDLOG_TEST_SECRET") || strings.Contains(string(got.body), "of the server") {
		t.Errorf("%s", got.body)
	}
	for body, words := range map[string]string{
		`{"document":{},"part":"short_term.x"}`: "part: ", `{"document":{},"variables":{"A":1}}`: "variables", `{"document":{},"more":1}`: "more: is not a field",
	} {
		s.post(validatePath, body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	for body, words := range map[string]string{
		``: "document", `[]`: "must be an object", `{"document":[]}`: "must be an object", `{"document":null}`: "null", `{} {}`: "more than one",
		strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat("}", 65): "64 levels",
	} {
		s.post(validatePath, body).refused(http.StatusBadRequest, "InvalidRequestBody", words)
	}
}

// TestMemoryModelJoins: join accepts the settings that the check returns.
//
// Rules: 004-4, 004-7
func TestMemoryModelJoins(t *testing.T) {
	t.Parallel()
	s := start(t)
	var r modelReport
	s.post(validatePath, `{"part":"short_term","document":{"conversation_context":{"max_messages":2},"session_state":{"session_ttl_seconds":90,"persist_across_invocations":true}}}`).ok(&r)
	heardlog := map[string]any{"policy": r.Policy, "session": r.Session}
	var out struct {
		AgentID string `json:"agent_id"`
	}
	s.post(v1+"/join", map[string]any{"name": "ann", "properties": map[string]any{"heardlog": heardlog}}).ok(&out)
	s.post(agent(out.AgentID, "/messages"), `{"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}]}`).ok(nil)
	var c struct {
		Messages []struct{ Content string }
		Policy   struct{ Preset string }
	}
	s.post(agent(out.AgentID, "/context"), `{}`).ok(&c)
	if len(c.Messages) != 2 || c.Messages[0].Content != "two" || c.Policy.Preset != "limits" {
		t.Errorf("context %+v", c)
	}
}
