package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

func keyed(n int, keys ...string) memory.Agent {
	a := newAgent(n)
	a.Settings.Call = memory.Call{Keys: keys, Shared: []string{"agora.channel:lobby"}}
	return a
}

func wantKey(t *testing.T, ctx context.Context, s memory.Ledger, key, want string) {
	t.Helper()
	id, err := s.ByKey(ctx, project, key)
	if want == "" {
		wantCode(t, err, fault.NotFound)
	} else if err != nil || id != want {
		t.Errorf("%s finds %q, %v; want %s", key, id, err, want)
	}
}

// testKeys: a key finds its live agent, else the one made last; an own key belongs to one live
// agent, a shared one to the newest.
func testKeys(t *testing.T, ctx context.Context, s memory.Ledger) {
	wantKey(t, ctx, s, "k1", "")
	first := create(t, ctx, s, keyed(1, "k1", "k2"))
	second := create(t, ctx, s, keyed(2, "k3"))
	for key, want := range map[string]string{"k1": first.ID, "k2": first.ID, "k3": second.ID, "k": "", "": "", "agora.channel:lobby": second.ID} {
		wantKey(t, ctx, s, key, want)
	}
	if id, err := s.ByKey(ctx, "other", "k1"); err == nil {
		t.Errorf("another project finds %s", id)
	}
	third := keyed(3, "k9", "k2")
	_, _, err := s.Create(ctx, third, 0, memory.Change{})
	wantCode(t, err, fault.Conflict)
	if taken, ok := errors.AsType[*memory.NameTakenError](err); !ok || taken.AgentID != first.ID {
		t.Fatalf("%#v does not name agent %s", err, first.ID)
	}
	wantKey(t, ctx, s, "k9", "")
	elsewhere := third
	elsewhere.Project = "other"
	create(t, ctx, s, elsewhere)

	update(t, ctx, s, first, end(memory.Stopped, 9))
	wantKey(t, ctx, s, "k2", first.ID) // of the ended ones the last
	create(t, ctx, s, third)
	wantKey(t, ctx, s, "k2", third.ID)
	wantKey(t, ctx, s, "k1", first.ID)
	update(t, ctx, s, third, end(memory.Failed, 10))
	wantKey(t, ctx, s, "k2", third.ID)
	wantKey(t, ctx, s, "agora.channel:lobby", second.ID)
	if _, err := s.Sweep(ctx, 10, 10); err != nil {
		t.Fatal(err)
	}
	wantKey(t, ctx, s, "k1", "") // gone with its agent
	wantKey(t, ctx, s, "k2", third.ID)
}

// testKeysRace: of many that want a key at once one gets it, and the others are told who.
func testKeysRace(t *testing.T, ctx context.Context, s memory.Ledger) {
	const callers = 32
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() { _, _, errs[i] = s.Create(ctx, keyed(i+1, "k"), 0, memory.Change{}) })
	}
	wg.Wait()
	id, err := s.ByKey(ctx, project, "k")
	if err != nil {
		t.Fatal(err)
	}
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if taken, ok := errors.AsType[*memory.NameTakenError](err); !ok || taken.AgentID != id {
			t.Errorf("%v does not name %s", err, id)
		}
	}
	if won != 1 {
		t.Errorf("%d agents have the key", won)
	}
}

// testLastNamed: of the agents of a name the one that ended last is found, whatever its id and
// whenever it began; never a live one, one that was erased, or one of another project.
func testLastNamed(t *testing.T, ctx context.Context, s memory.Ledger) {
	want := func(name, want string) {
		t.Helper()
		id, err := s.LastNamed(ctx, project, name)
		if want == "" {
			wantCode(t, err, fault.NotFound)
		} else if err != nil || id != want {
			t.Errorf("the last %q is %q, %v; want %s", name, id, err, want)
		}
	}
	named := func(n int, id string) memory.Agent {
		a := newAgent(n)
		a.Name, a.ID = "desk", id
		return a
	}
	want("desk", "")
	first := create(t, ctx, s, named(1, "z-first"))
	want("desk", "")
	update(t, ctx, s, first, end(memory.Stopped, 100))
	want("desk", first.ID)
	second := create(t, ctx, s, named(2, "a-second"))
	want("desk", first.ID)
	update(t, ctx, s, second, end(memory.Failed, 200))
	want("desk", second.ID)
	want("des", "")
	elsewhere := named(3, "other")
	elsewhere.Project = "other"
	update(t, ctx, s, create(t, ctx, s, elsewhere), end(memory.Stopped, 300))
	want("desk", second.ID)
	if err := s.Erase(ctx, project, second.ID); err != nil {
		t.Fatal(err)
	}
	want("desk", first.ID)
}
