package agents_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/store/storetest"
)

func marksService(t *testing.T) (*agents.Service, string) {
	t.Helper()
	s := agents.NewService(agents.Config{Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return "a" }})
	a, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	return s, a.ID
}

// TestMarks: a message keeps the revisions at which it was added, cut, and told of, whatever else
// becomes of it.
func TestMarks(t *testing.T) {
	t.Parallel()
	s, id := marksService(t)
	if _, err := s.Messages.Append(t.Context(), "p", id, []memory.Message{
		{Role: memory.User, Source: memory.SourceASR, Content: "Hi"},
		{Role: memory.Assistant, Source: memory.SourceLLM, Content: "Good morning to you"},
	}); err != nil {
		t.Fatal(err)
	}
	type revs struct{ Rev, Born, Cut, Heard int64 }
	got := func() revs {
		t.Helper()
		_, list, err := s.Messages.Recent(t.Context(), "p", id, 1)
		if err != nil {
			t.Fatal(err)
		}
		m := list[0]
		return revs{m.Rev, m.BornRev(), m.CutRev(), m.HeardRev()}
	}
	want := func(what string, w revs) {
		t.Helper()
		if d := cmp.Diff(w, got()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	want("as appended", revs{2, 2, 0, 0})
	heard, turn := "Good", int64(0)
	ask := func(r agents.InterruptRequest) {
		t.Helper()
		if _, err := s.Turns.Interrupt(t.Context(), "p", id, r); err != nil {
			t.Fatal(err)
		}
	}
	ask(agents.InterruptRequest{Heard: &heard, AtMS: 1780000000000})
	want("cut", revs{3, 2, 3, 3})
	ask(agents.InterruptRequest{Heard: &heard, AtMS: 1780000000000})
	want("told again", revs{3, 2, 3, 3})
	// Which keeps a place free behind it.
	if _, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
		Plan: func(memory.Head, []memory.Message) (agents.Plan, error) { return agents.Plan{}, nil }, Cut: func(error) {},
	}); err != nil {
		t.Fatal(err)
	}
	want("changed otherwise", revs{4, 2, 3, 3})
	longer := "Good morning"
	ask(agents.InterruptRequest{TurnID: &turn, Heard: &longer, AtMS: 1780000001000})
	want("known better", revs{5, 2, 5, 5})
}

// TestFeed: who follows an agent is given each change, without reading the store, and is told where
// some are missing.
func TestFeed(t *testing.T) {
	t.Parallel()
	s, id := marksService(t)
	followed, other := s.Messages.Follow("p", id), s.Messages.Follow("p", id)
	watched, stop := other.Wake(), other.Close
	say := func(n int) {
		t.Helper()
		for range n {
			if _, err := s.Messages.Append(t.Context(), "p", id, []memory.Message{{Role: memory.User, Source: memory.SourceASR, Content: "Hi"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(3)
	<-followed.Wake()
	<-watched
	fed := followed.Take()
	var revs []int64
	for _, w := range fed.Written {
		revs = append(revs, w.Rev)
		if len(w.Append) != 1 || w.Append[0].Rev != w.Rev {
			t.Errorf("%+v", w)
		}
	}
	if d := cmp.Diff([]int64{2, 3, 4}, revs); d != "" || fed.Lost {
		t.Error(d, fed.Lost)
	}
	if fed = followed.Take(); len(fed.Written) > 0 || fed.Lost {
		t.Errorf("taken twice: %+v", fed)
	}
	say(300) // more than waits
	if fed = followed.Take(); !fed.Lost || len(fed.Written) > 0 {
		t.Errorf("%d changes, lost %t", len(fed.Written), fed.Lost)
	}
	say(1)
	s.Messages.Changed("p", id)
	if fed = followed.Take(); !fed.Lost {
		t.Error("what another server wrote is not told of")
	}
	s.Messages.Searched("p", id, 2)
	if fed = followed.Take(); len(fed.Notes) != 1 || fed.Notes[0] != (memory.Note{Action: memory.ActionSearched, Count: 2}) {
		t.Errorf("%+v", fed.Notes)
	}
	followed.Close()
	stop()
	say(1)
	if fed = followed.Take(); len(fed.Written) > 0 {
		t.Error("a closed feed is fed")
	}
}

// TestMarksOfCopies: what is copied, into a new agent or behind a repair, was added with its copy,
// and bears no revisions of where it stood before.
func TestMarksOfCopies(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	first := again(t, s, agents.JoinRequest{Name: "desk"})
	call := memory.Message{
		Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: []byte(`[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]`), Method: memory.AssumedFull,
	}
	if _, err := s.Messages.Append(t.Context(), "p", first.ID, []memory.Message{user("Hi"), llm("Good morning to you"), user("Look"), call, user("Well?")}); err != nil {
		t.Fatal(err)
	}
	heard, turn := "Good", int64(0)
	for range 3 {
		if _, err := s.Turns.Interrupt(t.Context(), "p", first.ID, agents.InterruptRequest{TurnID: &turn, Heard: &heard, AtMS: 1780000000000}); err != nil {
			t.Fatal(err)
		}
		heard += "?"
	}
	check := func(what, id string, rev int64) {
		t.Helper()
		_, msgs, err := s.Messages.Remembered(t.Context(), "p", id)
		if err != nil || len(msgs) == 0 {
			t.Fatal(len(msgs), err)
		}
		for _, m := range msgs {
			if m.Rev != rev || m.BornRev() != rev || m.CutRev() > rev || m.HeardRev() > rev || m.Interrupted && m.CutRev() != rev {
				t.Errorf("%s: message %d of revision %d: born %d, cut %d, heard %d", what, m.Seq, m.Rev, m.BornRev(), m.CutRev(), m.HeardRev())
			}
		}
	}
	if _, err := memctx.New(s).Repair(t.Context(), "p", first.ID); err != nil {
		t.Fatal(err)
	}
	a, err := s.Agents.Agent(t.Context(), "p", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	check("repaired", first.ID, a.Rev)
	leave(t, s, first)
	check("inherited", again(t, s, agents.JoinRequest{Name: "desk", Inherit: memory.InheritFull}).ID, 1)
}
