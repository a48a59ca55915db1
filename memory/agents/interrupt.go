package agents

import (
	"cmp"
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/redact"
)

// InterruptRequest is what was heard of an answer; the zero value cuts what is being said now.
type InterruptRequest struct {
	TurnID  *int64  // the turn whose answer was cut; nil = the open answer, else the last one
	Heard   *string // the text that was heard
	HeardMS *int64  // how much audio was played, in ms; used if Heard is nil
	AtMS    int64   // when it was cut, Unix ms; 0 = now
}

// Interruption is what an interruption changed.
type Interruption struct {
	Agent  memory.Agent
	Cut    []int64         // turns whose answers were being made, and were ended
	Answer *memory.Message // the answer whose heard text changed, nil for none
}

// Interrupt cuts an answer and records what was heard of it. Repeating the call changes nothing,
// and better evidence replaces weaker, never the other way. An answer that is being generated is
// not cut if the heard text cannot be part of it. Without anything to cut or a heard text it does
// nothing.
//
// It returns fault.NotFound for an unknown turn, fault.Conflict for a turn without an answer, and
// fault.Invalid for a heard text that is not part of the answer.
func (s *Turns) Interrupt(ctx context.Context, project, id string, r InterruptRequest) (out Interruption, err error) {
	h, recent, err := s.cfg.Ledger.Recent(ctx, project, id, pendingLook, false)
	if err != nil {
		return out, err
	}
	ref := memory.Ref{Project: project, ID: id}
	foreign := false // the heard text is not part of the named turn's answer so far
	cut := s.cutAnswers(ctx, ref, ErrInterrupted, func(o *openAnswer) bool {
		if turn := o.turn.Load(); r.TurnID != nil && *r.TurnID != turn {
			return false
		}
		said := o.says(r.Heard)
		foreign = foreign || !said && r.TurnID != nil
		return said
	})
	if len(cut) == 0 && s.peers != nil && pending(recent) {
		r := s.ask(ctx, ref, ErrInterrupted, h.NextSeq, r.TurnID, r.Heard)
		cut, foreign = r.Turns, foreign || r.Foreign
	}
	if foreign && len(cut) == 0 {
		return out, fault.At(fault.Invalid, "heard", "is not a part of what has been said in turn %d so far; send the words of it that were heard", *r.TurnID)
	}
	says := r.Heard != nil || r.HeardMS != nil
	var rate float64
	if !says { // not within the decision, which holds up all other writes of the server
		if _, recent, err = s.cfg.Ledger.Recent(ctx, project, id, rateLook, false); err != nil {
			return out, err
		}
		rate = SpeakingRate(recent)
	}
	// The words were said: a detector that is away does not keep the cut from being stored.
	err = s.messages.update(Withholding(ctx), ref, func(view memory.AgentView) (memory.Change, error) {
		h, out.Answer = view.Head(), nil
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil && (!says && len(cut) == 0 || h.Agent.Archived()) {
			return memory.Change{}, err // evidence may come late, a cut may not
		}
		turn := r.TurnID
		if turn == nil && len(cut) > 0 {
			turn = &cut[0]
		}
		redactor := s.messages.Redactor(h.Agent)
		r := r.redacted(view, redactor.Unasked())
		m, err := cutTarget(view, turn, r.Heard)
		if err != nil || m.Seq == 0 {
			switch {
			case !says && len(cut) > 0:
				err = nil // it is cut; nothing was said, or it is not stored yet
			case err == nil && says:
				err = fault.New(fault.Conflict, "agent %s has said nothing yet that could have been heard", id)
			}
			return memory.Change{}, err
		}
		if !says && len(cut) > 0 && m.Method != memory.DisconnectOnly {
			return memory.Change{}, nil // an earlier answer of the same turn
		}
		m, changed, err := m.Renamed(redactor).WithEvidence(r.evidence(m, rate, s.messages.NowMS()), s.messages.NowMS())
		if err != nil || !changed {
			return memory.Change{}, err
		}
		m.Rev, out.Answer = h.Rev+1, &m
		return memory.Change{Replace: []memory.Message{m}}, nil
	})
	out.Agent, out.Cut = *h.Agent, cut
	return out, err
}

// redacted returns the request with the heard text as the ledger has it.
func (r InterruptRequest) redacted(view memory.AgentView, by *redact.Redactor) InterruptRequest {
	if by == nil || r.Heard == nil {
		return r
	}
	recent, _ := view.Last(rateLook)
	text := by.Part(*r.Heard, memory.Answers(recent))
	r.Heard = &text
	return r
}

// evidence returns the call's evidence about m. rate is the speaking rate of the agent's voice; 0
// is unknown.
func (r InterruptRequest) evidence(m memory.Message, rate float64, now int64) memory.Evidence {
	e := memory.Evidence{Seq: m.Seq, AtMS: r.AtMS, By: memory.ByAPIInterrupt}
	switch {
	case r.Heard != nil:
		e.Method, e.Heard = memory.VendorText, *r.Heard
	case r.HeardMS != nil:
		e.Method, e.Heard = memory.AudioMS, heard.Estimate(m.Original(), *r.HeardMS)
		e.Audio = memory.Stretch{}.Played(*r.HeardMS, r.AtMS)
	default:
		e.Method, e.Heard = memory.DisconnectOnly, m.SentText()
		if from := spokenFrom(&m); from > 0 {
			at := r.AtMS
			if at < from && m.Interrupted { // not told, or by a clock that is off
				at = m.InterruptMS
			}
			if at < from {
				at = now
			}
			e.Method = memory.RateEstimate
			if said := (heard.Voice{Rate: rate}).Estimate(m.Original(), at-from-voiceDelay); len(said) < len(e.Heard) {
				e.Heard = said
			}
		}
	}
	return e
}

// voiceDelay is how long a voice usually takes from the first token to its first sound, in ms.
const voiceDelay = 400

// spokenFrom returns when the first of the answer went to the voice, Unix ms, or 0 if the server
// cannot know: it did not send the answer.
func spokenFrom(m *memory.Message) int64 {
	switch t := m.Timings; {
	case t != nil && t.StartMS > 0:
		return t.StartMS + cmp.Or(t.FirstTokenMS, t.TotalMS)
	case m.Said():
		return m.Timestamp
	}
	return 0
}

// rateLook is how many messages are searched for the speaking rate of an agent's voice.
const rateLook = 64

// SpeakingRate returns the rate at which the agent's answers are spoken, as far as reports tell, in
// syllables per second: the median of the answers whose times are known, or 0.
func SpeakingRate(msgs []memory.Message) float64 {
	var voice heard.Voice
	var rates []float64
	for i := range msgs {
		m := &msgs[i]
		if m.Role != memory.Assistant {
			continue
		}
		if p := m.Heard().Playback; p != nil {
			list := p.Stretches
			if p.Audio != nil {
				list = append(slices.Clone(list), *p.Audio)
			}
			for _, s := range list {
				if n := len(s.Ends); n > 0 {
					rates = append(rates, voice.Measure(s.Text, s.Ends[n-1]))
				} else if !m.Interrupted && s.PlayedMS > 0 {
					rates = append(rates, voice.Measure(m.Content, s.PlayedMS))
				}
			}
		}
		from := spokenFrom(m)
		if from > 0 && m.Interrupted && (m.Method == memory.VendorText || m.Method == memory.WordTimes) {
			rates = append(rates, voice.Measure(m.Content, m.InterruptMS-from-voiceDelay))
		}
	}
	rates = slices.DeleteFunc(rates, func(r float64) bool { return r == 0 })
	if len(rates) == 0 {
		return 0
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// cutTarget returns the assistant message that the interruption is about. It returns a zero message
// if there is none and none was named.
func cutTarget(view memory.AgentView, turn *int64, text *string) (memory.Message, error) {
	var msgs []memory.Message
	var err error
	if turn != nil {
		if msgs, err = view.Turn(*turn); err != nil {
			return memory.Message{}, err
		}
		if len(msgs) == 0 {
			return memory.Message{}, fault.At(fault.NotFound, "turn_id", "the agent has no turn %d", *turn)
		}
	} else if msgs, err = lastAnswer(view); err != nil {
		return memory.Message{}, err
	}
	var last memory.Message
	for i := len(msgs) - 1; i >= 0; i-- {
		m := msgs[i]
		if m.Role != memory.Assistant || m.State == memory.Superseded || m.Original() == "" {
			continue
		}
		if last.Seq == 0 {
			last = m
		}
		if turn == nil || text == nil {
			break
		}
		// A turn may hold several answers (around tool calls): take the one that the text is part
		// of.
		if _, ok := heard.Align(m.Original(), *text); ok {
			return m, nil
		}
	}
	if last.Seq == 0 && turn != nil {
		return memory.Message{}, fault.At(fault.Conflict, "turn_id", "turn %d holds no answer; a user message cannot be interrupted", *turn)
	}
	return last, nil
}

// lastAnswer returns messages whose last assistant message is the agent's last answer.
func lastAnswer(view memory.AgentView) ([]memory.Message, error) {
	for n := 32; ; n *= 8 {
		msgs, err := view.Last(n)
		if err != nil || len(msgs) < n || n > 4*memory.MaxBatch {
			return msgs, err
		}
		for _, m := range msgs {
			if m.Role == memory.Assistant && m.InHistory() {
				return msgs, nil
			}
		}
	}
}
