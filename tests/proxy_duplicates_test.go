package tests

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// Identical requests at the same time get one answer, as the agent's setting says or, without it,
// the server's.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server, agent string
		joined        int32
	}{
		"the server's":  {"join", "", 3},
		"the agent's":   {"supersede", "join", 3},
		"not the agent": {"join", "supersede", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm, base, think := thinking(t, fake.Script{Answer: "At nine."})
			s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_DUPLICATES="+tt.server)
			properties := map[string]any{}
			if tt.agent != "" {
				properties["heardlog"] = map[string]any{"duplicates": tt.agent}
			}
			id := s.join("n", properties)
			var joined atomic.Int32
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if s.chat(agent(id, "/chat/completions"), "When?", true).header.Get("X-Heardlog-Joined") == "true" {
						joined.Add(1)
					}
				})
			}
			waitFor(t, "the others to join", func() bool { return s.count("heardlog_joined_requests_total") == fmt.Sprint(tt.joined) })
			for range 4 {
				think <- struct{}{}
			}
			all.Wait()
			if n := len(llm.Requests()); joined.Load() != tt.joined || tt.joined > 0 && n != 1 {
				t.Errorf("%d joined, want %d; the upstream was asked %d times", joined.Load(), tt.joined, n)
			}
			if tt.joined > 0 {
				if got := texts(s.history(id).Contents); len(got) != 2 || got[1] != "0 assistant: At nine." {
					t.Errorf("%q", got)
				}
			}
		})
	}
}
