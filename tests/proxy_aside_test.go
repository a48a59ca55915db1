package tests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestAside: a question that is no turn reaches the LLM as it is, and leaves the memory as it was.
func TestAside(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=m1", "HEARDLOG_LLM_API_KEY=key-of-the-server")
	session := []string{"X-Pipecat-Session-Id", "p-1"}
	first := s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"When is my train?"}]}`, session...).ok(nil)
	id := first.header.Get("X-Heardlog-Agent")
	before := s.ledgerTexts(id)

	off := append([]string{"X-Heardlog-Mode", "off"}, session...)
	const messages = `[{"role":"system","content":"Summarize."},{"role":"user","content":"USER: When is my train?"}]`
	for _, stream := range []string{"false", "true"} {
		got := s.post(v1+"/chat/completions", `{"model":"default","stream":`+stream+`,"metadata":{"call_id":{}},"messages":`+messages+`}`, off...).ok(nil)
		if got.header.Get("X-Heardlog-Memory") != "off" || got.header.Get("X-Heardlog-Turn") != "" {
			t.Errorf("headers %v", got.header)
		}
		if !strings.Contains(string(got.body), "nine") {
			t.Errorf("the answer is %s", got.body)
		}
		seen := llm.Requests()
		last := seen[len(seen)-1]
		if !strings.Contains(string(last.Body), `"messages":`+messages) || !strings.Contains(string(last.Body), `"model":"m1"`) {
			t.Errorf("the LLM got %s", last.Body)
		}
	}
	if diff := cmp.Diff(before, s.ledgerTexts(id)); diff != "" {
		t.Errorf("the ledger changed (-before +after):\n%s", diff)
	}
	s.post(v1+"/chat/completions", `{"messages":`+messages+`}`, "X-Heardlog-Mode", "none", "X-Agent-Id", id).failed(400, "invalid", "X-Heardlog-Mode")
	// One that names no call gets an answer too, and starts none.
	s.post(v1+"/chat/completions", `{"messages":`+messages+`}`, "X-Heardlog-Mode", "off").ok(nil)
	refuses := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_NO_KEY=refuse")
	refuses.post(v1+"/chat/completions", `{"messages":`+messages+`}`, "X-Heardlog-Mode", "off").failed(400, "missing", "metadata.agent_id")
}
