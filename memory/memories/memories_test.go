package memories_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// store is a store that finds items.
type store interface {
	memory.Ledger
	memories.Store
	record.Store
}

// newService makes a service on a store in memory, of which a project may hold most items.
func newService(t testing.TB, most int) memories.Service { return serviceOn(storetest.New(t), most) }

// serviceOn makes a service on a store.
func serviceOn(s store, most int) memories.Service {
	var made atomic.Int64
	id := func() string { return fmt.Sprintf("%032d", made.Add(1)) }
	m := agents.NewService(agents.Config{Ledger: s, Now: time.Now, NewID: id})
	return memories.Service{Memory: m, Ledger: s, Store: s, Records: s, NewID: id, Max: most}
}

// TestItemsOfOneID: of several memories of one id the first that is still part of a memory is
// given.
func TestItemsOfOneID(t *testing.T) {
	t.Parallel()
	s := newService(t, 0)
	a, err := s.Memory.Agents.Join(t.Context(), agents.JoinRequest{Project: "p"})
	if err != nil {
		t.Fatal(err)
	}
	add := func(text string) {
		t.Helper()
		m := memory.Message{Role: memory.User, Content: text}
		m.Details = &memory.Details{Filed: memory.Filed{Item: &memory.Item{ID: "0123456789abcdef0123456789abcdef", AgentID: a.ID}}}
		if _, err := s.Add(t.Context(), "p", m); err != nil {
			t.Fatal(err)
		}
	}
	get := func() (string, error) {
		it, err := s.Get(t.Context(), "p", "0123456789abcdef0123456789abcdef")
		return it.Message.Content, err
	}
	add("first")
	add("second")
	if got, err := get(); got != "first" || err != nil {
		t.Fatalf("%q, err %v", got, err)
	}
	if _, err := memctx.New(s.Memory).Clear(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); !fault.Is(err, fault.NotFound) {
		t.Errorf("what was cleared is given: %v", err)
	}
	add("third")
	add("fourth")
	if got, err := get(); got != "third" || err != nil {
		t.Errorf("%q, err %v", got, err)
	}
}

// TestItemsOfAProjectAreLimited: a project takes no more memories than it may hold, and those that
// were cleared make room.
func TestItemsOfAProjectAreLimited(t *testing.T) {
	t.Parallel()
	s := newService(t, 3)
	add := func(text string) error {
		m := memory.Message{Role: memory.User, Content: text}
		m.Details = &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: text}, Item: &memory.Item{}}}
		_, err := s.Add(t.Context(), "p", m)
		return err
	}
	if err := errors.Join(add("one"), add("two"), add("three")); err != nil {
		t.Fatal(err)
	}
	if err := add("four"); !fault.Is(err, fault.Quota) {
		t.Errorf("a fourth: %v", err)
	}
	if n, err := s.Clear(t.Context(), "p", "", window.Scope{UserID: "two"}); n != 1 || err != nil {
		t.Fatalf("cleared %d, err %v", n, err)
	}
	if err := add("five"); err != nil {
		t.Errorf("after a clear: %v", err)
	}
	if err := add("six"); !fault.Is(err, fault.Quota) {
		t.Errorf("a fourth again: %v", err)
	}
}

// TestEraseRecords: the records of a user go with the user, those of all users and of none with the
// project.
func TestEraseRecords(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), storetest.New(t)
	s := serviceOn(store, 0)
	for _, at := range []record.Space{
		{Project: "p", Name: "fact", User: "ann"}, {Project: "p", Name: "caller", User: "ann"}, {Project: "p", Name: "fact", User: "bob"}, {Project: "p", Name: "vector/a"},
		{Project: "q", Name: "fact", User: "ann"},
	} {
		if _, err := store.ChangeRecords(ctx, at, []record.Change{{ID: "a", Body: []byte("1")}}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	if gone, err := s.EraseUser(ctx, "p", map[string]int64{"ann": memories.Always}, func(*memory.Agent) error { return nil }); err != nil || gone.Records != 2 {
		t.Errorf("erased %+v of a user: %v", gone, err)
	}
	if gone, err := s.EraseProject(ctx, "p", memories.Always); err != nil || gone.Records != 2 {
		t.Errorf("erased %+v of a project: %v", gone, err)
	}
	if left, err := store.RecordSpaces(ctx, "q", "", record.Space{}, 10); err != nil || len(left) != 1 {
		t.Errorf("another project has %v left: %v", left, err)
	}
}
