package agents

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// settleTimeout limits the storing of an answer after its client has gone.
const settleTimeout = 30 * time.Second

// errElsewhere is returned if another process may be answering the turn.
var errElsewhere = errors.New("perhaps being answered by another process")

// firstTranscript is the key of a user message's metadata with the text that came first.
const firstTranscript = "first_transcript"

// Progress marks the phase of the open answer.
func (s *Turns) Progress(t *Turn, p memory.Phase) {
	if o := t.answer; o.phase.Swap(int32(p)) != int32(p) {
		o.agent.mu.Lock()
		o.agent.wakeFollowers()
		o.agent.mu.Unlock()
	}
}

// Settle stores the answer and ends it.
func (s *Turns) Settle(ctx context.Context, t *Turn, a Answer) (memory.Message, error) {
	defer s.endAnswer(t.Agent.Ref(), t.answer)
	if err := s.Durable(t); err != nil { // there is no question to this answer
		return memory.Message{}, err
	}
	ctx, stop := context.WithTimeout(Withholding(context.WithoutCancel(ctx)), settleTimeout)
	defer stop()
	now := s.messages.NowMS()
	out := a.message(now)
	out.Seq, out.TurnID, out.TurnHasUser = t.AnswerSeq, t.TurnID, !t.Unsolicited
	if t.Greeting && out.Source == memory.SourceLLM {
		out.Source = memory.SourceGreeting
	}
	// Not within the decision, which holds up all other writes of the server.
	out = t.answer.amended(out, now)
	whole, failure := out, a.Failure
	_, err := s.updateTurn(ctx, t.Agent.Ref(), func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		// The next decision sees the answer in the ledger, even before it is closed.
		t.answer.inLedger.Store(true)
		// This includes an agent that has ended: its ledger must have what was said.
		out.Rev = h.Rev + 1
		if out.Seq = t.AnswerSeq; out.Seq == 0 {
			out.Seq = h.NextSeq
		}
		out.Opens = t.Unsolicited && t.TurnID > h.LastTurn
		if t.paused || s.messages.paused(h.Agent) {
			out = withoutTexts(out)
			failure = withoutText(failure)
		}
		if t := out.Made().Request; t != nil {
			if ok, err := stands(view, t); err != nil {
				return memory.Change{}, err
			} else if !ok {
				out.DropRequest()
			} else if err := refer(view, &out); err != nil {
				return memory.Change{}, err
			}
		}
		m := out
		c := memory.Change{Append: []memory.Message{m}}
		if a.Failure != nil {
			ev, err := s.messages.event(h.Agent, event.Error, m.Rev, 0, now, EventFacts{TurnID: t.TurnID, Failure: failure})
			if err != nil {
				return memory.Change{}, err
			}
			c.Events = ev
		}
		if !s.policies.differsFor(h.Agent, nil) {
			return c, nil
		}
		return c, s.messages.cutBehind(view, &c)
	}, t.answer, false)
	if err == nil {
		t.AnswerSeq = out.Seq
		s.amendOthers(ctx, t.answer, &whole)
	}
	if err == nil && out.State == memory.Superseded && !a.Repeats {
		s.cfg.Observe.Ghost()
	}
	return out, err
}

// stands reports whether no message of a record was removed since the record was made, nor words of
// one replaced, nor the record dropped that it repeats parts of.
func stands(view memory.AgentView, t *memory.Request) (bool, error) {
	if view.Head().Rev <= t.Rev {
		return true, nil
	}
	for _, seq := range append(t.Own(), t.Of) {
		if seq == 0 {
			continue
		}
		m, err := view.Seq(seq)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
		if err != nil || m.State == memory.Removed || m.Rev > t.Rev && redact.Masks(m.Content) && !t.Quotes(&m) || seq == t.Of && m.Made().Request == nil {
			return false, nil
		}
	}
	return true, nil
}

// refer leaves the words of a record that the ledger has to the ledger.
func refer(view memory.AgentView, m *memory.Message) error {
	last, err := view.Last(memory.Referable)
	if err != nil {
		return err
	}
	t := *m.Made().Request
	t.Refer(func(seq int64) *memory.Message { return memory.FindSeq(last, seq) })
	m.Amend(func(d *memory.Details) { d.Request = &t })
	return nil
}

// message returns the answer as a message of the ledger.
func (a Answer) message(now int64) memory.Message {
	t := a.Timings
	m := memory.Message{
		Role: memory.Assistant, Source: memory.SourceLLM, Content: a.Sent, ToolCalls: a.ToolCalls, FinishRsn: a.FinishRsn, Usage: a.Usage,
		UpstreamID: a.UpstreamID, Failure: a.Failure, Method: memory.AssumedFull, Timestamp: now, Timings: &t, CutGenerated: !a.Complete,
	}
	m.Amend(func(r *memory.Details) {
		r.Upstream, r.Model, r.Cost, r.Filler, r.WithThoughts, r.Request = a.Upstream, a.Model, a.Cost, a.Filler, a.WithThoughts, a.Request
		r.Members, r.Origin = a.Members, a.Origin
		if len(a.Recalled) > 0 {
			r.Recalled = a.Recalled
		}
	})
	if t.StartMS > 0 && t.FirstTokenMS > 0 {
		m.Timestamp = t.StartMS + t.FirstTokenMS
	}
	by, cut := causes[rootCause(a.Err)]
	switch {
	case a.FailureText != "":
		m.Content, m.Source = a.Sent+a.FailureText, memory.SourceLLMFailure
		m.Generated, m.CutGenerated = "", false
		if a.Generated != "" {
			m.Generated, m.CutGenerated = a.Generated, true
		}
	case a.Err == nil:
		m.Content = a.Generated
	case errors.Is(a.Err, ErrSuperseded):
		m.State, m.Method = memory.Superseded, memory.DisconnectOnly
	case cut:
		m.Interrupted, m.InterruptMS, m.InterruptBy, m.Method = true, now, by, memory.DisconnectOnly
	default:
		// The upstream broke: the caller did not interrupt, but heard no more either.
		m.Method = memory.DisconnectOnly
	}
	if m.Content != a.Generated && a.FailureText == "" {
		m.Generated = a.Generated
	}
	if m.Content == "" && !m.CallsTool() && m.State == memory.Final {
		m.State = memory.Empty
	}
	if a.Complete {
		m.CutGenerated = false
	}
	if a.Repeats {
		m.State, m.Source = memory.Superseded, memory.SourceCommand
	}
	return m
}

var causes = map[error]string{
	ErrInterrupted: memory.ByAPIInterrupt, ErrBargeIn: memory.ByStartOfSpeech, ErrThink: memory.ByAPIInterrupt, ErrSpeak: memory.ByAPISpeak, ErrLeave: memory.ByAPILeave,
	ErrClientGone: memory.ByStartOfSpeech, ErrOvertaken: memory.ByStartOfSpeech, ErrSuperseded: memory.ByStartOfSpeech,
}

// rootCause returns which of the Err values err is, or nil.
func rootCause(err error) error {
	for cause := range causes {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return nil
}

// Complete adds, after Settle, what a drained upstream produced in full.
func (s *Turns) Complete(ctx context.Context, t *Turn, generated string) error {
	ctx, stop := context.WithTimeout(Withholding(context.WithoutCancel(ctx)), settleTimeout)
	defer stop()
	return s.messages.update(ctx, t.Agent.Ref(), func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		generated := s.messages.Redactor(h.Agent).Text(generated)
		m, err := view.Seq(t.AnswerSeq)
		if err != nil || len(generated) < len(m.Original()) {
			return memory.Change{}, err
		}
		if m.Sent == "" {
			m.Sent = m.SentText()
		}
		m.Generated, m.CutGenerated, m.Rev = generated, false, view.Head().Rev+1
		return memory.Change{Replace: []memory.Message{m}}, nil
	})
}
