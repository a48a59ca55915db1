package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// testAgentsOf checks which agents hold messages of a user, and that their versions change with
// every change of a message or of the agent.
func testAgentsOf(t *testing.T, ctx context.Context, s ItemStore) {
	a, b, c := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2)), create(t, ctx, s, newAgent(3))
	other := newAgent(4)
	other.Project = "other"
	create(t, ctx, s, other)
	own := newAgent(5)
	own.Project, own.Status = memories.OwnProject(project), memory.Stopped
	create(t, ctx, s, own)
	u1 := memory.Scope{UserID: "u1", SessionID: "s"}
	for range 3 {
		for _, at := range []memory.Agent{a, b, other, own} {
			update(t, ctx, s, at, belongs("a word", u1, nil))
		}
	}
	update(t, ctx, s, c, belongs("another's", memory.Scope{UserID: "u12"}, nil))
	update(t, ctx, s, c, belongs("nobody's", memory.Scope{SessionID: "u1"}, nil))
	agents := func(project, user string) (ids []string, versions []memory.Version) {
		t.Helper()
		list, err := s.AgentsOf(ctx, project, user)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(x, y memories.AgentVersion) int { return strings.Compare(x.ID, y.ID) })
		for _, v := range list {
			ids, versions = append(ids, v.ID), append(versions, v.Version)
		}
		return ids, versions
	}
	want := []string{a.ID, b.ID}
	slices.Sort(want)
	ids, first := agents(project, "u1")
	wantSame(t, "agents", ids, want)
	ids, _ = agents("other", "u1")
	wantSame(t, "agents of the other project", ids, []string{other.ID})
	ids, _ = agents(project, "u")
	wantSame(t, "agents of nobody", len(ids), 0)
	_, again := agents(project, "u1")
	wantSame(t, "versions of unchanged agents", again, first)
	at := slices.Index(want, a.ID)
	update(t, ctx, s, a, belongs("more", memory.Scope{}, nil))
	if _, now := agents(project, "u1"); now[at].Rev <= first[at].Rev || now[at].No != first[at].No || now[1-at] != first[1-at] {
		t.Errorf("versions after a change: %+v, before: %+v", now, first)
	}
	if err := s.Erase(ctx, project, a.ID); err != nil {
		t.Fatal(err)
	}
	ids, _ = agents(project, "u1")
	wantSame(t, "agents after one was erased", ids, []string{b.ID})
}

// testUsers checks the pages of a project's users, in the order of their bytes.
func testUsers(t *testing.T, ctx context.Context, s ItemStore) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	other := newAgent(3)
	other.Project = "other"
	create(t, ctx, s, other)
	own := newAgent(4)
	own.Project, own.Status = memories.OwnProject(project), memory.Stopped
	create(t, ctx, s, own)
	for at, users := range map[*memory.Agent][]string{&a: {"b", "Z", "b", "é", ""}, &b: {"b", "+49", "a b"}, &other: {"elsewhere"}, &own: {"~"}} {
		for _, u := range users {
			update(t, ctx, s, *at, belongs("a word", memory.Scope{UserID: u, SessionID: "s"}, nil))
		}
	}
	want := []string{"+49", "Z", "a b", "b", "~", "é"}
	for _, limit := range []int{1, 2, 6, 100} {
		var got []string
		for after := ""; ; {
			page, err := s.Users(ctx, project, after, limit)
			if err != nil || len(page) > limit {
				t.Fatal(err, len(page))
			}
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), page[len(page)-1]
		}
		wantSame(t, "users", got, want)
	}
	if err := s.Erase(ctx, project, b.ID); err != nil {
		t.Fatal(err)
	}
	got, err := s.Users(ctx, project, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "users without those of an erased agent", got, []string{"Z", "b", "~", "é"})
}
