package agents_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/turns"
)

// happening is something that can happen to an answer once it is stored.
type happening struct {
	memory.Evidence
	ghost bool
}

// someEvidence gives evidence of an answer, at random.
func someEvidence(rnd *rand.Rand, whole string) happening {
	words := strings.Fields(whole)
	e := memory.Evidence{Confidence: int64(rnd.IntN(3)) * 40}
	e.Method = []memory.Method{memory.VendorText, memory.WordTimes, memory.AudioMS, memory.EchoDiff, memory.EchoDiff, memory.EchoDiff, memory.DisconnectOnly, memory.AssumedFull}[rnd.IntN(8)]
	if rnd.IntN(2) == 0 {
		e.AtMS = 1_780_000_000_000 + int64(rnd.IntN(4))
	}
	if rnd.IntN(2) == 0 {
		e.By = []string{memory.ByAPIInterrupt, memory.ByAPISpeak, memory.ByStartOfSpeech}[rnd.IntN(3)]
	}
	switch rnd.IntN(6) {
	case 0:
		e.Full = true
	case 1:
		if e.Method == memory.EchoDiff {
			e.State = []memory.State{memory.Unplayed, memory.Replaced}[rnd.IntN(2)]
		}
	case 2:
		return happening{ghost: true}
	default:
		e.Heard = strings.ToLower(strings.Join(words[:rnd.IntN(len(words)+1)], " "))
	}
	return happening{Evidence: e}
}

// TestAnyEvidenceInAnyOrder: whatever is told of an answer, and however often, gives the same
// record in each order, and nothing that was generated is lost.
func TestAnyEvidenceInAnyOrder(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	const whole = "The train leaves at nine from platform two, and it is on time."
	answers := []agents.Answer{
		{Generated: whole, Sent: whole, Complete: true},
		{Generated: whole, Sent: "The train leaves at nine", Err: agents.ErrClientGone},
		{Generated: whole, Sent: "The train leaves at nine", Complete: true, Err: agents.ErrInterrupted},
		{Generated: whole, Sent: "The train leaves", Err: errors.New("the upstream broke")},
		{Generated: whole, Sent: "The train", Err: agents.ErrSuperseded},
	}
	s := newService(t, func(c *agents.Config) { c.Now = func() time.Time { return time.UnixMilli(1_780_000_001_000) } })
	record := func(a agents.Answer, events []happening) memory.Message {
		id := join(t, s, nil).ID
		defer func() {
			if err := s.Agents.Leave(t.Context(), "p", id, ""); err != nil {
				t.Error(err)
			}
		}()
		seq := settle(t, s, begin(t, s, id, nil, user("when?")), a).Seq
		for _, h := range events {
			p := agents.Plan{}
			if h.ghost {
				p.Supersede = []int64{seq}
			} else {
				h.Seq = seq
				p.Evidence = []memory.Evidence{h.Evidence}
			}
			turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
				Plan: func(memory.Head, []memory.Message) (agents.Plan, error) { return p, nil }, Cut: func(error) {},
			})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			settle(t, s, turn, agents.Answer{Err: agents.ErrClientGone})
		}
		_, msgs, err := s.Messages.Recent(t.Context(), "p", id, 100)
		if err != nil {
			t.Fatal(err)
		}
		m := msgs[1]
		if m.Seq != seq || m.Original() != whole {
			t.Fatalf("seed %d: what was generated became %q", seed, m.Original())
		}
		m.Rev, m.Marks, m.AnswerSeq = 0, memory.Marks{}, 0
		// What a counter has counted so far: it never goes down.
		m.Amend(func(r *memory.Details) { r.UnheardTokens = 0 })
		m.Amend(func(r *memory.Details) { r.Earlier = nil }) // what was replaced depends on the order
		return m
	}
	for range 300 {
		a := answers[rnd.IntN(len(answers))]
		events := make([]happening, 1+rnd.IntN(5))
		for i := range events {
			events[i] = someEvidence(rnd, whole)
		}
		want := record(a, events)
		if (want.State == memory.Unplayed || want.State == memory.Replaced || want.State == memory.Superseded) && (want.InHistory() || want.InContext()) {
			t.Fatalf("seed %d: %s stands in history or context", seed, want.State)
		}
		for range 6 {
			again := append(append([]happening(nil), events...), events[rnd.IntN(len(events))])
			rnd.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
			if diff := cmp.Diff(want, record(a, again)); diff != "" {
				t.Fatalf("seed %d: %+v: another order, %v instead of %v, gives another record:\n%s", seed, a, again, events, diff)
			}
		}
	}
}

// TestCauseSeen: what we saw cut an answer stays its cause, whoever tells later what was heard of
// it; a cause that is told counts more than none.
func TestCauseSeen(t *testing.T) {
	t.Parallel()
	const whole = "one two three"
	told := memory.Evidence{Method: memory.VendorText, Heard: "one", By: memory.ByAPIInterrupt}
	for _, tt := range []struct {
		answer agents.Answer
		by     string
	}{
		{agents.Answer{Generated: whole, Sent: "one two", Err: agents.ErrClientGone}, memory.ByStartOfSpeech},
		{agents.Answer{Generated: whole, Sent: whole, Complete: true}, memory.ByAPIInterrupt},
	} {
		s := newService(t, nil)
		id := join(t, s, nil).ID
		seq := settle(t, s, begin(t, s, id, nil, user("when?")), tt.answer).Seq
		echo := memory.Evidence{Seq: seq, Method: memory.EchoDiff, Heard: "one two"}
		told.Seq = seq
		turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
			Plan: func(memory.Head, []memory.Message) (agents.Plan, error) {
				return agents.Plan{Evidence: []memory.Evidence{echo, told}}, nil
			}, Cut: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		settle(t, s, turn, agents.Answer{Err: agents.ErrClientGone})
		_, msgs, err := s.Messages.Recent(t.Context(), "p", id, 10)
		if err != nil {
			t.Fatal(err)
		}
		if m := msgs[1]; m.InterruptBy != tt.by || m.Content != "one" || m.SentText() != tt.answer.Sent {
			t.Errorf("cut by %s, want %s; %q heard and %q sent", m.InterruptBy, tt.by, m.Content, m.SentText())
		}
	}
}

// TestUnplayedTurns: an answer that nobody heard closes its turn, whether that is known before the
// next words come or after them.
func TestUnplayedTurns(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		s := newService(t, nil)
		id := join(t, s, nil).ID
		seq := settle(t, s, begin(t, s, id, nil, user("one")), agents.Answer{Generated: "first", Sent: "first", Complete: true}).Seq
		unplayed := []memory.Evidence{{Seq: seq, Method: memory.EchoDiff, State: memory.Unplayed}}
		plans := []agents.Plan{{Evidence: unplayed, Append: []memory.Message{user("two")}}}
		if late {
			plans = []agents.Plan{{Append: []memory.Message{user("two")}}, {Evidence: unplayed}}
		}
		for _, p := range plans {
			turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{Plan: func(memory.Head, []memory.Message) (agents.Plan, error) { return p, nil }, Cut: func(error) {}})
			if err != nil {
				t.Fatal(err)
			}
			settle(t, s, turn, agents.Answer{Generated: "second", Sent: "second", Complete: true})
		}
		_, msgs, err := s.Messages.Recent(t.Context(), "p", id, 10)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range msgs[:4] {
			got = append(got, fmt.Sprintf("%d %s%s", m.TurnID, m.Original(), m.State))
		}
		if diff := cmp.Diff([]string{"0 one", "0 firstunplayed", "1 two", "1 second"}, got); diff != "" {
			t.Errorf("late %v:\n%s", late, diff)
		}
		rows := turns.Of(msgs)
		if len(rows) != 2 || rows[0].EndType != turns.EndInterrupted {
			t.Errorf("late %v: turn table %+v", late, rows)
		}
	}
}
