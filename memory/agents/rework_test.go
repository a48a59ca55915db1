package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/store/storetest"
)

// between is a store on which somebody else writes in front of each write, as often as he means to.
type between struct {
	memory.Ledger
	write func() error // nil: nobody
}

func (b *between) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	if b.write != nil {
		if err := b.write(); err != nil {
			return err
		}
	}
	return b.Ledger.Update(ctx, project, id, decide)
}

func (b *between) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	return false, b.Update(ctx, project, id, decide)
}

// TestTrimOfABusyAgent: a memory that is written to all the time is trimmed all the same, and what
// came meanwhile is seen.
func TestTrimOfABusyAgent(t *testing.T) {
	t.Parallel()
	store := &between{Ledger: storetest.New(t)}
	s := newService(t, func(c *agents.Config) { c.Ledger = store })
	other := newService(t, func(c *agents.Config) { c.Ledger = store.Ledger })
	a := join(t, s, nil)
	for i := range 6 {
		if _, err := other.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	store.write = func() error {
		n++
		_, err := other.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user(fmt.Sprint("new ", n))})
		return err
	}
	keep := 2
	out, err := memctx.New(s).Trim(t.Context(), "p", a.ID, memctx.TrimRequest{KeepRecent: &keep})
	if err != nil || out.Kept != 2 || out.Dropped != 6+n-2 {
		t.Fatalf("%+v, err %v, with %d writes between", out, err, n)
	}
	_, msgs, err := s.Messages.Remembered(t.Context(), "p", a.ID)
	if err != nil || len(msgs) != 2 || msgs[1].Content != fmt.Sprint("new ", n) {
		t.Errorf("%+v, err %v", msgs, err)
	}
}

// TestSummaryUpToWhatComes: an instruction that comes while a summary is set up to its place stays
// in the memory, however often the agent changes meanwhile.
func TestSummaryUpToWhatComes(t *testing.T) {
	t.Parallel()
	for _, writes := range []int{1, 100} {
		store := &between{Ledger: storetest.New(t)}
		s := newService(t, func(c *agents.Config) { c.Ledger = store })
		other := newService(t, func(c *agents.Config) { c.Ledger = store.Ledger })
		a := join(t, s, nil)
		stored, err := other.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("one"), llm("two")})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		store.write = func() error {
			if n++; n > writes {
				return nil
			}
			m := user(fmt.Sprint("later ", n))
			if n == 1 {
				m = memory.Message{Role: memory.System, Source: memory.SourceMessage, Content: "be brief"}
			}
			_, err := other.Messages.Append(t.Context(), "p", a.ID, []memory.Message{m})
			return err
		}
		if _, err := memctx.New(s).SetSummary(t.Context(), "p", a.ID, "they met", stored.Messages[1].Seq+1); err != nil {
			t.Fatal(err)
		}
		store.write = nil
		_, msgs, err := s.Messages.Remembered(t.Context(), "p", a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) == 0 || msgs[0].Content != "be brief" || len(msgs) != min(n, writes) {
			t.Errorf("%d writes: %+v", writes, msgs)
		}
	}
}

// TestCopiesAreNoTurns: a repair that makes the memory begin anew leaves the turn table as it was,
// and what is said afterwards is told of; and it has room where the ledger is full, though nothing
// else has.
func TestCopiesAreNoTurns(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *agents.Config) { c.MaxMessages = 5 })
	a := join(t, s, nil)
	call := memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: "I look", ToolCalls: json.RawMessage(`[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]`)}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("one"), call, user("two"), llm("three"), user("four")}); err != nil {
		t.Fatal(err)
	}
	_, before, err := turns.Read(t.Context(), s.Messages, "p", a.ID)
	if err != nil {
		t.Fatal(err)
	}
	out, err := memctx.New(s).Repair(t.Context(), "p", a.ID)
	if err != nil || len(out.Healed) != 1 {
		t.Fatalf("%+v, err %v", out, err)
	}
	_, after, err := turns.Read(t.Context(), s.Messages, "p", a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("the turn table (-before +after):\n%s", d)
	}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("five")}); !fault.Is(err, fault.Quota) {
		t.Errorf("a full ledger took a message: %v", err)
	}
}
