package agents_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/window"
)

// TestAnswersAreCutBehind: a memory that is cut on write is cut by the answers that the proxy
// stores, too, also by one that comes late.
//
// Rules: 000-18
func TestAnswersAreCutBehind(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, func(x *memory.Settings) { x.Memory.Policy = &window.Policy{Preset: "ovos"} })
	remembered := func() (out []string) {
		t.Helper()
		_, msgs, err := s.Messages.Remembered(t.Context(), "p", a.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			out = append(out, m.Content)
		}
		return out
	}
	for i := range 10 {
		turn := begin(t, s, a.ID, nil, user(fmt.Sprint("q", i)))
		text := fmt.Sprint("a", i)
		settle(t, s, turn, agents.Answer{Generated: text, Sent: text, Complete: true})
		if n := len(remembered()); n > 5 {
			t.Fatalf("%d messages are remembered after answer %d, want 5 at most", n, i)
		}
	}
	if d := cmp.Diff([]string{"a7", "q8", "a8", "q9", "a9"}, remembered()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	late := begin(t, s, a.ID, nil, user("q10"))
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{{Role: memory.Assistant, Source: memory.SourceCommand, Content: "spoken"}, user("q11")}); err != nil {
		t.Fatal(err)
	}
	settle(t, s, late, agents.Answer{Generated: "a10", Sent: "a10", Complete: true})
	if d := cmp.Diff([]string{"a9", "q10", "a10", "spoken", "q11"}, remembered()); d != "" {
		t.Errorf("a late answer (-want +got):\n%s", d)
	}
}
