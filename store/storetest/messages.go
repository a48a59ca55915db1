package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

func testAppendInOrder(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	var want []string
	for i := range 150 { // more than any cache keeps of one agent
		update(t, ctx, s, a, says(fmt.Sprint(i, "a"), fmt.Sprint(i, "b")))
		want = append(want, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
	}
	list := ledger(t, ctx, s, a)
	wantSame(t, "contents", contents(list), want)
	for i, m := range list {
		if m.Seq != int64(i+1) || m.TurnID != int64(i) {
			t.Fatalf("message %d has seq %d, turn %d", i, m.Seq, m.TurnID)
		}
	}
	size := int64(0)
	for i := range list {
		size += list[i].Bytes()
	}
	wantSame(t, "head", head(t, ctx, s, a), memory.Head{Agent: &a, NextSeq: 301, Rev: 151, LastTurn: 299, Last: list[299], Tally: &memory.Tally{Bytes: size}})
}

func testAppendKeepsEveryField(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	want := []memory.Message{fullMessage(1, 2), {Seq: 3, Rev: 2, Role: memory.User, TurnID: 4}}
	want = append(want, memory.Message{Seq: 4, Rev: 2, Role: memory.Tool, TurnID: 4, Content: strings.Repeat("long ", 60_000), ToolCallID: "c"})
	update(t, ctx, s, a, func(memory.AgentView) (memory.Change, error) { return memory.Change{Append: want}, nil })
	wantSame(t, "ledger", ledger(t, ctx, s, a), want)
	_, list, err := s.Recent(ctx, project, a.ID, 10, false)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "recent", list, want)
}

func testAppendAllOrNone(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, says("one"))
	before := head(t, ctx, s, a)
	err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
		c, _ := says("two", "three")(view)
		c.Append[1].Seq = 1 // is there already
		stopped := *view.Head().Agent
		stopped.Status = memory.Stopped
		c.Agent = &stopped
		return c, nil
	})
	if err == nil {
		t.Fatal("two messages share a seq")
	}
	wantSame(t, "head", head(t, ctx, s, a), before)
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"one"})
	err = s.Update(ctx, project, a.ID, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Append: []memory.Message{{Role: memory.User, Content: "no seq"}}}, nil
	})
	wantCode(t, err, fault.Internal)
	update(t, ctx, s, a, says("two"))
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"one", "two"})
}

// userWithAnswer appends a user message that keeps the next number free for its answer.
func userWithAnswer(text string) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		c, err := says(text)(view)
		c.Append[0].AnswerSeq = c.Append[0].Seq + 1
		return c, err
	}
}

func testAppendAtSeqKeptFree(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, userWithAnswer("u1"))
	if h := head(t, ctx, s, a); h.NextSeq != 3 {
		t.Fatalf("next seq %d: the answer's place is not kept", h.NextSeq)
	}
	update(t, ctx, s, a, userWithAnswer("u2"))
	answer := func(seq, turn int64, text string) memory.Decision {
		return func(view memory.AgentView) (memory.Change, error) {
			return memory.Change{Append: []memory.Message{{
				Seq: seq, Rev: view.Head().Rev + 1, Role: memory.Assistant, Content: text, TurnID: turn, TurnHasUser: true,
			}}}, nil
		}
	}
	update(t, ctx, s, a, answer(2, 0, "a1, late"))
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"u1", "a1, late", "u2"})
	h, list, err := s.Recent(ctx, project, a.ID, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "recent", contents(list), []string{"a1, late", "u2"})
	if h.Last.Content != "u2" || h.NextSeq != 5 || h.LastTurn != 1 || h.Rev != 4 {
		t.Errorf("head after a late answer: %+v", h)
	}
	if err := s.Update(ctx, project, a.ID, answer(2, 0, "again")); err == nil {
		t.Error("a place was used twice")
	}
	update(t, ctx, s, a, answer(4, 1, "a2"))
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"u1", "a1, late", "u2", "a2"})
	update(t, ctx, s, a, userWithAnswer("u3")) // its place stays free
	for i := range 100 {
		update(t, ctx, s, a, says(fmt.Sprint(i)))
	}
	update(t, ctx, s, a, answer(6, 2, "a3, very late"))
	list = ledger(t, ctx, s, a)
	if len(list) != 106 || list[5].Content != "a3, very late" || list[5].Seq != 6 {
		t.Errorf("a very late answer is not at its place: %d messages, %+v", len(list), list[5])
	}
	update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
		turn, err := view.Turn(2)
		wantSame(t, "turn 2", contents(turn), []string{"u3", "a3, very late"})
		return memory.Change{}, err
	})
}

func testClientIDs(t *testing.T, ctx context.Context, s memory.Ledger) {
	a, b := create(t, ctx, s, newAgent(1)), create(t, ctx, s, newAgent(2))
	named := func(ids ...string) memory.Decision {
		return func(view memory.AgentView) (memory.Change, error) {
			c, err := says(ids...)(view)
			for i, id := range ids {
				c.Append[i].ID = id
			}
			return c, err
		}
	}
	update(t, ctx, s, a, named("x", "y"))
	update(t, ctx, s, b, named("x")) // another agent's ids are its own
	for i := range 3 {
		update(t, ctx, s, a, says(fmt.Sprint("nameless", i)))
	}
	for _, ids := range [][]string{{"x"}, {"z", "y"}, {"w", "w"}} {
		wantCode(t, s.Update(ctx, project, a.ID, named(ids...)), fault.Conflict)
	}
	check := func() {
		t.Helper()
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			got, err := view.ByIDs([]string{"x", "y", "z", "w", ""})
			if len(got) != 2 || got["x"].Seq != 1 || got["y"].Seq != 2 || got["y"].Content != "y" {
				t.Errorf("by ids: %+v", got)
			}
			return memory.Change{}, err
		})
	}
	check()
	for i := range 100 {
		update(t, ctx, s, a, says(fmt.Sprint(i)))
	}
	check()
}

func testReplace(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	first := fullMessage(1, 2)
	first.AnswerSeq = 0
	update(t, ctx, s, a, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Append: []memory.Message{first}}, nil
	})
	_, held, err := s.Recent(ctx, project, a.ID, 32, false)
	if err != nil {
		t.Fatal(err)
	}
	better := memory.Message{
		Seq: 1, Rev: 3, ID: first.ID, Role: memory.Assistant, Content: "shorter", TurnID: 3, Generated: "all of it", Interrupted: true, Method: memory.VendorText,
	}
	update(t, ctx, s, a, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Replace: []memory.Message{better}}, nil
	})
	wantSame(t, "ledger", ledger(t, ctx, s, a), []memory.Message{better})
	h, list, err := s.Recent(ctx, project, a.ID, 32, true)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "recent", list, []memory.Message{better})
	wantSame(t, "head", h, memory.Head{Agent: &a, NextSeq: 2, Rev: 3, LastTurn: 3, Last: better, Tally: &memory.Tally{Answers: 1, Interruptions: 1, Bytes: better.Bytes(), TallyWords: memory.TallyWords{Counted: 1, Words: 3, UnheardWords: 2, Evident: 1}}})
	wantSame(t, "what was handed out before", held, []memory.Message{first})
}

func testReplaceOld(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	for i := range 100 {
		update(t, ctx, s, a, says(fmt.Sprint(i)))
	}
	for _, seq := range []int64{1, 50, 99} {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			m, err := view.Seq(seq)
			m.Content, m.Rev = "changed", view.Head().Rev+1
			return memory.Change{Replace: []memory.Message{m}}, err
		})
	}
	list := ledger(t, ctx, s, a)
	for i, m := range list {
		if changed := m.Seq == 1 || m.Seq == 50 || m.Seq == 99; changed != (m.Content == "changed") {
			t.Errorf("message %d is %q", i, m.Content)
		}
	}
	h := head(t, ctx, s, a)
	if h.Rev != 104 || h.NextSeq != 101 || h.Last.Content != "99" {
		t.Errorf("head %+v", h)
	}
}

func testReplaceUnknown(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, says("one"))
	before := head(t, ctx, s, a)
	for _, m := range []memory.Message{
		{Seq: 2, Rev: 9, Role: memory.User, Content: "not there"},
		{Seq: 1, Rev: 9, Role: memory.User, Content: "other id", ID: "new"},
	} {
		err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
			c, err := says("with it")(view)
			c.Append[0].Seq = 7
			c.Replace = []memory.Message{m}
			return c, err
		})
		wantCode(t, err, fault.Internal)
	}
	wantSame(t, "head", head(t, ctx, s, a), before)
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"one"})
}

func testDecideErrors(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	coded := fault.At(fault.Invalid, "turn_id", "must not go down")
	for _, want := range []error{errRefused, coded} {
		err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
			c, _ := says("never stored")(view)
			return c, want
		})
		if err != want { //nolint:errorlint // the very same error is promised
			t.Errorf("decision's error came back as %#v", err)
		}
	}
	if list := ledger(t, ctx, s, a); len(list) != 0 {
		t.Errorf("a refused change wrote %v", contents(list))
	}
}

func testDecidePanics(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	err := s.Update(ctx, project, a.ID, func(memory.AgentView) (memory.Change, error) { panic("secret detail") })
	wantCode(t, err, fault.Internal)
	if e, ok := errors.AsType[*fault.Error](err); !ok || strings.Contains(e.Msg, "secret detail") {
		t.Errorf("panic reached the caller as %#v", err)
	}
	update(t, ctx, s, a, says("still works"))
	wantSame(t, "ledger", contents(ledger(t, ctx, s, a)), []string{"still works"})
}

func testDecideNothing(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, says("one"))
	before := head(t, ctx, s, a)
	update(t, ctx, s, a, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, nil })
	wantSame(t, "head", head(t, ctx, s, a), before)
}

func testDecideReads(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	read := func(check func(memory.AgentView)) {
		t.Helper()
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) { check(view); return memory.Change{}, nil })
	}
	read(func(view memory.AgentView) {
		last, err := view.Last(3)
		turn, err2 := view.Turn(0)
		byIDs, err3 := view.ByIDs([]string{"x"})
		if err := errors.Join(err, err2, err3); err != nil || len(last)+len(turn)+len(byIDs) != 0 {
			t.Errorf("empty ledger: %v %v %v %v", last, turn, byIDs, err)
		}
		_, err = view.Seq(1)
		wantCode(t, err, fault.NotFound)
		wantSame(t, "head", view.Head(), memory.NewHead(a, nil, 0))
	})
	update(t, ctx, s, a, userWithAnswer("u0"))
	update(t, ctx, s, a, says("u1", "u2"))
	read(func(view memory.AgentView) {
		for n, want := range [][]string{{}, {"u2"}, {"u1", "u2"}, {"u0", "u1", "u2"}, {"u0", "u1", "u2"}} {
			list, err := view.Last(n)
			if err != nil {
				t.Error(err)
			}
			wantSame(t, fmt.Sprint("last ", n), contents(list), want)
		}
		for turn, want := range [][]string{{"u0"}, {"u1"}, {"u2"}, {}} {
			list, err := view.Turn(int64(turn))
			if err != nil {
				t.Error(err)
			}
			wantSame(t, fmt.Sprint("turn ", turn), contents(list), want)
		}
		m, err := view.Seq(3)
		if err != nil || m.Content != "u1" {
			t.Errorf("seq 3: %+v, %v", m, err)
		}
		for _, seq := range []int64{-1, 0, 2, 5, 1 << 40} {
			_, err = view.Seq(seq)
			wantCode(t, err, fault.NotFound)
		}
	})
}

func testDecideReadsLongLedger(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	const turns = 120
	for turn := range int64(turns) {
		update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
			h := view.Head()
			m := memory.Message{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: fmt.Sprint("u", turn), TurnID: turn}
			r := memory.Message{Seq: h.NextSeq + 1, Rev: h.Rev + 1, Role: memory.Assistant, Content: fmt.Sprint("a", turn), TurnID: turn}
			return memory.Change{Append: []memory.Message{m, r}}, nil
		})
	}
	update(t, ctx, s, a, func(view memory.AgentView) (memory.Change, error) {
		for _, turn := range []int64{0, 1, 50, 60, 90, 103, 104, 105, 118, turns - 1} {
			list, err := view.Turn(turn)
			if err != nil {
				t.Error(err)
			}
			wantSame(t, fmt.Sprint("turn ", turn), contents(list), []string{fmt.Sprint("u", turn), fmt.Sprint("a", turn)})
			m, err := view.Seq(2*turn + 1)
			if err != nil || m.TurnID != turn || m.Role != memory.User {
				t.Errorf("seq %d: %+v, %v", 2*turn+1, m, err)
			}
		}
		for _, n := range []int{1, 10, 63, 64, 65, 100, 2 * turns, 2*turns + 1} {
			list, err := view.Last(n)
			if err != nil {
				return memory.Change{}, err
			}
			if len(list) != min(n, 2*turns) || list[len(list)-1].Seq != 2*turns || list[0].Seq != int64(2*turns-len(list)+1) {
				t.Errorf("last %d: %d messages from %d", n, len(list), list[0].Seq)
			}
		}
		return memory.Change{}, nil
	})
}
