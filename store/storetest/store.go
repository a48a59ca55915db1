package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// RunStore runs the contract of memory.Store itself: what Run, through an engine, does not reach.
// open returns an empty store of the test's own and closes it when the test ends.
func RunStore(t *testing.T, open func(*testing.T) memory.Store) {
	for name, test := range map[string]func(*testing.T, context.Context, memory.Store){
		"Load":          testStoreLoad,
		"Page":          testStorePage,
		"Stale":         testStoreStale,
		"StaleFailed":   testStoreStaleFailed,
		"BatchOneByOne": testStoreBatchOneByOne,
		"Numbers":       testStoreNumbers,
		"JoinKey":       testStoreJoinKey,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

// stored creates an agent without an engine.
func stored(t *testing.T, ctx context.Context, s memory.Store, a memory.Agent) memory.Stored {
	t.Helper()
	w := memory.Write{Ref: memory.Ref{Project: a.Project, ID: a.ID}, Head: new(memory.NewHead(a, nil, 0))}
	var err error
	if w.Private, err = codec.EncodeAgent(&a); err != nil {
		t.Fatal(err)
	}
	if _, existing, err := s.Create(ctx, w, 0); err != nil || existing != "" {
		t.Fatalf("create %s: existing %q, %v", a.ID, existing, err)
	}
	return load(t, ctx, s, a, 100)
}

func load(t *testing.T, ctx context.Context, s memory.Store, a memory.Agent, n int) memory.Stored {
	t.Helper()
	st, err := s.Load(ctx, a.Project, a.ID, n, memory.Version{})
	if err != nil {
		t.Fatalf("load %s: %v", a.ID, err)
	}
	return st
}

// appends returns the write that appends a message to what was loaded, and what is loaded after it.
func appends(t *testing.T, st memory.Stored, text string) (memory.Write, memory.Stored) {
	t.Helper()
	h := st.Head
	m := memory.Message{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1}
	w := memory.Write{
		Ref: memory.Ref{Project: h.Agent.Project, ID: h.Agent.ID}, Version: memory.Version{No: st.No, Rev: h.Rev, Ver: st.Ver},
		Before: h.Agent.Status, Change: memory.Change{Append: []memory.Message{m}},
	}
	w.Head = new(h.Apply(w.Change))
	return encoded(t, w), memory.Stored{No: st.No, Ver: st.Ver + min(st.Ver, 1), Head: *w.Head}
}

func encoded(t *testing.T, w memory.Write) memory.Write {
	t.Helper()
	w.Bodies = nil
	for _, list := range [][]memory.Message{w.Change.Append, w.Change.Replace} {
		for i := range list {
			body, err := codec.EncodeMessage(&list[i])
			if err != nil {
				t.Fatal(err)
			}
			w.Bodies = append(w.Bodies, body)
		}
	}
	return w
}

func apply(t *testing.T, ctx context.Context, s memory.Store, batch ...memory.Write) []error {
	t.Helper()
	errs, err := s.Apply(ctx, batch)
	if err != nil || len(errs) != len(batch) {
		t.Fatalf("apply: %d answers to %d writes, %v", len(errs), len(batch), err)
	}
	return errs
}

func texts(list []memory.Message) string { return fmt.Sprint(contents(list)) }

func testStoreLoad(t *testing.T, ctx context.Context, s memory.Store) {
	st := stored(t, ctx, s, newAgent(1))
	if st.No < 1 || len(st.Tail) != 0 || st.Head.NextSeq != 1 {
		t.Errorf("a new agent: %+v", st)
	}
	for i := range 5 {
		w, _ := appends(t, st, fmt.Sprint(i))
		wantErrs(t, apply(t, ctx, s, w), nil)
		st = load(t, ctx, s, newAgent(1), 3)
	}
	if got := texts(st.Tail); got != "[2 3 4]" || st.Head.Last.Content != "4" || st.Head.Rev != 6 {
		t.Errorf("tail %s, head %+v", got, st.Head)
	}
	if got := load(t, ctx, s, newAgent(1), 0); len(got.Tail) != 0 || got.Head.Last.Content != "4" {
		t.Errorf("a head alone: %+v", got)
	}
	if got := load(t, ctx, s, newAgent(1), 100); len(got.Tail) != 5 {
		t.Errorf("%d messages of 5", len(got.Tail))
	}
	_, err := s.Load(ctx, project, newAgent(2).ID, 1, memory.Version{})
	wantCode(t, err, fault.NotFound)
	_, err = s.Load(ctx, "other", newAgent(1).ID, 1, memory.Version{})
	wantCode(t, err, fault.NotFound)
}

func testStorePage(t *testing.T, ctx context.Context, s memory.Store) {
	st := stored(t, ctx, s, newAgent(1))
	for i := range 6 {
		w, _ := appends(t, st, fmt.Sprint(i))
		w.Change.Append[0].ID, w.Change.Append[0].TurnID = fmt.Sprint("id", i), int64(i/2)
		w.Head = new(st.Head.Apply(w.Change))
		wantErrs(t, apply(t, ctx, s, encoded(t, w)), nil)
		st = load(t, ctx, s, newAgent(1), 1)
	}
	turn := int64(2)
	for want, q := range map[string]memory.MessageQuery{
		"[0 1 2 3 4 5]": {Limit: 10}, "[2 3]": {AfterSeq: 2, Limit: 2}, "[5]": {AfterRev: 6, Limit: 10}, "[1 4]": {IDs: []string{"id4", "id1", "none"}, Limit: 10}, "[4 5]": {Turn: &turn, Limit: 10},
	} {
		list, err := s.Page(ctx, st.No, q)
		if got := texts(list); got != want || err != nil {
			t.Errorf("%+v: %s, want %s; %v", q, got, want, err)
		}
	}
	if list, err := s.Page(ctx, st.No+1000, memory.MessageQuery{Limit: 1}); err != nil || len(list) != 0 {
		t.Errorf("no such agent: %d messages, %v", len(list), err)
	}
}

// wantErrs compares answers; memory.ErrStale by identity, others by whether they are errors.
func wantErrs(t *testing.T, got []error, want ...error) {
	t.Helper()
	for i, err := range got {
		if (want[i] == memory.ErrStale) != (err == memory.ErrStale) || (want[i] == nil) != (err == nil) {
			t.Errorf("write %d: %v, want %v", i, err, want[i])
		}
	}
}

// testStoreStale: a write that was decided on another version is not stored, its neighbours are.
func testStoreStale(t *testing.T, ctx context.Context, s memory.Store) {
	a, b := stored(t, ctx, s, newAgent(1)), stored(t, ctx, s, newAgent(2))
	first, _ := appends(t, a, "first")
	late, _ := appends(t, a, "late")
	beside, _ := appends(t, b, "beside")
	wantErrs(t, apply(t, ctx, s, first), nil)
	wantErrs(t, apply(t, ctx, s, late, beside), memory.ErrStale, nil)
	if got := texts(load(t, ctx, s, newAgent(1), 10).Tail) + texts(load(t, ctx, s, newAgent(2), 10).Tail); got != "[first][beside]" {
		t.Errorf("stored %s", got)
	}
	if _, err := s.Erase(ctx, memory.Erasure{Ref: memory.Ref{Project: project, ID: newAgent(1).ID}}); err != nil {
		t.Fatal(err)
	}
	gone, _ := appends(t, a, "gone")
	wantErrs(t, apply(t, ctx, s, gone), memory.ErrStale)
}

// testStoreStaleFailed: of several writes of an agent in a batch, those behind a failed one are
// stale.
func testStoreStaleFailed(t *testing.T, ctx context.Context, s memory.Store) {
	st := stored(t, ctx, s, newAgent(1))
	one, st1 := appends(t, st, "one")
	bad, st2 := appends(t, st1, "two")
	bad.Change.Append[0].Seq = 1 // in use
	bad = encoded(t, bad)
	three, _ := appends(t, st2, "three")
	wantErrs(t, apply(t, ctx, s, one, bad, three), nil, fault.New(fault.Conflict, "in use"), memory.ErrStale)
	if got := load(t, ctx, s, newAgent(1), 10); texts(got.Tail) != "[one]" || got.Head.Rev != one.Head.Rev || got.Head.NextSeq != 2 {
		t.Errorf("stored %s, head %+v", texts(got.Tail), got.Head)
	}
	// Without the bad one the same goes through, a replacement of what the batch appends too.
	two, st2 := appends(t, load(t, ctx, s, newAgent(1), 1), "two")
	edit := memory.Write{Ref: two.Ref, Version: memory.Version{No: st2.No, Rev: st2.Head.Rev, Ver: st2.Ver}, Before: two.Before}
	m := two.Change.Append[0]
	m.Content, m.Rev = "two, edited", st2.Head.Rev+1
	edit.Change.Replace = []memory.Message{m}
	edit.Head = new(st2.Head.Apply(edit.Change))
	wantErrs(t, apply(t, ctx, s, two, encoded(t, edit)), nil, nil)
	if got := load(t, ctx, s, newAgent(1), 10); texts(got.Tail) != "[one two, edited]" || got.Head.Rev != edit.Head.Rev {
		t.Errorf("stored %s, head %+v", texts(got.Tail), got.Head)
	}
}

// testStoreBatchOneByOne: writes that the store itself finds wrong fail alone.
func testStoreBatchOneByOne(t *testing.T, ctx context.Context, s memory.Store) {
	var batch []memory.Write
	var want []error
	for n := range 12 {
		w, _ := appends(t, stored(t, ctx, s, newAgent(n)), fmt.Sprint(n))
		var err error
		switch n % 3 {
		case 1: // replaces what is not there
			m := memory.Message{Seq: 7, Rev: 2, Role: memory.User, Content: "nothing"}
			w.Change.Replace, err = []memory.Message{m}, fault.New(fault.Internal, "not there")
		case 2: // decided on another version
			w.Rev, w.Ver, err = w.Rev+1, w.Ver+1, memory.ErrStale
		}
		batch, want = append(batch, encoded(t, w)), append(want, err)
	}
	wantErrs(t, apply(t, ctx, s, batch...), want...)
	for n := range 12 {
		stored := 0
		if n%3 == 0 {
			stored = 1
		}
		if got := load(t, ctx, s, newAgent(n), 10); len(got.Tail) != stored || got.Head.Rev != int64(1+stored) {
			t.Errorf("agent %d: %s, head %+v", n, texts(got.Tail), got.Head)
		}
	}
}

// testStoreNumbers: an agent's number is never another's, not even that of a later agent of the
// same ID.
func testStoreNumbers(t *testing.T, ctx context.Context, s memory.Store) {
	used := map[int64]bool{}
	for range 4 {
		st := stored(t, ctx, s, newAgent(1))
		if used[st.No] {
			t.Fatalf("number %d is used again", st.No)
		}
		used[st.No] = true
		gone, err := s.Erase(ctx, memory.Erasure{Ref: memory.Ref{Project: project, ID: newAgent(1).ID}})
		if err != nil || len(gone) != 1 || gone[0].ID != newAgent(1).ID {
			t.Fatalf("erased %v, %v", gone, err)
		}
	}
}

// testStoreJoinKey: an agent of the same join key is returned by its ID, and nothing is written.
func testStoreJoinKey(t *testing.T, ctx context.Context, s memory.Store) {
	a, b := newAgent(1), newAgent(2)
	a.JoinKey, b.JoinKey = "key", "key"
	stored(t, ctx, s, a)
	private, err := codec.EncodeAgent(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, existing, err := s.Create(ctx, memory.Write{Ref: memory.Ref{Project: b.Project, ID: b.ID}, Head: new(memory.NewHead(b, nil, 0)), Private: private}, 0)
	if existing != a.ID || err != nil {
		t.Errorf("existing %q, %v; want %q", existing, err, a.ID)
	}
	_, err = s.Load(ctx, b.Project, b.ID, 0, memory.Version{})
	wantCode(t, err, fault.NotFound)
}
