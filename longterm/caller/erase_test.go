package caller_test

import (
	"context"
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/storetest"

	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/record"
)

// afterPass is a store that calls a function once, after records of a user were erased.
type afterPass struct {
	*store.SQLite
	do func()
}

func (s *afterPass) EraseRecords(ctx context.Context, project, user, prefix string) (int, error) {
	n, err := s.SQLite.EraseRecords(ctx, project, user, prefix)
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return n, err
}

// TestGuardBetweenMarks: what is computed between the last pass of an erasure and its end, and is
// stored before the erasure notes its end, does not stay.
func TestGuardBetweenMarks(t *testing.T) {
	t.Parallel()
	store := &afterPass{SQLite: storetest.New(t)}
	memory := agents.NewService(agents.Config{Ledger: store, Now: time.Now, NewID: func() string { return "id" }})
	s := &caller.Service{
		Records: store, Ledger: store, Now: time.Now,
		Items: memories.Service{Memory: memory, Ledger: store, Store: store, Records: store},
	}
	ctx := t.Context()
	facts := record.Space{Project: "p", Name: "fact", User: "anna"}
	store.do = func() {
		erased, err := s.Guard(ctx, "p", "anna")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.ChangeRecords(ctx, facts, []record.Change{{ID: "f", Body: []byte("{}")}}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
		if gone, err := erased(ctx); gone || err != nil {
			t.Errorf("erased: %v %v; the test proves nothing", gone, err)
		}
	}
	if _, err := s.Erase(ctx, "p", "anna"); err != nil {
		t.Fatal(err)
	}
	if list, _, err := store.Records(ctx, facts, record.Query{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("there are %d facts, %v", len(list), err)
	}
}

// TestMarks: what notes an erasure depends on a key, and goes after a day.
func TestMarks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ids := map[string]bool{}
	for _, key := range []string{"one", "other"} {
		store := storetest.New(t)
		clock := func() time.Time { return now }
		memory := agents.NewService(agents.Config{Ledger: store, Now: clock, NewID: func() string { return "id" }})
		s := &caller.Service{
			Records: store, Ledger: store, Now: clock, Key: []byte(key),
			Items: memories.Service{Memory: memory, Ledger: store, Store: store, Records: store},
		}
		if _, err := s.Erase(t.Context(), "p", "+4930123456"); err != nil {
			t.Fatal(err)
		}
		marks := record.Space{Project: "p", Name: "caller.erased"}
		for _, later := range []time.Duration{0, 23 * time.Hour, 25 * time.Hour} {
			at := now
			s.Now = func() time.Time { return at.Add(later) }
			if err := s.SweepMarks(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
			list, _, err := store.Records(t.Context(), marks, record.Query{Limit: 10})
			if err != nil || (len(list) == 1) != (later < 24*time.Hour) {
				t.Errorf("after %s there are %d marks, %v", later, len(list), err)
			}
			for _, r := range list {
				ids[r.ID] = true
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("the marks of two stores have the IDs %v", ids)
	}
}

// TestGuardSwept: an erasure that was over before is none, although its mark goes meanwhile.
func TestGuardSwept(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := func() time.Time { return now }
	store := storetest.New(t)
	memory := agents.NewService(agents.Config{Ledger: store, Now: clock, NewID: func() string { return "id" }})
	s := &caller.Service{
		Records: store, Ledger: store, Now: clock,
		Items: memories.Service{Memory: memory, Ledger: store, Store: store, Records: store},
	}
	ctx := t.Context()
	erase := func() {
		t.Helper()
		if _, err := s.Erase(ctx, "p", "anna"); err != nil {
			t.Fatal(err)
		}
	}
	erase()
	erased, err := s.Guard(ctx, "p", "anna")
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(25 * time.Hour)
	if err := s.SweepMarks(ctx, "p"); err != nil {
		t.Fatal(err)
	}
	if gone, err := erased(ctx); gone || err != nil {
		t.Errorf("after the mark went: %v, %v", gone, err)
	}
	erase()
	if gone, err := erased(ctx); !gone || err != nil {
		t.Errorf("after another erasure: %v, %v", gone, err)
	}
}

// TestMarksOfOthers: erasures that are applied again are noted each as of its own time, also those
// of long ago, and the time of a later erasure stays.
func TestMarksOfOthers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := func() time.Time { return now }
	store := storetest.New(t)
	memory := agents.NewService(agents.Config{Ledger: store, Now: clock, NewID: func() string { return "id" }})
	s := &caller.Service{
		Records: store, Ledger: store, Now: clock,
		Items: memories.Service{Memory: memory, Ledger: store, Store: store, Records: store},
	}
	if _, err := s.Erase(t.Context(), "p", "anna"); err != nil {
		t.Fatal(err)
	}
	hour, month := now.Add(-time.Hour).UnixMilli(), now.Add(-30*24*time.Hour).UnixMilli()
	if err := s.EraseUntil(t.Context(), "p", map[string]int64{"anna": hour, "ben": hour, "carl": month}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"anna": now.UnixMilli(), "ben": hour, "carl": month, "dora": 0} {
		if got, err := s.ErasedAt(t.Context(), "p", name); err != nil || got != want {
			t.Errorf("%s was erased at %d, want %d; error %v", name, got, want, err)
		}
	}
}
