package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// watched notes how many messages are loaded and what the last list was asked with.
type watched struct {
	*sqlite.Store
	loads []int
	list  memory.AgentQuery
}

func (w *watched) Load(ctx context.Context, project, id string, n int, known memory.Version) (memory.Stored, error) {
	w.loads = append(w.loads, n)
	return w.Store.Load(ctx, project, id, n, known)
}

func (w *watched) List(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	w.list = q
	return w.Store.List(ctx, q)
}

// TestColdAppend: an append to an agent that is not in memory loads one message, and a reader that
// needs more gets all of them afterwards.
func TestColdAppend(t *testing.T) {
	t.Parallel()
	e, d := open(t, engine.Options{}, 1)
	want := []string{"one", "two", "three", "four"}
	for _, text := range want[:3] {
		if err := e.Update(t.Context(), "p", agent(0).ID, says(text)); err != nil {
			t.Fatal(err)
		}
	}
	cold := &watched{Store: d.Store}
	again := engine.New(cold, engine.Options{})
	if err := again.Update(t.Context(), "p", agent(0).ID, says(want[3])); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1}, cold.loads); diff != "" {
		t.Errorf("messages loaded by an append: %s", diff)
	}
	if diff := cmp.Diff(want, texts(t, again, 0)); diff != "" {
		t.Error(diff)
	}
}

// TestKnown: a store that lists agents may take the heads that are in memory, in the version that
// it lists and no other.
func TestKnown(t *testing.T) {
	t.Parallel()
	_, d := open(t, engine.Options{}, 2)
	w := &watched{Store: d.Store}
	e := engine.New(w, engine.Options{})
	if err := e.Update(t.Context(), "p", agent(0).ID, says("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Agents(t.Context(), memory.AgentQuery{Project: "p", Limit: 5}); err != nil {
		t.Fatal(err)
	}
	st, err := w.Store.Load(t.Context(), "p", agent(0).ID, 0, memory.Version{})
	if err != nil {
		t.Fatal(err)
	}
	want, now := st.Head, memory.Version{No: st.No, Rev: st.Head.Rev, Ver: st.Ver}
	want.Last = memory.Message{}
	var got memory.Head
	ok := w.list.Known(memory.Ref{Project: "p", ID: agent(0).ID}, now, &got)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("the agent in memory is known: %v: %s", ok, diff)
	}
	now.Rev++
	if w.list.Known(memory.Ref{Project: "p", ID: agent(0).ID}, now, &got) {
		t.Error("another version of it is known")
	}
	if w.list.Known(memory.Ref{Project: "p", ID: agent(1).ID}, memory.Version{No: 2, Rev: 1}, &got) {
		t.Error("an agent that is not in memory is known")
	}
}
