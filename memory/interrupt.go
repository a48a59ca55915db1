package memory

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/heard"
)

// The ways in which an answer is cut, as the turn table names them.
const (
	ByStartOfSpeech = "start_of_speech"
	ByAPISpeak      = "api_speak"
	ByAPIInterrupt  = "api_interrupt"
	ByAPILeave      = "api_leave"
)

// InterruptRequest is what was heard of an answer; the zero value cuts what is being said now.
type InterruptRequest struct {
	TurnID  *int64  // the turn whose answer was cut; nil = the answer in flight, else the last one
	Heard   *string // the text that was heard
	HeardMS *int64  // how much audio was played, in ms; used if Heard is nil
	AtMS    int64   // when it was cut, Unix ms; 0 = now
}

// Interrupt cuts an answer and records what was heard of it. Repeating the call changes nothing,
// and better evidence replaces weaker, never the other way. An answer that is being generated is
// not cut if the heard text cannot be part of it. Without anything to cut or a heard text it does
// nothing.
//
// It returns fault.NotFound for an unknown turn, fault.Conflict for a turn without an answer, and
// fault.Invalid for a heard text that is not part of the answer.
func (s *Service) Interrupt(ctx context.Context, project, id string, r InterruptRequest) (Agent, error) {
	h, recent, err := s.cfg.Store.Recent(ctx, project, id, pendingLook, false)
	if err != nil {
		return Agent{}, err
	}
	foreign := false // the heard text is not part of the named turn's answer so far
	cut := s.cutFlights(ctx, agentKey{project, id}, ErrInterrupted, func(f *flight) bool {
		if turn := f.turn.Load(); r.TurnID != nil && *r.TurnID != turn {
			return false
		}
		said := f.says(r.Heard)
		foreign = foreign || !said && r.TurnID != nil
		return said
	})
	if len(cut) == 0 && s.peers != nil && pending(recent) {
		r := s.ask(ctx, agentKey{project, id}, ErrInterrupted, r.TurnID, r.Heard)
		cut, foreign = r.Turns, foreign || r.Foreign
	}
	if foreign && len(cut) == 0 {
		return Agent{}, fault.At(fault.Invalid, "heard", "is no part of what has been said in turn %d so far; send the words of it that were heard", *r.TurnID)
	}
	says := r.Heard != nil || r.HeardMS != nil
	if len(cut) > 0 && !says {
		return h.Agent, nil // what left the socket was recorded with the cut
	}
	err = s.update(ctx, project, id, func(view AgentView) (Change, error) {
		h = view.Head()
		if err := h.Agent.MustBeActive(fault.NotFound); err != nil && (!says || h.Agent.Archived()) {
			return Change{}, err // evidence may come late, a cut may not
		}
		turn := r.TurnID
		if turn == nil && len(cut) > 0 {
			turn = &cut[0]
		}
		m, err := cutTarget(view, turn, r.Heard)
		if err != nil || m.Seq == 0 {
			if err == nil && says {
				err = fault.New(fault.Conflict, "agent %s has said nothing yet that could have been heard", id)
			}
			return Change{}, err
		}
		m, changed, err := m.WithEvidence(r.evidence(m), s.NowMS())
		if err != nil || !changed {
			return Change{}, err
		}
		m.Rev = h.Rev + 1
		return Change{Replace: []Message{m}}, nil
	})
	return h.Agent, err
}

// evidence returns the call's evidence about m.
func (r InterruptRequest) evidence(m Message) Evidence {
	e := Evidence{Seq: m.Seq, AtMS: r.AtMS, By: ByAPIInterrupt}
	switch {
	case r.Heard != nil:
		e.Method, e.Heard = VendorText, *r.Heard
	case r.HeardMS != nil:
		e.Method, e.Heard = AudioMS, heard.Estimate(m.Original(), *r.HeardMS)
	default:
		e.Method, e.Heard = DisconnectOnly, m.SentText()
	}
	return e
}

// cutTarget returns the assistant message that the interruption is about. It returns a zero message
// if there is none and none was named.
func cutTarget(view AgentView, turn *int64, text *string) (Message, error) {
	var msgs []Message
	var err error
	if turn != nil {
		if msgs, err = view.Turn(*turn); err != nil {
			return Message{}, err
		}
		if len(msgs) == 0 {
			return Message{}, fault.At(fault.NotFound, "turn_id", "the agent has no turn %d", *turn)
		}
	} else if msgs, err = lastAnswer(view); err != nil {
		return Message{}, err
	}
	var last Message
	for i := len(msgs) - 1; i >= 0; i-- {
		m := msgs[i]
		if m.Role != Assistant || m.State == Superseded || m.Original() == "" {
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
		return Message{}, fault.At(fault.Conflict, "turn_id", "turn %d holds no answer; a user message cannot be interrupted", *turn)
	}
	return last, nil
}

// lastAnswer returns messages whose last assistant message is the agent's last answer.
func lastAnswer(view AgentView) ([]Message, error) {
	for n := 32; ; n *= 8 {
		msgs, err := view.Last(n)
		if err != nil || len(msgs) < n || n > 4*MaxBatch {
			return msgs, err
		}
		for _, m := range msgs {
			if m.Role == Assistant && m.InHistory() {
				return msgs, nil
			}
		}
	}
}

// clip shortens text for an error message, at a rune.
func clip(s string, runes int) string {
	n := 0
	for i := range s {
		if n == runes {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
