package storetest

import (
	"context"
	"maps"
	"math/rand/v2"
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

// testAgentsChange asks for the agents of users between changes of all kinds, and after so many
// that a driver cannot remember each. The answers follow from the changes.
func testAgentsChange(t *testing.T, ctx context.Context, s ItemStore) {
	random := rand.New(rand.NewPCG(1, 2))
	users := []string{"u1", "u2", ""}
	with := map[string]map[string]int64{"u1": {}, "u2": {}} // by user and agent, the message
	var live []memory.Agent
	ask := func(step int) {
		t.Helper()
		for user, agents := range with {
			list, err := s.AgentsOf(ctx, project, user)
			if err != nil {
				t.Fatal(err)
			}
			got, want := map[string]int64{}, map[string]int64{}
			for _, v := range list {
				got[v.ID] = v.Rev
			}
			for id := range agents {
				h, err := s.Head(ctx, project, id)
				if err != nil {
					t.Fatal(err)
				}
				want[id] = h.Rev
			}
			if !maps.Equal(got, want) || len(list) != len(want) {
				t.Fatalf("agents of %s after %d changes: %v, want %v", user, step, got, want)
			}
		}
	}
	for step := range 900 {
		switch n := random.IntN(40); {
		case n < 2 || len(live) < 4:
			live = append(live, create(t, ctx, s, newAgent(step)))
		case n == 2:
			i := random.IntN(len(live))
			id := live[i].ID
			if err := s.Erase(ctx, project, id); err != nil {
				t.Fatal(err)
			}
			live = slices.Delete(live, i, i+1)
			delete(with["u1"], id)
			delete(with["u2"], id)
		default:
			a, user := live[random.IntN(len(live))], users[random.IntN(len(users))]
			if seq, ok := with[user][a.ID]; ok && n < 12 { // the only message of the user
				update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
					m, err := view.Seq(seq)
					m.Rev, m.State, m.Details, m.Content = view.Head().Rev+1, memory.Removed, nil, ""
					return memory.Change{Replace: []memory.Message{m}}, err
				})
				delete(with[user], a.ID)
				break
			} else if ok {
				user = ""
			}
			update(t, ctx, s, a, belongs("a word", memory.Scope{UserID: user, SessionID: "s"}, nil))
			if user != "" {
				h, err := s.Head(ctx, project, a.ID)
				if err != nil {
					t.Fatal(err)
				}
				with[user][a.ID] = h.NextSeq - 1
			}
		}
		if step < 500 && random.IntN(3) == 0 || step%300 == 299 {
			ask(step)
		}
	}
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
