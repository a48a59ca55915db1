package agents_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestOpenEnd: event 103 says why it lacks the answer that was asked for last, and says nothing
// where it has it.
func TestOpenEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, o *outbox, s *agents.Service, id string) *agents.Service
		want string
	}{
		{"nothing was asked", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			if _, err := s.Messages.Append(t.Context(), "p", id, []memory.Message{user("a")}); err != nil {
				t.Fatal(err)
			}
			return s
		}, `103 1 "a"`},
		{"answered", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Generated: "b", Sent: "b", Complete: true})
			return s
		}, `103 1 "a" 2 "b"`},
		{"cut within", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Generated: "b c", Sent: "b", Err: agents.ErrLeave})
			return s
		}, `103 1 "a" 2 "b"`},
		{"cut before its first word", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Err: agents.ErrLeave})
			return s
		}, `103 1 "a" turn 0 answer_cut`},
		{"failed", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Failure: &memory.Failure{Reason: "LLM_REQUEST_ERR", Code: 503}})
			return s
		}, `103 1 "a" turn 0 answer_failed`},
		{"empty", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Complete: true})
			return s
		}, `103 1 "a" turn 0 answer_empty`},
		{"a tool's result never came", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			settle(t, s, begin(t, s, id, nil, user("a")), agents.Answer{Complete: true, ToolCalls: []byte(`[{"id":"c"}]`)})
			return s
		}, `103 1 "a" turn 0 answer_tool`},
		{"still running when the wait for it is over", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			begin(t, s, id, nil, user("a")) // its cut is never heeded
			return s
		}, `103 1 "a" turn 0 answer_running`},
		{"still running, and something was said behind it", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			begin(t, s, id, nil, user("a"))
			if _, err := s.Messages.Append(t.Context(), "p", id, []memory.Message{user("b")}); err != nil {
				t.Fatal(err)
			}
			return s
		}, `103 1 "a" 3 "b" turn 0 answer_running`},
		{"lost with its process", func(t *testing.T, o *outbox, s *agents.Service, id string) *agents.Service {
			begin(t, s, id, nil, user("a"))
			return o.service(t)
		}, `103 1 "a" turn 0 answer_lost`},
		{"lost long ago", func(t *testing.T, o *outbox, s *agents.Service, id string) *agents.Service {
			begin(t, s, id, nil, user("a"))
			s = o.service(t)
			if _, err := s.Messages.Append(t.Context(), "p", id, []memory.Message{user("b"), llm("c")}); err != nil {
				t.Fatal(err)
			}
			return s
		}, `103 1 "a" 3 "b" 4 "c"`},
		{"the second of two answers to one question", func(t *testing.T, _ *outbox, s *agents.Service, id string) *agents.Service {
			first := begin(t, s, id, nil, user("a"))
			settle(t, s, begin(t, s, id, nil), agents.Answer{Generated: "b", Sent: "b", Complete: true})
			settle(t, s, first, agents.Answer{Err: agents.ErrSuperseded})
			return s
		}, `103 1 "a" 3 "b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newOutbox(t, event.History)
			s := o.service(t)
			a := join(t, s, nil)
			s = tt.do(t, o, s, a.ID)
			if err := s.Agents.End(t.Context(), "p", a.ID, memory.EndOK); err != nil {
				t.Fatal(err)
			}
			o.told(t, tt.want)
		})
	}
}

// TestOpenEndOfStates: an answer that nobody heard is in no history, whatever was sent of it; of a
// ghost nothing is missing, since another answer stands for it.
func TestOpenEndOfStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[memory.State]memory.OpenEnd{
		memory.Unplayed:   {TurnID: 7, Reason: memory.AnswerUnheard},
		memory.Replaced:   {TurnID: 7, Reason: memory.AnswerUnheard},
		memory.Superseded: {},
		memory.Final:      {},
	} {
		asked, answer := user("a"), llm("b")
		asked.Seq, asked.AnswerSeq, asked.TurnID = 1, 2, 7
		answer.Seq, answer.State, answer.TurnID = 2, state, 7
		if got := memory.EndOf([]memory.Message{asked, answer}, func(int64) bool { return false }); got != want {
			t.Errorf("%s: %+v, want %+v", state, got, want)
		}
	}
}
