package agents_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// tally counts what the service reports.
type tally struct{ unheard atomic.Int64 }

func (*tally) Appended(int)       {}
func (*tally) Interrupted(string) {}
func (*tally) Ghost()             {}

func (o *tally) Unheard(n int64) { o.unheard.Add(n) }

// Unheard tokens are counted once, however often and in whatever order evidence comes.
func TestUnheardTokens(t *testing.T) {
	t.Parallel()
	const said = "One two three four five six seven eight." // 40 characters
	usage := json.RawMessage(`{"prompt_tokens":9,"completion_tokens":30,"completion_tokens_details":{"reasoning_tokens":10}}`)
	heard := func(s string) agents.InterruptRequest { return agents.InterruptRequest{Heard: &s} }
	at := func(s string, ms int64) agents.InterruptRequest { return agents.InterruptRequest{Heard: &s, AtMS: ms} }
	for name, tt := range map[string]struct {
		answer agents.Answer
		after  []agents.InterruptRequest
		want   []int64 // after the answer, and after each piece of evidence
	}{
		"heard in full":           {agents.Answer{Generated: said, Sent: said, Complete: true}, nil, []int64{0}},
		"estimated":               {agents.Answer{Generated: said, Sent: said, Complete: true}, []agents.InterruptRequest{heard("One two three four f")}, []int64{0, 5}},
		"the upstream's count":    {agents.Answer{Generated: said, Sent: said, Complete: true, Usage: usage}, []agents.InterruptRequest{heard("One two three four f")}, []int64{0, 10}},
		"with a tool call":        {agents.Answer{Generated: said, Sent: said, Complete: true, Usage: usage, ToolCalls: json.RawMessage(`[{}]`)}, []agents.InterruptRequest{heard("One two three four f")}, []int64{0, 5}},
		"the same again":          {agents.Answer{Generated: said, Sent: said, Complete: true}, []agents.InterruptRequest{at("One two", 5000), at("One two", 5000), at("One two", 6000)}, []int64{0, 8, 8, 8}},
		"more, then less":         {agents.Answer{Generated: said, Sent: said, Complete: true}, []agents.InterruptRequest{at("One two three four f", 5000), at("One", 6000), at("One two three four f", 7000)}, []int64{0, 5, 9, 9}},
		"never sent":              {agents.Answer{Generated: said, Sent: said[:20], Err: agents.ErrClientGone}, nil, []int64{5}},
		"never sent, then cut":    {agents.Answer{Generated: said, Sent: said[:20], Err: agents.ErrClientGone}, []agents.InterruptRequest{heard("One")}, []int64{5, 9}},
		"replaced":                {agents.Answer{Generated: said, Sent: said, Err: agents.ErrSuperseded}, nil, []int64{10}},
		"an upstream that boasts": {agents.Answer{Generated: said, Sent: said[:20], Err: agents.ErrClientGone, Usage: json.RawMessage(`{"completion_tokens":99999999999999}`)}, nil, []int64{5}},
		"an apology":              {agents.Answer{Generated: "One", Sent: "One", FailureText: " Sorry."}, nil, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o tally
			s := newService(t, func(c *agents.Config) { c.Observe = &o })
			a := join(t, s, nil)
			turn, err := s.Turns.Begin(t.Context(), "p", a.ID, agents.TurnRequest{
				Plan: func(memory.Head, []memory.Message) (agents.Plan, error) {
					return agents.Plan{Append: []memory.Message{user("Count.")}}, nil
				},
				Cut: func(error) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			tt.answer.Timings = memory.Timings{StartMS: time.Now().UnixMilli()}
			if _, err := s.Turns.Settle(t.Context(), turn, tt.answer); err != nil {
				t.Fatal(err)
			}
			got := []int64{o.unheard.Load()}
			for _, r := range tt.after {
				r.TurnID = &turn.TurnID
				if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, r); err != nil {
					t.Fatal(err)
				}
				got = append(got, o.unheard.Load())
			}
			for i, n := range got {
				if n != tt.want[i] {
					t.Errorf("after step %d %d are counted, want %d in all: %v", i, n, tt.want[i], got)
				}
			}
		})
	}
}

// What a drain brings behind the cut was never heard; messages of others are not ours to count.
func TestUnheardTokensOfOthers(t *testing.T) {
	t.Parallel()
	var o tally
	s := newService(t, func(c *agents.Config) { c.Observe = &o })
	a := join(t, s, nil)
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("a"), llm(strings.Repeat("said elsewhere ", 10))}); err != nil {
		t.Fatal(err)
	}
	none := ""
	if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{Heard: &none}); err != nil {
		t.Fatal(err)
	}
	if n := o.unheard.Load(); n != 0 {
		t.Errorf("%d tokens of an answer that we did not make are counted", n)
	}
	turn, err := s.Turns.Begin(t.Context(), "p", a.ID, agents.TurnRequest{
		Plan: func(memory.Head, []memory.Message) (agents.Plan, error) {
			return agents.Plan{Append: []memory.Message{user("b")}}, nil
		},
		Cut: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turns.Settle(t.Context(), turn, agents.Answer{Generated: "12345678", Sent: "12345678", Err: agents.ErrClientGone}); err != nil {
		t.Fatal(err)
	}
	if err := s.Turns.Complete(t.Context(), turn, "1234567890123456"); err != nil {
		t.Fatal(err)
	}
	if n := o.unheard.Load(); n != 2 {
		t.Errorf("%d tokens are counted of 8 characters that came after the cut, want 2", n)
	}
}
