package memory_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// TestContextIsNeverBehind: who has appended sees it in the context, however many append, read, clear and change policies at once, and a context that was
// given does not change any more.
func TestContextIsNeverBehind(t *testing.T) {
	t.Parallel()
	s := newService(nil)
	a := join(t, s, nil)
	full := &window.Policy{Preset: "full"}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 60 {
				text := fmt.Sprint(w, " says ", i)
				if _, err := s.Append(t.Context(), "p", a.ID, []memory.Message{user(text)}); err != nil {
					t.Error(err)
					return
				}
				got, err := s.Context(t.Context(), "p", a.ID, memory.ContextRequest{Policy: full})
				if err != nil {
					t.Error(err)
					return
				}
				seen, order := false, int64(0)
				for _, m := range got.Messages {
					seen = seen || m.Text == text
					if m.Stored.Seq <= order {
						t.Errorf("message %d stands behind %d", m.Stored.Seq, order)
					}
					order = m.Stored.Seq
				}
				if !seen {
					t.Errorf("%q is not in the context", text)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.Context(t.Context(), "p", a.ID, memory.ContextRequest{Policy: full})
	if err != nil || len(got.Messages) != 360 {
		t.Fatalf("%d messages, %v", len(got.Messages), err)
	}
	if _, err := s.Clear(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	if after, err := s.Context(t.Context(), "p", a.ID, memory.ContextRequest{Policy: full}); err != nil || len(after.Messages) != 0 || len(got.Messages) != 360 {
		t.Errorf("after clearing %d messages, %v", len(after.Messages), err)
	}
	if err := s.Erase(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Context(t.Context(), "p", a.ID, memory.ContextRequest{Policy: full}); err == nil {
		t.Error("an erased agent has a context")
	}
}
