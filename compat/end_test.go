package compat_test

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEndAfterKill kills the server during an answer and ends the agent after the restart. The sent
// part of the answer is lost; event 103 has everything else and reports the loss.
func TestEndAfterKill(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		properties object
		end        func(t *testing.T, s *server, id string)
		message    string
	}{
		"leave": {object{}, func(t *testing.T, s *server, id string) { s.call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil) }, "OK"},
		"idle":  {object{"idle_timeout": 3}, func(*testing.T, *server, string) {}, "Idle for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHooks(t, nil)
			env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_LLM_URL=" + fakeLLM(t) + "/v1",
				"HEARDLOG_WEBHOOK_URL=" + h.url, "HEARDLOG_WEBHOOK_SECRET=" + hookSecret}
			s := start(t, env...)
			tt.properties["llm"] = scripted(object{"chunks": []string{"One ", "two ", "three"}, "hang_after": 4, "delay_chunk": "1ms"})["llm"]
			id := s.join(t, "n", tt.properties)
			s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"messages": []object{
				{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello to you."},
			}}, nil)
			s.within(t, id, "three")
			s.kill()
			s = start(t, env...)
			tt.end(t, s, id)
			eventually(t, "the events of the end", func() bool { return len(h.of(id)) >= 4 })
			events := h.of(id)
			got := events[103].Payload
			if diff := cmp.Diff([]string{"user: Hello.", "assistant: Hello to you.", "user: Count."}, saidBy(got.Contents)); diff != "" {
				t.Errorf("contents:\n%s", diff)
			}
			if got.EndReason != "answer_lost" || got.EndTurn != 1 {
				t.Errorf("end_reason %q of turn %d", got.EndReason, got.EndTurn)
			}
			if m := events[102].Payload.Message; m != tt.message {
				t.Errorf("it ended with %q, want %q", m, tt.message)
			}
			if wrong := h.wrong(); len(wrong) > 0 {
				t.Errorf("the receiver complains: %s", strings.Join(wrong, "\n"))
			}
		})
	}
}

func saidBy(msgs []message) []string {
	var out []string
	for _, m := range msgs {
		out = append(out, m.Role+": "+m.Content)
	}
	return out
}

// within requests a stream and returns when the word has arrived; the stream stays open.
func (s *server) within(t testing.TB, id, word string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/agents/"+id+"/chat/completions", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"Count."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), word) {
			return
		}
	}
	t.Fatalf("the stream ended before %q was said", word)
}
