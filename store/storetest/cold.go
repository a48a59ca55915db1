package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// ColdStore is what RunCold looks at.
type ColdStore interface {
	memory.Store
	memory.ColdStore
}

// RunCold checks memory.ColdStore: the rows of a call go and come back with the version that the
// caller knows and not otherwise, and every object that was noted is used or unneeded; open returns
// an empty store of the test's own.
func RunCold(t *testing.T, open func(*testing.T) ColdStore) {
	c := coldTest{t, t.Context(), open(t)}
	a := newAgent(1)
	a.Status, a.StopMS, a.Message, a.Name = memory.Stopped, 1000, memory.EndOK, ""
	st := stored(t, c.ctx, c.s, a)
	for i := range 3 {
		w, _ := appends(t, st, fmt.Sprintf("text %d", i))
		wantErrs(t, apply(t, c.ctx, c.s, w), nil)
		st = load(t, c.ctx, c.s, a, 10)
	}
	all := st.Tail
	other := newAgent(2) // of which nothing may be touched
	still := stored(t, c.ctx, c.s, other)
	w, _ := appends(t, still, "stays")
	wantErrs(t, apply(t, c.ctx, c.s, w), nil)

	c.wantEnded("before", 1000, 0, 0)
	c.wantEnded("after", 1001, 0, 0, a.ID+" false")
	c.wantEnded("behind it", 1001, 1000, st.No)

	object := memory.ColdObject{No: st.No, Name: "2026-01-01/1-ab"}
	m := c.move(st, &memory.Cold{Object: object.Name, Key: []byte("k"), Messages: 3})
	c.wantMove("an object that is not noted", c.s.Freeze(c.ctx, m), memory.ErrStale)
	if err := c.s.NoteObject(c.ctx, object, 5000); err != nil {
		t.Fatal(err)
	}
	m.Messages = 2
	c.wantMove("another number of messages", c.s.Freeze(c.ctx, m), memory.ErrStale)
	m.Messages = 3
	late := m
	late.Rev--
	late.Ver--
	c.wantMove("an older version", c.s.Freeze(c.ctx, late), memory.ErrStale)
	if diff := cmp.Diff(all, load(t, c.ctx, c.s, a, 10).Tail); diff != "" {
		t.Fatalf("a move that failed has changed messages: %s", diff)
	}
	c.wantUnneeded("while it is being made", 5000)
	c.wantMove("the move", c.s.Freeze(c.ctx, m), nil)
	c.wantUnneeded("while it is used", 1<<60)
	c.wantEnded("moved", 1001, 0, 0, a.ID+" true")
	cold := load(t, c.ctx, c.s, a, 10)
	if len(cold.Tail) != 0 || cold.Head.Agent.Cold == nil || cold.Head.Agent.Cold.Object != object.Name || cold.Head.NextSeq != 4 || cold.Head.LastTurn != st.Head.LastTurn {
		t.Fatalf("after the move: %+v", cold)
	}
	if list, err := c.s.Page(c.ctx, st.No, memory.MessageQuery{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("a page after the move: %v, %v", texts(list), err)
	}
	// What was decided before the move must not be stored behind it.
	w, _ = appends(t, st, "too late")
	wantErrs(t, apply(t, c.ctx, c.s, w), memory.ErrStale)
	c.wantMove("the move again", c.s.Freeze(c.ctx, m), memory.ErrStale)

	back := c.move(cold, nil)
	back.Object, back.Append = object.Name, all
	for i := range all {
		body, err := codec.EncodeMessage(&all[i])
		if err != nil {
			t.Fatal(err)
		}
		back.Bodies = append(back.Bodies, body)
	}
	late = back
	late.Rev--
	late.Ver--
	c.wantMove("back on an older version", c.s.Thaw(c.ctx, late), memory.ErrStale)
	c.wantMove("back", c.s.Thaw(c.ctx, back), nil)
	c.wantMove("back again", c.s.Thaw(c.ctx, back), memory.ErrStale)
	st = load(t, c.ctx, c.s, a, 10)
	if diff := cmp.Diff(all, st.Tail); diff != "" || st.Head.Agent.Cold != nil {
		t.Errorf("back again: %+v, %s", st.Head.Agent.Cold, diff)
	}
	w, _ = appends(t, st, "after all")
	wantErrs(t, apply(t, c.ctx, c.s, w), nil)
	c.wantUnneeded("after the return", 1, object)
	c.forget(object)

	// An object that no call has taken in time, and that of an erased call.
	st = load(t, c.ctx, c.s, a, 10)
	lost, used := memory.ColdObject{No: st.No, Name: "lost"}, memory.ColdObject{No: st.No, Name: "used"}
	for _, o := range []memory.ColdObject{lost, used} {
		if err := c.s.NoteObject(c.ctx, o, 6000); err != nil {
			t.Fatal(err)
		}
	}
	m = c.move(st, &memory.Cold{Object: used.Name})
	m.Messages = 4
	c.wantMove("the second move", c.s.Freeze(c.ctx, m), nil)
	c.wantUnneeded("lost", 6001, lost)
	m = c.move(load(t, c.ctx, c.s, a, 10), &memory.Cold{Object: lost.Name})
	m.Messages = 0
	c.wantMove("to an object that is unneeded", c.s.Freeze(c.ctx, m), memory.ErrStale)
	c.forget(used) // which is used, and stays noted
	c.forget(lost)
	if _, err := c.s.Erase(c.ctx, memory.Erasure{Ref: a.Ref()}); err != nil {
		t.Fatal(err)
	}
	c.wantUnneeded("erased", 1, used)
	c.forget(used)
	if got := texts(load(t, c.ctx, c.s, other, 10).Tail); got != "[stays]" {
		t.Errorf("the other agent has %s", got)
	}
}

type coldTest struct {
	t   *testing.T
	ctx context.Context
	s   ColdStore
}

// move returns the move after which an agent has that Cold.
func (c coldTest) move(st memory.Stored, cold *memory.Cold) memory.Move {
	c.t.Helper()
	a := *st.Head.Agent
	a.Cold = cold
	private, err := codec.EncodeAgent(&a)
	if err != nil {
		c.t.Fatal(err)
	}
	m := memory.Move{Ref: a.Ref(), Version: memory.Version{No: st.No, Rev: st.Head.Rev, Ver: st.Ver}, Private: private}
	if cold != nil {
		m.Object, m.Messages = cold.Object, cold.Messages
	}
	return m
}

func (c coldTest) wantMove(what string, err, want error) {
	c.t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		c.t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func (c coldTest) wantEnded(what string, before, afterMS, afterNo int64, want ...string) {
	c.t.Helper()
	list, err := c.s.EndedCalls(c.ctx, before, afterMS, afterNo, 10)
	if err != nil {
		c.t.Fatal(err)
	}
	got := []string{}
	for _, e := range list {
		got = append(got, fmt.Sprint(e.ID, " ", e.Cold))
	}
	wantSame(c.t, what, got, append([]string{}, want...))
}

func (c coldTest) wantUnneeded(what string, before int64, want ...memory.ColdObject) {
	c.t.Helper()
	got, err := c.s.Unneeded(c.ctx, before, 10)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		c.t.Errorf("unneeded %s: %v, %s", what, err, diff)
	}
}

func (c coldTest) forget(o memory.ColdObject) {
	c.t.Helper()
	if err := c.s.ForgetObject(c.ctx, o); err != nil {
		c.t.Fatal(err)
	}
}
