package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// newService makes a service on a store in memory, with ids that count up.
func newService(t testing.TB, edit func(*agents.Config)) *agents.Service {
	var n atomic.Int64
	c := agents.Config{
		Now:   time.Now,
		NewID: func() string { return fmt.Sprintf("agent-%04d", n.Add(1)) },
	}
	if edit != nil {
		edit(&c)
	}
	if c.Ledger == nil {
		c.Ledger = storetest.New(t)
	}
	return agents.NewService(c)
}

func join(t *testing.T, s *agents.Service, edit func(*memory.Settings)) memory.Agent {
	t.Helper()
	r := agents.JoinRequest{Project: "p", Name: t.Name(), Properties: []byte("{}")}
	if edit != nil {
		edit(&r.Settings)
	}
	a, err := s.Agents.Join(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func user(text string) memory.Message {
	return memory.Message{Role: memory.User, Source: memory.SourceASR, Content: text}
}

func llm(text string) memory.Message {
	return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: text, Method: memory.AssumedFull}
}

func turnIDs(msgs []memory.Message) []int64 {
	out := []int64{}
	for _, m := range msgs {
		out = append(out, m.TurnID)
	}
	return out
}

func TestTurnNumbers(t *testing.T) {
	t.Parallel()
	given := func(turn int64, m memory.Message) memory.Message {
		m.TurnID, m.GivenTurn = turn, true
		return m
	}
	speak := memory.Message{Role: memory.Assistant, Source: memory.SourceCommand, Content: "s"}
	tool := memory.Message{Role: memory.Tool, ToolCallID: "c", Content: "t"}
	calls := memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: json.RawMessage(`[{}]`)}
	for _, tt := range []struct {
		name string
		in   []memory.Message
		want []int64
	}{
		{"question and answer", []memory.Message{user("a"), llm("b"), user("c"), llm("d")}, []int64{0, 0, 1, 1}},
		{"unanswered users share a turn", []memory.Message{user("a"), user("b"), llm("c"), user("d")}, []int64{0, 0, 0, 1}},
		{"speak has its own", []memory.Message{speak, speak, user("a"), llm("b"), speak}, []int64{0, 1, 2, 2, 3}},
		{"a user after speak opens one", []memory.Message{user("a"), speak, user("b")}, []int64{0, 1, 2}},
		{"tools stay in the turn", []memory.Message{user("a"), calls, tool, llm("b"), user("c")}, []int64{0, 0, 0, 0, 1}},
		{"given numbers are kept and may skip", []memory.Message{given(7, user("a")), llm("b"), given(9, user("c")), llm("d")}, []int64{7, 7, 9, 9}},
		{"an unsolicited answer", []memory.Message{llm("a"), user("b"), llm("c")}, []int64{0, 1, 1}},
		{"two answers in a row", []memory.Message{user("a"), llm("b"), llm("c"), user("d")}, []int64{0, 0, 0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, batch := range []bool{true, false} {
				s := newService(t, nil)
				a := join(t, s, nil)
				var got []memory.Message
				if batch {
					out, err := s.Messages.Append(t.Context(), "p", a.ID, tt.in)
					if err != nil {
						t.Fatal(err)
					}
					got = out.Messages
				} else {
					for _, m := range tt.in {
						out, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{m})
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, out.Messages...)
					}
				}
				if diff := cmp.Diff(tt.want, turnIDs(got)); diff != "" {
					t.Errorf("batch %v: turns differ (-want +got):\n%s", batch, diff)
				}
			}
		})
	}
}

func TestTurnNumbersNeverGoDown(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	m := user("a")
	m.TurnID, m.GivenTurn = 5, true
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{m}); err != nil {
		t.Fatal(err)
	}
	m.TurnID = 4
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("ok"), m}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("error %v, want invalid", err)
	}
	if _, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 10); len(msgs) != 1 {
		t.Errorf("%d messages stored, want 1: a refused batch stores nothing", len(msgs))
	}
}

// plan appends what it is given.
func plan(msgs ...memory.Message) func(memory.Head, []memory.Message) (agents.Plan, error) {
	return func(memory.Head, []memory.Message) (agents.Plan, error) { return agents.Plan{Append: msgs}, nil }
}

func begin(t *testing.T, s *agents.Service, id string, cut func(error), msgs ...memory.Message) *agents.Turn {
	t.Helper()
	if cut == nil {
		cut = func(error) {}
	}
	turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{Plan: plan(msgs...), Cut: cut})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func settle(t *testing.T, s *agents.Service, turn *agents.Turn, a agents.Answer) memory.Message {
	t.Helper()
	m, err := s.Turns.Settle(t.Context(), turn, a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A late answer stands behind its question, whatever came meanwhile.
func TestLateAnswerKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	first := begin(t, s, a.ID, nil, user("one"))
	second := begin(t, s, a.ID, nil, user("two"))
	settle(t, s, second, agents.Answer{Generated: "two!", Sent: "two!", Complete: true})
	settle(t, s, first, agents.Answer{Generated: "one!", Sent: "one!", Complete: true})
	_, msgs, err := s.Messages.History(t.Context(), "p", a.ID, 32)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range msgs {
		texts = append(texts, fmt.Sprintf("%d %s", m.TurnID, m.Content))
	}
	if diff := cmp.Diff([]string{"0 one", "0 one!", "1 two", "1 two!"}, texts); diff != "" {
		t.Error(diff)
	}
}

func TestEmptyAnswerLeavesTheTurnOpen(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	settle(t, s, begin(t, s, a.ID, nil, user("one")), agents.Answer{Complete: true})
	turn := begin(t, s, a.ID, nil, user("two"))
	if turn.TurnID != 0 {
		t.Errorf("turn %d, want 0", turn.TurnID)
	}
	if len(turn.Context) != 2 {
		t.Errorf("context has %d messages, want both questions and no empty answer", len(turn.Context))
	}
	settle(t, s, turn, agents.Answer{Generated: "x", Sent: "x", Complete: true})
}

// A second call for the same turn replaces the first: one turn, one answer, and the ghost stays in
// the ledger.
func TestGhost(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	var cause error
	ghost := begin(t, s, a.ID, func(err error) { cause = err }, user("hello"))
	again := begin(t, s, a.ID, nil)
	if !errors.Is(cause, agents.ErrSuperseded) {
		t.Fatalf("the first answer was cut by %v, want %v", cause, agents.ErrSuperseded)
	}
	settle(t, s, ghost, agents.Answer{Generated: "gho", Sent: "gh", Err: cause})
	settle(t, s, again, agents.Answer{Generated: "hi", Sent: "hi", Complete: true})
	_, shown, _ := s.Messages.History(t.Context(), "p", a.ID, 32)
	if len(shown) != 2 || shown[1].Content != "hi" {
		t.Errorf("history %+v, want the question and one answer", shown)
	}
	_, all, _ := s.Messages.Recent(t.Context(), "p", a.ID, 32)
	found := false
	for _, m := range all {
		found = found || m.State == memory.Superseded && m.Original() == "gho"
	}
	if !found {
		t.Error("the ghost is not in the ledger")
	}
}

func TestInterruptInFlight(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	cut := make(chan error, 1)
	turn := begin(t, s, a.ID, func(err error) { cut <- err }, user("tell me"))
	go func() {
		err := <-cut
		_, _ = s.Turns.Settle(context.Background(), turn, agents.Answer{Generated: "once upon a time", Sent: "once upon", Err: err})
	}()
	if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{}); err != nil {
		t.Fatal(err)
	}
	_, msgs, _ := s.Messages.History(t.Context(), "p", a.ID, 32)
	got := msgs[len(msgs)-1]
	if got.Content != "once upon" || !got.Interrupted || got.Original() != "once upon a time" || got.InterruptBy != memory.ByAPIInterrupt {
		t.Errorf("stored %+v", got)
	}
}

// Any order of the same evidence gives the same record, and none of it loses what was generated.
func TestEvidenceOrder(t *testing.T) {
	t.Parallel()
	const whole = "The train leaves at nine from platform two, and it is on time."
	at := func(ms int64) int64 { return 1_780_000_000_000 + ms }
	text := func(s string) *string { return &s }
	ms := func(n int64) *int64 { return &n }
	evidence := []agents.InterruptRequest{
		{AtMS: at(1)},
		{HeardMS: ms(900), AtMS: at(2)},
		{HeardMS: ms(1500), AtMS: at(3)},
		{Heard: text("the train leaves at"), AtMS: at(4)},
		{Heard: text("The train leaves at nine"), AtMS: at(4)},
		{Heard: text("the train")},
	}
	record := func(order []int) memory.Message {
		s := newService(t, nil)
		a := join(t, s, nil)
		if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("when?"), llm(whole)}); err != nil {
			t.Fatal(err)
		}
		for _, i := range order {
			if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, evidence[i]); err != nil {
				t.Fatal(err)
			}
		}
		_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 1)
		m := msgs[0]
		m.Rev, m.Timestamp = 0, 0
		m.Marks.Cut, m.Marks.Heard = 0, 0                    // revisions, too
		m.Amend(func(r *memory.Details) { r.Earlier = nil }) // what was replaced depends on the order
		if m.EvidenceMS == 0 {
			m.InterruptMS = 0 // the time of the call
		}
		return m
	}
	for _, set := range [][]int{{0, 1}, {1, 2}, {0, 2, 3}, {3, 4}, {0, 1, 2, 3, 4}} {
		want := record(set)
		if want.Original() != whole {
			t.Errorf("set %v: generated text became %q", set, want.Original())
		}
		for range 20 {
			order := append([]int(nil), set...)
			order = append(order, set[rand.IntN(len(set))]) // and repetition
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			if diff := cmp.Diff(want, record(order)); diff != "" {
				t.Fatalf("order %v of %v gives another record:\n%s", order, set, diff)
			}
		}
	}
}

// run runs the service's timers until the test ends.
func run(t *testing.T, s *agents.Service) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Agents.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
}

func TestTimers(t *testing.T) {
	t.Parallel()
	status := func(t *testing.T, s *agents.Service, id string) memory.Agent {
		synctest.Wait()
		a, err := s.Agents.Agent(t.Context(), "p", id)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 10 })
			time.Sleep(9 * time.Second) // fake time
			s.Messages.Touch("p", a.ID)
			time.Sleep(9 * time.Second)
			if got := status(t, s, a.ID); got.Status != memory.Running {
				t.Errorf("%s after a touch, want RUNNING", got.Status)
			}
			time.Sleep(2 * time.Second)
			if got := status(t, s, a.ID); got.Status != memory.Stopped || got.Message != memory.EndIdle {
				t.Errorf("%s %q, want STOPPED, idle", got.Status, got.Message)
			}
		})
	})
	t.Run("an answer in flight is activity", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 10 })
			turn := begin(t, s, a.ID, nil, user("long"))
			time.Sleep(time.Minute) // fake time
			if got := status(t, s, a.ID); got.Status != memory.Running {
				t.Errorf("%s while answering, want RUNNING", got.Status)
			}
			settle(t, s, turn, agents.Answer{Generated: "x", Sent: "x", Complete: true})
			time.Sleep(11 * time.Second) // fake time
			if got := status(t, s, a.ID); got.Status != memory.Stopped {
				t.Errorf("%s, want STOPPED", got.Status)
			}
		})
	})
	t.Run("lifetime", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, nil)
			time.Sleep(memory.Lifetime - time.Second)
			if got := status(t, s, a.ID); got.Status != memory.Running {
				t.Errorf("%s, want RUNNING: idle_timeout 0 means the cap alone", got.Status)
			}
			time.Sleep(2 * time.Second)
			if got := status(t, s, a.ID); got.Message != memory.EndLifetime {
				t.Errorf("%s %q, want the lifetime's message", got.Status, got.Message)
			}
		})
	})
	t.Run("silence speaks once each silence", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) {
				x.Silence = memory.Silence{TimeoutMS: 1000, Action: "speak", Content: "still there, {{who}}?"}
				x.LLM.Variables = map[string]string{"who": "Ann"}
			})
			said := func() int {
				synctest.Wait()
				_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 100)
				n := 0
				for _, m := range msgs {
					if m.Source == memory.SourceSilence {
						n++
						if m.Content != "still there, Ann?" {
							t.Errorf("said %q", m.Content)
						}
					}
				}
				return n
			}
			time.Sleep(5 * time.Second)
			if n := said(); n != 1 {
				t.Errorf("said %d times in one silence, want 1", n)
			}
			if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("yes"), llm("good")}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if n := said(); n != 2 {
				t.Errorf("said %d times in two silences, want 2", n)
			}
		})
	})
	t.Run("silence thinks once each silence", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			thoughts := 0
			var s *agents.Service
			s = newService(t, func(c *agents.Config) {
				c.Think = func(_ context.Context, _, id, text string) error {
					thoughts++
					m := memory.Message{Role: memory.User, Source: memory.SourceSilence, Content: text}
					settle(t, s, begin(t, s, id, nil, m), agents.Answer{Generated: "hm", Sent: "hm", Complete: true})
					return nil
				}
			})
			run(t, s)
			join(t, s, func(x *memory.Settings) {
				x.Silence = memory.Silence{TimeoutMS: 1000, Action: "think", Content: "say something"}
			})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if thoughts != 1 {
				t.Errorf("thought %d times in one silence, want 1", thoughts)
			}
		})
	})
	t.Run("delayed greeting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) { x.LLM.Greeting, x.LLM.GreetingDelay = "hello", 500 })
			if _, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 1); len(msgs) != 0 {
				t.Errorf("said %q at once", msgs[0].Content)
			}
			time.Sleep(600 * time.Millisecond)
			synctest.Wait()
			_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 10)
			if len(msgs) != 1 || msgs[0].Source != memory.SourceGreeting || msgs[0].TurnID != 0 {
				t.Errorf("messages %+v, want one greeting in turn 0", msgs)
			}
		})
	})
	t.Run("leave with a farewell waits for the answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) { x.Farewell = memory.Farewell{Graceful: true, TimeoutS: 30} })
			turn := begin(t, s, a.ID, nil, user("bye"))
			if err := s.Agents.Leave(t.Context(), "p", a.ID, "k-1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if got := status(t, s, a.ID); got.Status != memory.Idle {
				t.Errorf("%s during the farewell, want IDLE", got.Status)
			}
			for _, key := range []string{"", "k-2"} {
				if err := s.Agents.Leave(t.Context(), "p", a.ID, key); !fault.Is(err, fault.NotFound) {
					t.Errorf("a second leave with key %q: %v, want not found", key, err)
				}
			}
			if err := s.Agents.Leave(t.Context(), "p", a.ID, "k-1"); err != nil {
				t.Errorf("the same leave again during the farewell: %v", err)
			}
			settle(t, s, turn, agents.Answer{Generated: "good bye", Sent: "good bye", Complete: true})
			if got := status(t, s, a.ID); got.Status != memory.Stopped || got.Message != memory.EndOK {
				t.Errorf("%s %q, want STOPPED OK", got.Status, got.Message)
			}
			if err := s.Agents.Leave(t.Context(), "p", a.ID, "k-1"); err != nil {
				t.Errorf("the same leave again after the end: %v", err)
			}
		})
	})
	t.Run("leave cuts the answer in flight and keeps it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, nil)
			cut := make(chan error, 1)
			turn := begin(t, s, a.ID, func(err error) { cut <- err }, user("go on"))
			if err := s.Agents.Leave(t.Context(), "p", a.ID, ""); err != nil {
				t.Fatal(err)
			}
			settle(t, s, turn, agents.Answer{Generated: "a b c", Sent: "a b", Err: <-cut})
			if got := status(t, s, a.ID); got.Status != memory.Stopped {
				t.Fatalf("%s, want STOPPED", got.Status)
			}
			_, msgs, _ := s.Messages.History(t.Context(), "p", a.ID, 10)
			if m := msgs[len(msgs)-1]; m.Content != "a b" || m.InterruptBy != memory.ByAPILeave {
				t.Errorf("last message %+v, want the cut answer", m)
			}
		})
	})
}
