package export_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/webhook"
)

// TestClashes: every driver tells of the same clashes, of each kind, and finds none in what an
// import of its own has stored.
func TestClashes(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := filled(t)
			want := dump(t, a, export.Scope{}, true)
			b := open(t)
			b.use(t, func(s whole) {
				for _, agent := range []memory.Agent{
					{ID: "a", Project: "q", Status: memory.Stopped, StopMS: 2},
					{ID: "x1", Project: "p", Name: "second", Status: memory.Running},
					{ID: "x2", Project: "p", JoinKey: "jk", Status: memory.Stopped, StopMS: 2},
					{ID: "x3", Project: memories.OwnProject("p"), Status: memory.Running, Settings: memory.Settings{Call: memory.Call{Keys: []string{"key:keeper" + memories.OwnProject("p")}}}},
				} {
					agent.StartMS, agent.Rev = 1, 1
					_, _, err := s.Create(t.Context(), agent, 0, memory.Change{})
					if err == nil && agent.ID == "x1" {
						err = webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "ep", Project: "p", URL: "https://x.example", Events: []string{"*"}})
					}
					if err == nil && agent.ID == "x2" {
						_, _, err = s.Create(t.Context(), memory.Agent{ID: "x4", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{Events: []memory.Event{{ID: "end", Type: 102, CreatedMS: 1, Body: []byte("{}")}}})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, err := range []error{
					kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: "z", Value: []byte(`{}`), ExpiresMS: kv.Never}, kv.Limit{}, 0),
					webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "other", Project: "r", URL: "https://x.example"}),
					webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e1", Project: "p", URL: "https://kept.example"}),
				} {
					if err != nil {
						t.Fatal(err)
					}
				}
			})
			target, done := b.target(t)
			defer done()
			got := must(export.FindClashes(t.Context(), strings.NewReader(want), target, 100))
			list := []string{
				"agent a of project p has the name of a live agent", "agent a of project q is there already", "agent b of project p has a join key that was used already",
				"agent keeper of project " + memories.OwnProject("p") + " has a call key of a live agent", "conversation z of project p is there already",
				"endpoint other has an id that another project has given already", "event end is there already",
			}
			slices.Sort(got.First)
			if d := cmp.Diff(list, got.First); d != "" || got.Total != len(list) {
				t.Errorf("%d clashes (-want +got):\n%s", got.Total, d)
			}
			if got := must(export.FindClashes(t.Context(), strings.NewReader(want), target, 2)); got.Total != len(list) || len(got.First) != 2 {
				t.Errorf("bounded by 2: %d of %d", len(got.First), got.Total)
			}
		})
		t.Run(name+" resumed", func(t *testing.T) {
			t.Parallel()
			a := filled(t)
			want := dump(t, a, export.Scope{}, true)
			target, done := open(t).target(t)
			defer done()
			if _, _, err := export.ReadInBatches(t.Context(), strings.NewReader(want), &breaking{target, 20}, nil, 1); err == nil {
				t.Fatal("it was not cut short")
			}
			if got, err := export.FindClashes(t.Context(), strings.NewReader(want), target, 9); err != nil || got.Total > 0 {
				t.Errorf("clashes with itself: %q, %v", got.First, err)
			}
		})
	}
}

// meddled is a target in which another import stores something after some batches of ours.
type meddled struct {
	export.Target
	t    *testing.T
	left int
	with string
}

func (m *meddled) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if m.left--; m.left == 0 {
		if _, _, err := export.ReadInBatches(ctx, strings.NewReader(m.with), m.Target, nil, 1); !fault.Is(err, fault.Conflict) {
			m.t.Errorf("another import at the same time: %v, want a conflict", err)
		}
	}
	return m.Target.Import(ctx, batch, had, mark)
}

// TestTwoImports: two imports into one store at once do not mix: the second is refused, also where
// it has read that there is none before the first began, and the first comes to its end.
func TestTwoImports(t *testing.T) {
	t.Parallel()
	for name, open := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := filled(t)
			want := dump(t, a, export.Scope{Project: "p"}, true)
			target, done := open(t).target(t)
			defer done()
			if _, _, err := export.ReadInBatches(t.Context(), strings.NewReader(want), &meddled{target, t, 5, dump(t, a, export.Scope{Project: "q"}, true)}, nil, 1); err != nil {
				t.Error(err)
			}
			if err := target.Import(t.Context(), nil, []byte("old"), nil); !fault.Is(err, fault.Conflict) {
				t.Errorf("with the mark of another: %v", err)
			}
			if err := target.Import(t.Context(), nil, nil, []byte("1")); err != nil {
				t.Fatal(err)
			}
			for _, had := range [][]byte{nil, []byte("2")} {
				for _, mark := range [][]byte{nil, []byte("3")} {
					if err := target.Import(t.Context(), nil, had, mark); !fault.Is(err, fault.Conflict) {
						t.Errorf("from %q to %q: %v, want a conflict", had, mark, err)
					}
				}
			}
		})
	}
}
