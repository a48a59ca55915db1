package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// UsageStore is what RunUsage looks at: a store that counts what projects have.
type UsageStore interface {
	memory.Ledger
	Usage(ctx context.Context) ([]memory.Usage, error)
}

// RunUsage checks Usage: live agents, messages and bytes of each project, through appends, changes,
// failed writes, ends and erasures; open gives an empty store of the test's own.
func RunUsage(t *testing.T, open func(*testing.T) UsageStore) {
	ctx, s := t.Context(), open(t)
	is := func(when, project string, agents, messages, least, most int64) {
		t.Helper()
		list, err := s.Usage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got memory.Usage
		for _, u := range list {
			if u.Project == project {
				got = u
			}
		}
		if got.Agents != agents || got.Messages != messages || got.Bytes < least || got.Bytes > most {
			t.Errorf("%s: %+v, want %d agents, %d messages, %d to %d bytes", when, got, agents, messages, least, most)
		}
	}
	long := strings.Repeat("é", 1000)
	write := func(id string, change func(h memory.Head) memory.Change) error {
		return s.Update(ctx, "p", id, func(v memory.AgentView) (memory.Change, error) { return change(v.Head()), nil })
	}
	message := func(h memory.Head, text string) memory.Message {
		return memory.Message{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, Timestamp: 1}
	}
	for _, id := range []string{"a", "b"} {
		create(t, ctx, s, memory.Agent{ID: id, Project: "p", Name: id, Status: memory.Running, StartMS: 1, Rev: 1})
	}
	create(t, ctx, s, memory.Agent{ID: "a", Project: "q", Name: "a", Status: memory.Running, StartMS: 1, Rev: 1})
	is("empty", "p", 2, 0, 0, 0)
	for _, id := range []string{"a", "b"} {
		if err := write(id, func(h memory.Head) memory.Change {
			return memory.Change{Append: []memory.Message{message(h, long)}}
		}); err != nil {
			t.Fatal(err)
		}
	}
	is("appended", "p", 2, 2, 4000, 4400)
	is("another project", "q", 1, 0, 0, 0)
	if err := write("a", func(h memory.Head) memory.Change {
		m := message(h, long)
		m.Seq = 1
		return memory.Change{Append: []memory.Message{m}}
	}); err == nil {
		t.Error("a seq is given twice")
	}
	is("after a failed write", "p", 2, 2, 4000, 4400)
	if err := write("a", func(h memory.Head) memory.Change {
		m := message(h, long+"!")
		m.Seq = 1
		return memory.Change{Replace: []memory.Message{m}}
	}); err != nil {
		t.Fatal(err)
	}
	is("changed", "p", 2, 2, 6000, 6600)
	if err := write("a", func(h memory.Head) memory.Change {
		a := *h.Agent
		a.Status, a.StopMS, a.Rev = memory.Stopped, 2, h.Rev+1
		return memory.Change{Agent: &a}
	}); err != nil {
		t.Fatal(err)
	}
	is("ended", "p", 1, 2, 6000, 6600)
	if err := write("a", func(h memory.Head) memory.Change {
		return memory.Change{Append: []memory.Message{message(h, long)}}
	}); err != nil {
		t.Fatal(err)
	}
	is("late", "p", 1, 3, 8000, 8800)
	if err := write("b", func(h memory.Head) memory.Change {
		a := *h.Agent
		a.Status, a.StopMS, a.Rev = memory.Failed, 2, h.Rev+1
		return memory.Change{Agent: &a, Append: []memory.Message{message(h, long)}}
	}); err != nil {
		t.Fatal(err)
	}
	is("failed with a last message", "p", 0, 4, 10000, 11000)
	count, err := s.Count(ctx)
	if want := [memory.Statuses]int{memory.Running: 1, memory.Stopped: 1, memory.Failed: 1}; err != nil || count != want {
		t.Errorf("counts %v, want %v: %v", count, want, err)
	}
	if err := s.Erase(ctx, "p", "a"); err != nil {
		t.Fatal(err)
	}
	is("erased", "p", 0, 2, 4000, 4400)
}
