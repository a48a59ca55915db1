package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

// HoldStore is what RunHolds needs: all that erases.
type HoldStore interface {
	memory.Ledger
	memory.ColdStore
	record.Store
	kv.Store
	kv.Evicter
	memories.Store
}

// RunHolds checks that nothing under hold is erased; open is as in RunRecords.
func RunHolds(t *testing.T, open func(*testing.T) HoldStore) {
	for name, test := range map[string]func(*testing.T, context.Context, HoldStore){
		"Refused": testHoldRefuses, "Race": testHoldRace, "Labels": testHoldLabels, "OwnItems": testHoldOwnItems,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// holdsOf returns a Service whose callers have no aliases.
func holdsOf(s record.Store) *hold.Service {
	n := 0
	return &hold.Service{
		Records: s, Now: time.Now, NewID: func() string { n++; return fmt.Sprint("hold-", n) },
		Names: func(_ context.Context, _, name string) ([]string, error) { return []string{name}, nil },
	}
}

// heldCall creates a call of anna that has ended at 1000, with a message, a key that has expired, a
// checkpoint and a fact.
func heldCall(t *testing.T, ctx context.Context, s HoldStore, n int) memory.Agent {
	t.Helper()
	a := newAgent(n)
	a.Settings.Scope.UserID, a.Settings.Labels = "anna", map[string]string{"case": "4711"}
	a = create(t, ctx, s, a)
	space := kv.Space{Project: project, Agent: a.ID}
	if err := s.PutKeys(ctx, space, []kv.Entry{{Key: "old", Value: []byte("1"), UpdatedMS: 1, ExpiresMS: 500}, {Key: "k", Value: []byte("2"), UpdatedMS: 1, ExpiresMS: kv.Never}}, kv.Limit{}, 1); err != nil {
		t.Fatal(err)
	}
	update(t, ctx, s, a, belongs("a word", memory.Scope{SessionID: a.ID}, nil))
	update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
		was := *view.Head().Agent
		was.Status, was.StopMS, was.Message, was.Rev = memory.Stopped, 1000, memory.EndOK, was.Rev+1
		return memory.Change{Agent: &was}, nil
	})
	changeRecords(t, ctx, s, record.Space{Project: project, Name: "checkpoint/" + a.ID}, 1, setRecord("c", "{}"))
	changeRecords(t, ctx, s, factsOf("anna"), 1, setRecord(fmt.Sprint("f", n), "{}"))
	return a
}

// removed is the decision that takes the words of the first message away.
func removed(view memory.AgentView) (memory.Change, error) {
	m, err := view.Seq(1)
	m.State, m.Content, m.Details, m.Rev = memory.Removed, "", nil, view.Head().Rev+1
	return memory.Change{Replace: []memory.Message{m}}, err
}

func testHoldRefuses(t *testing.T, ctx context.Context, s HoldStore) {
	holds := holdsOf(s)
	a := heldCall(t, ctx, s, 1)
	heldCall(t, ctx, s, 2)
	space := kv.Space{Project: project, Agent: a.ID}
	paths := map[string]struct {
		run  func() error
		user bool // it is about the caller and not about the call
	}{
		"erase the agent":   {run: func() error { return s.Erase(ctx, project, a.ID) }},
		"remove a message":  {run: func() error { return s.Update(ctx, project, a.ID, removed) }},
		"delete a key":      {run: func() error { _, err := s.DeleteKey(ctx, space, "k", 1); return err }},
		"clear the keys":    {run: func() error { _, err := s.ClearKeys(ctx, space, 1); return err }},
		"evict a key":       {run: func() error { _, err := s.EvictKeys(ctx, space, []kv.Key{{Key: "k", UpdatedMS: 1}}); return err }},
		"erase checkpoints": {run: func() error { _, err := s.EraseRecords(ctx, project, "", "checkpoint/"+a.ID); return err }},
		"a checkpoint": {run: func() error {
			return changeHeld(ctx, s, record.Space{Project: project, Name: "checkpoint/" + a.ID}, deleteRecord("c"))
		}},
		"a change that erases": {run: func() error {
			return s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
				was := *view.Head().Agent
				was.Settings.Memory.Summary = "x"
				return memory.Change{Agent: &was, Erases: true}, nil
			})
		}},
		"delete a fact": {run: func() error { return changeHeld(ctx, s, factsOf("anna"), deleteRecord("f1")) }, user: true},
		"erase facts":   {run: func() error { _, err := s.EraseRecords(ctx, project, "anna", ""); return err }, user: true},
		"an alias": {run: func() error {
			c := deleteRecord("x")
			c.Caller = "anna"
			return changeHeld(ctx, s, record.Space{Project: project, Name: "caller"}, c)
		}, user: true},
		"all records": {run: func() error { _, err := s.EraseRecords(ctx, project, "", ""); return err }, user: true},
	}
	for _, target := range []hold.Target{{AgentID: a.ID}, {Label: "case", Value: "4711"}, {User: "anna"}} {
		h, err := holds.Set(ctx, project, target, "the reason", "k1", "Key")
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range paths {
			if p.user && target.User == "" {
				continue
			}
			if err := p.run(); !fault.Is(err, fault.Held) {
				t.Errorf("%s under hold on %s: %v", name, target, err)
			} else if err.Error() != h.Err().Error() {
				t.Errorf("%s under hold on %s: %q does not name the hold", name, target, err)
			}
		}
		want := 0
		if target.AgentID != "" {
			want = 1
		}
		if gone, err := s.Sweep(ctx, 2000, 10); err != nil || gone != want {
			t.Errorf("a sweep under hold on %s erased %d, %v; want %d", target, gone, err, want)
		}
		if _, err := s.Head(ctx, project, a.ID); err != nil {
			t.Errorf("after a sweep under hold on %s: %v", target, err)
		}
		if n, err := s.SweepKeys(ctx, 1000); err != nil || n != 0 {
			t.Errorf("a sweep of keys under hold on %s erased %d, %v", target, n, err)
		}
		if _, err := holds.Lift(ctx, project, target); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.SweepKeys(ctx, 1000); err != nil || n != 1 {
		t.Errorf("a sweep of keys without a hold erased %d, %v", n, err)
	}
	for _, name := range []string{"remove a message", "delete a key", "a checkpoint", "delete a fact", "erase the agent"} {
		if err := paths[name].run(); err != nil {
			t.Errorf("%s after the holds were lifted: %v", name, err)
		}
	}
}

// changeHeld applies changes and returns the error.
func changeHeld(ctx context.Context, s record.Store, at record.Space, changes ...record.Change) error {
	_, err := s.ChangeRecords(ctx, at, changes, record.Limit{}, nil, 1)
	return err
}

// testHoldLabels: a label or a caller under hold cannot be taken away from a call, and other labels
// can.
func testHoldLabels(t *testing.T, ctx context.Context, s HoldStore) {
	a := newAgent(1)
	a.Settings.Scope.UserID, a.Settings.Labels = "anna", map[string]string{"case": "4711", "team": "red"}
	create(t, ctx, s, a)
	holds := holdsOf(s)
	for _, target := range []hold.Target{{Label: "case", Value: "4711"}, {User: "anna"}} {
		if _, err := holds.Set(ctx, project, target, "why", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(fn func(*memory.Settings)) error {
		return s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
			is := *view.Head().Agent
			is.Rev++
			fn(&is.Settings)
			return memory.Change{Agent: &is}, nil
		})
	}
	for name, fn := range map[string]func(*memory.Settings){
		"another value":  func(s *memory.Settings) { s.Labels = map[string]string{"case": "4712", "team": "red"} },
		"no label":       func(s *memory.Settings) { s.Labels = nil },
		"another caller": func(s *memory.Settings) { s.Scope.UserID = "ben" },
	} {
		if err := edit(fn); !fault.Is(err, fault.Held) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := edit(func(s *memory.Settings) { s.Labels = map[string]string{"case": "4711"} }); err != nil {
		t.Errorf("another label: %v", err)
	}
}

// testHoldOwnItems: what a caller has said in the calls of others, and in none, is under the
// caller's hold.
func testHoldOwnItems(t *testing.T, ctx context.Context, s HoldStore) {
	scope := memory.Scope{UserID: "anna"}
	for i, of := range []string{project, memories.OwnProject(project)} {
		a := newAgent(i + 1)
		a.Project, a.Name = of, ""
		create(t, ctx, s, a)
		update(t, ctx, s, a, belongs("a word", scope, nil))
		holds := holdsOf(s)
		if _, err := holds.Set(ctx, project, hold.Target{User: "anna"}, "why", "", ""); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(ctx, of, a.ID, removed); !fault.Is(err, fault.Held) {
			t.Errorf("remove a message of a held caller in %q: %v", of, err)
		}
		if err := s.Erase(ctx, of, a.ID); !fault.Is(err, fault.Held) {
			t.Errorf("erase an agent with a message of a held caller in %q: %v", of, err)
		}
	}
}

// testHoldRace: what is there once a hold was answered stays, whatever is being erased meanwhile.
func testHoldRace(t *testing.T, ctx context.Context, s HoldStore) {
	holds := holdsOf(s)
	for round := range 25 {
		a := heldCall(t, ctx, s, 10+round)
		target := []hold.Target{{AgentID: a.ID}, {User: "anna"}, {Label: "case", Value: "4711"}}[round%3]
		space := kv.Space{Project: project, Agent: a.ID}
		fact := fmt.Sprint("f", 10+round)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for _, erase := range []func() error{
			func() error { return s.Update(ctx, project, a.ID, removed) },
			func() error { _, err := s.DeleteKey(ctx, space, "k", 1); return err },
			func() error { return changeHeld(ctx, s, factsOf("anna"), deleteRecord(fact)) },
			func() error { _, err := s.Sweep(ctx, 2000, 10); return err },
			func() error { return s.Erase(ctx, project, a.ID) },
		} {
			all.Go(func() {
				<-begin
				if err := erase(); err != nil && !fault.Is(err, fault.Held) && !fault.Is(err, fault.NotFound) && !errors.Is(err, memory.ErrStale) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		// have lists what is there.
		have := func() (list []string) {
			// As the store has it: the engine may know the call a moment longer than the store.
			if items, _, err := s.Items(ctx, project, memories.Query{Scope: memory.Scope{SessionID: a.ID}, Limit: 1}); err == nil && len(items) == 1 {
				list = append(list, "message")
			}
			if keys, err := s.GetKeys(ctx, space, []string{"k"}, 1); err == nil && len(keys) == 1 {
				list = append(list, "key")
			}
			if _, err := s.Record(ctx, factsOf("anna"), fact); err == nil && target.User != "" {
				list = append(list, "fact")
			}
			return list
		}
		close(begin)
		if _, err := holds.Set(ctx, project, target, "why", "", ""); err != nil {
			t.Fatal(err)
		}
		held := have()
		all.Wait()
		if left := have(); !slices.Equal(left, held) {
			t.Errorf("round %d: when the hold on %s was answered there were %v, and then %v", round, target, held, left)
		}
		if _, err := holds.Lift(ctx, project, target); err != nil {
			t.Fatal(err)
		}
	}
}
