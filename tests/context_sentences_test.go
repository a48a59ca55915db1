package tests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSpokenSentences: each spoken sentence is an update of its own, of its own session, and they
// become one message. Without normalization they stay separate.
//
// Rules: 000-11, 000-29, 000-30
func TestSpokenSentences(t *testing.T) {
	t.Parallel()
	s := start(t)
	with := func(name string, policy map[string]any) string {
		return s.join(name, map[string]any{"heardlog": map[string]any{"policy": policy}})
	}
	merged := with("merged", map[string]any{"preset": "ovos"})
	plain := with("plain", map[string]any{"preset": "ovos", "normalise": map[string]any{"drop_hanging_user": false, "merge_assistant": false}})
	idle := with("idle", map[string]any{"preset": "ovos"})
	for _, m := range []map[string]any{user("wait"), user("Tell me."), assistant("It is noon."), assistant("Lunch is ready.")} {
		s.say(merged, m)
		s.say(plain, m)
	}
	for id, want := range map[string][]string{
		merged: {"user: Tell me.", "assistant: It is noon.\nLunch is ready."},
		plain:  {"user: wait", "user: Tell me.", "assistant: It is noon.", "assistant: Lunch is ready."},
		idle:   {},
	} {
		if d := cmp.Diff(want, s.context(id, `{}`).lines()); d != "" {
			t.Errorf("%s (-want +got):\n%s", s.agent(id).Name, d)
		}
	}
}
