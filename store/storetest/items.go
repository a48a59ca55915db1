package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// ItemStore is what RunItems looks at: a store whose messages are found by whose they are.
type ItemStore interface {
	memory.Ledger
	memories.Store
}

// RunItems runs the contract of memories.Store; open gives an empty store of the test's own and
// closes it when the test ends.
func RunItems(t *testing.T, open func(*testing.T) ItemStore) {
	for name, test := range map[string]func(*testing.T, context.Context, ItemStore){
		"ByScope": testItemsByScope, "Pages": testItemPages, "ByID": testItemByID, "Replaced": testItemsReplaced, "Erased": testItemsErased,
		"OwnProject": testItemsOwnProject, "FailedChange": testItemsFailedChange, "AgentsOf": testAgentsOf, "AgentsChange": testAgentsChange, "Users": testUsers,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// belongs returns a decision that appends a message with a scope, or none if it is zero.
func belongs(text string, scope memory.Scope, item *memory.Item) memory.Decision {
	var details *memory.Details
	if scope != (memory.Scope{}) || item != nil {
		details = &memory.Details{Filed: memory.Filed{Scope: scope, Item: item}}
	}
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		return memory.Change{Append: []memory.Message{{
			Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1, Timestamp: 1, Details: details,
		}}}, nil
	}
}

// found reads all items of a query, newest first.
func found(t *testing.T, ctx context.Context, s ItemStore, project string, q memories.Query) []memories.Item {
	t.Helper()
	var out []memories.Item
	for range 1000 {
		list, next, err := s.Items(ctx, project, q)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, list...)
		if q.Before = next; next == 0 {
			return out
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

func foundTexts(t *testing.T, ctx context.Context, s ItemStore, project string, q memories.Query) []string {
	t.Helper()
	out := []string{}
	for _, it := range found(t, ctx, s, project, q) {
		out = append(out, it.Message.Content)
	}
	return out
}

func testItemsByScope(t *testing.T, ctx context.Context, s ItemStore) {
	a, b, other := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2)), newAgent(3)
	other.Project = "other"
	create(t, ctx, s, other)
	u1, u2 := memory.Scope{UserID: "u1", SessionID: "s1", TaskID: "t1"}, memory.Scope{UserID: "u2", SessionID: "s2", TaskID: "t1"}
	update(t, ctx, s, a, belongs("one", u1, nil))
	update(t, ctx, s, a, belongs("nobody's", memory.Scope{}, nil))
	update(t, ctx, s, b, belongs("two", memory.Scope{UserID: "u1", SessionID: "s2"}, nil))
	update(t, ctx, s, b, belongs("three", u2, nil))
	update(t, ctx, s, a, belongs("four", memory.Scope{UserID: "u1"}, &memory.Item{ID: "x", AgentID: "named"}))
	update(t, ctx, s, a, belongs("five", memory.Scope{}, &memory.Item{AgentID: "named"}))
	update(t, ctx, s, other, belongs("foreign", u1, nil))
	scope := func(user, session, task string) memory.Scope {
		return memory.Scope{UserID: user, SessionID: session, TaskID: task}
	}
	for _, tt := range []struct {
		name string
		q    memories.Query
		want []string
	}{
		{"all", memories.Query{}, []string{"five", "four", "three", "two", "one"}},
		{"user", memories.Query{Scope: scope("u1", "", "")}, []string{"four", "two", "one"}},
		{"session", memories.Query{Scope: scope("", "s2", "")}, []string{"three", "two"}},
		{"user and session", memories.Query{Scope: scope("u1", "s2", "")}, []string{"two"}},
		{"task", memories.Query{Scope: scope("", "", "t1")}, []string{"three", "one"}},
		{"all three", memories.Query{Scope: u2}, []string{"three"}},
		{"the agent that holds it", memories.Query{Scope: memory.Scope{AgentID: b.ID}}, []string{"three", "two"}},
		{"the agent that is named", memories.Query{Scope: memory.Scope{AgentID: "named"}}, []string{"five", "four"}},
		{"user and agent", memories.Query{Scope: memory.Scope{UserID: "u1", AgentID: a.ID}}, []string{"one"}},
		{"nobody", memories.Query{Scope: scope("u3", "", "")}, []string{}},
		{"ids are compared whole", memories.Query{Scope: scope("u", "", "")}, []string{}},
	} {
		for _, limit := range []int{1, 2, 100} {
			tt.q.Limit = limit
			wantSame(t, fmt.Sprint(tt.name, ", pages of ", limit), foundTexts(t, ctx, s, project, tt.q), tt.want)
		}
	}
	wantSame(t, "the other project", foundTexts(t, ctx, s, "other", memories.Query{Limit: 10}), []string{"foreign"})
	it := found(t, ctx, s, project, memories.Query{Scope: memory.Scope{AgentID: b.ID}, Limit: 1})[0]
	of := u2
	of.AgentID = b.ID
	want := ledger(t, ctx, s, b)[1]
	wantSame(t, "message", it.Message, want)
	if it.Project != project || it.AgentID != b.ID || it.Row.Scope != of || it.Row.Project != project || len(it.Row.ID) != 32 {
		t.Errorf("its place: %+v", it)
	}
	row, ok := memories.RowOf(&want, project, b.ID)
	if !ok || row != it.Row {
		t.Errorf("the store's row is %+v and the message's %+v", it.Row, row)
	}
}

func testItemPages(t *testing.T, ctx context.Context, s ItemStore) {
	a := create(t, ctx, s, newAgent(1))
	var want []string
	for i := range 50 {
		user := fmt.Sprint("u", i%2)
		update(t, ctx, s, a, belongs(fmt.Sprint(i), memory.Scope{UserID: user}, nil))
		if i%2 == 1 {
			want = append([]string{fmt.Sprint(i)}, want...)
		}
	}
	q := memories.Query{Scope: memory.Scope{UserID: "u1"}, Limit: 7}
	wantSame(t, "pages", foundTexts(t, ctx, s, project, q), want)
	first, next, err := s.Items(ctx, project, q)
	if err != nil || len(first) == 0 || len(first) > 7 || next == 0 {
		t.Fatalf("%d, %d, %v", len(first), next, err)
	}
	update(t, ctx, s, a, belongs("late", memory.Scope{UserID: "u1"}, nil))
	q.Before = next // what came between two pages is in none of those that follow
	wantSame(t, "the rest", foundTexts(t, ctx, s, project, q), want[len(first):])
}

func testItemByID(t *testing.T, ctx context.Context, s ItemStore) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, belongs("first", memory.Scope{}, &memory.Item{ID: "x"}))
	update(t, ctx, s, a, belongs("second", memory.Scope{}, &memory.Item{ID: "x"}))
	update(t, ctx, s, a, belongs("scoped", memory.Scope{TaskID: "t"}, nil))
	if it, err := s.Item(ctx, project, "x"); err != nil || it.Message.Content != "first" {
		t.Errorf("of two with one id: %+v, %v", it, err)
	}
	id := found(t, ctx, s, project, memories.Query{Scope: memory.Scope{TaskID: "t"}, Limit: 1})[0].Row.ID
	if it, err := s.Item(ctx, project, id); err != nil || it.Message.Content != "scoped" {
		t.Errorf("by the id of its place: %+v, %v", it, err)
	}
	for _, p := range []string{"other", "~" + project} {
		_, err := s.Item(ctx, p, "x")
		wantCode(t, err, fault.NotFound)
	}
	_, err := s.Item(ctx, project, "y")
	wantCode(t, err, fault.NotFound)
}

// testItemsReplaced: what becomes an item, what stays one, and what ceases to be one.
func testItemsReplaced(t *testing.T, ctx context.Context, s ItemStore) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, belongs("scoped", memory.Scope{UserID: "u"}, nil))
	update(t, ctx, s, a, belongs("plain", memory.Scope{}, nil))
	edit := func(seq int64, change func(*memory.Message)) {
		t.Helper()
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			m, err := view.Seq(seq)
			m.Rev = view.Head().Rev + 1
			change(&m)
			return memory.Change{Replace: []memory.Message{m}}, err
		})
	}
	all := memories.Query{Limit: 10}
	edit(1, func(m *memory.Message) { m.Content, m.Status = "scoped, changed", memory.Draft })
	edit(2, func(m *memory.Message) {
		m.Details = &memory.Details{Filed: memory.Filed{Item: &memory.Item{AgentID: a.ID}}}
	})
	wantSame(t, "after the changes", foundTexts(t, ctx, s, project, all), []string{"plain", "scoped, changed"})
	edit(1, func(m *memory.Message) { m.State = memory.Superseded })
	wantSame(t, "whatever its state", foundTexts(t, ctx, s, project, all), []string{"plain", "scoped, changed"})
	edit(1, func(m *memory.Message) { m.State, m.Details, m.Content = memory.Removed, nil, "" })
	wantSame(t, "after the removal", foundTexts(t, ctx, s, project, all), []string{"plain"})
}

func testItemsErased(t *testing.T, ctx context.Context, s ItemStore) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	update(t, ctx, s, a, belongs("gone", memory.Scope{UserID: "u"}, &memory.Item{ID: "x"}))
	update(t, ctx, s, b, belongs("kept", memory.Scope{UserID: "u"}, nil))
	update(t, ctx, s, a, end(memory.Stopped, 10))
	if n, err := s.Sweep(ctx, 100, 10); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	wantSame(t, "items", foundTexts(t, ctx, s, project, memories.Query{Scope: memory.Scope{UserID: "u"}, Limit: 10}), []string{"kept"})
	_, err := s.Item(ctx, project, "x")
	wantCode(t, err, fault.NotFound)
	if err := s.Erase(ctx, project, b.ID); err != nil {
		t.Fatal(err)
	}
	wantSame(t, "after the other's erasure", foundTexts(t, ctx, s, project, memories.Query{Limit: 10}), []string{})
	create(t, ctx, s, newAgent(1)) // of the same id, and with none of its items
	wantSame(t, "of another of the id", foundTexts(t, ctx, s, project, memories.Query{Limit: 10}), []string{})
}

// testItemsOwnProject: the items of a project may stand in the ledger of an agent of another name
// than the project's, see memories.ProjectOf.
func testItemsOwnProject(t *testing.T, ctx context.Context, s ItemStore) {
	own := newAgent(1)
	own.Project = "~" + project
	create(t, ctx, s, own)
	update(t, ctx, s, own, belongs("kept", memory.Scope{UserID: "u"}, &memory.Item{ID: "x"}))
	it, err := s.Item(ctx, project, "x")
	if err != nil || it.Project != own.Project || it.AgentID != own.ID || it.Row.AgentID != "" || it.Row.Project != project {
		t.Errorf("%+v, %v", it, err)
	}
	wantSame(t, "items", foundTexts(t, ctx, s, project, memories.Query{Limit: 10}), []string{"kept"})
}

func testItemsFailedChange(t *testing.T, ctx context.Context, s ItemStore) {
	a := create(t, ctx, s, newAgent(1))
	err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
		c, err := belongs("one", memory.Scope{UserID: "u"}, nil)(view)
		c.Replace = []memory.Message{{Seq: 99, Rev: 2, Role: memory.User}} // which is not there
		return c, err
	})
	if err == nil {
		t.Fatal("the change was taken")
	}
	wantSame(t, "items", foundTexts(t, ctx, s, project, memories.Query{Limit: 10}), []string{})
}
