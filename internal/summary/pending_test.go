package summary_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
)

// TestPending: a summary of an earlier agent that is still to be made does not come behind what was
// done meanwhile: the summary deleted, another memory restored, the earlier agent erased.
func TestPending(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		act  func(w *world, old, id string) error
		want string
	}{
		"nothing": {func(*world, string, string) error { return nil }, "of the earlier agent"},
		"deleted": {func(w *world, _, id string) error { _, err := w.SetSummary(w.t.Context(), "p", id, "", 0); return err }, ""},
		"restored": {func(w *world, _, id string) error {
			_, err := w.Restore(w.t.Context(), "p", id, memctx.Snapshot{Summary: "mine"})
			return err
		}, "mine"},
		"erased": {func(w *world, old, _ string) error { return w.mem.Agents.Erase(w.t.Context(), "p", old) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, nil, 0, func(context.Context, int, question) (summary.Answer, error) {
					time.Sleep(10 * time.Second)
					return summary.Answer{Text: "of the earlier agent", Finish: "stop"}, nil
				})
				join := func() string {
					a, err := w.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "n", Properties: []byte("{}"), Inherit: memory.InheritSummary})
					if err != nil {
						t.Fatal(err)
					}
					return a.ID
				}
				old := join()
				w.say("p", old, 0, 3)
				if err := w.mem.Agents.Leave(t.Context(), "p", old, ""); err != nil {
					t.Fatal(err)
				}
				id := join()
				time.Sleep(time.Second) // the model thinks
				if err := tt.act(w, old, id); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if text, _ := w.holds("p", id); text != tt.want {
					t.Errorf("the summary is %q, want %q", text, tt.want)
				}
			})
		})
	}
}
