package storetest

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// DueStore is what RunDue looks at.
type DueStore interface {
	memory.Ledger
	memory.DueCalls
}

// RunDue checks memory.DueCalls: a call becomes due in the commit that ends it, changes it after
// its end or erases it, and stays so until it is counted as it is; open gives an empty store of the
// test's own.
func RunDue(t *testing.T, open func(*testing.T) DueStore) {
	ctx, s := t.Context(), open(t)
	due := func(when, project string, want ...string) (list []memory.Due) {
		t.Helper()
		for after := int64(0); ; {
			page, err := s.Due(ctx, project, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if list = append(list, page...); len(page) < 2 {
				break
			}
			after = page[1].No
		}
		got := make([]string, len(list))
		for i, d := range list {
			got[i] = fmt.Sprintf("%s %t", d.ID, d.Rev > 0)
			if d.Project != project || d.No == 0 {
				t.Errorf("%s: %+v", when, d)
			}
		}
		wantSame(t, when, got, append([]string{}, want...))
		return list
	}
	end := func(a memory.Agent) {
		update(t, ctx, s, a, func(v memory.AgentView) (memory.Change, error) {
			h := v.Head()
			ended := *h.Agent
			ended.Status, ended.StopMS, ended.Rev = memory.Stopped, ended.StartMS+5, h.Rev+1
			return memory.Change{Agent: &ended}, nil
		})
	}
	say := func(a memory.Agent) {
		update(t, ctx, s, a, func(v memory.AgentView) (memory.Change, error) {
			h := v.Head()
			return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: "late", TurnID: h.LastTurn + 1}}}, nil
		})
	}
	counted := func(list []memory.Due) {
		t.Helper()
		if err := s.Counted(ctx, project, list); err != nil {
			t.Fatal(err)
		}
	}
	var agents []memory.Agent
	for n := range 4 {
		agents = append(agents, create(t, ctx, s, newAgent(n)))
		say(agents[n])
	}
	other := newAgent(9)
	other.Project = "other"
	create(t, ctx, s, other)
	end(other)
	a, b, c, live := agents[0], agents[1], agents[2], agents[3]
	due("while they run", project)
	end(a)
	end(b)
	first := due("when they have ended", project, a.ID+" true", b.ID+" true")
	say(a)
	counted(first)
	again := due("after a late message", project, a.ID+" true")
	counted(again)
	due("once counted", project)
	end(c)
	for _, e := range []memory.Agent{b, c, live} {
		if err := s.Erase(ctx, e.Project, e.ID); err != nil {
			t.Fatal(err)
		}
	}
	gone := due("after erasures", project, b.ID+" false", c.ID+" false")
	counted(first)
	due("counted as they were", project, b.ID+" false", c.ID+" false")
	counted(gone)
	due("at last", project)
	projects, err := s.DueProjects(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "projects", projects, []string{"other"})
	ended := newAgent(20)
	ended.Status, ended.StopMS = memory.Failed, ended.StartMS+1
	create(t, ctx, s, ended)
	due("created ended", project, ended.ID+" true")
	if n, err := s.Sweep(ctx, ended.StartMS+100, 10); err != nil || n != 3 {
		t.Fatalf("swept %d, %v", n, err)
	}
	due("after retention", project, a.ID+" false", ended.ID+" false")
}
