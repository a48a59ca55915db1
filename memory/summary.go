package memory

import (
	"context"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
)

// maxSummary bounds a summary, in bytes.
const maxSummary = 256 << 10

// Summary stands for messages that have left the memory.
type Summary struct {
	Text string // "" = there is none
	MS   int64  // when it was set, Unix ms
	UpTo int64  // Seq of the last message that it covers; 0 is unknown
}

// Summary returns an agent's summary, also after its end.
func (s *Service) Summary(ctx context.Context, project, id string) (Summary, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	m := &h.Agent.Settings.Memory
	return Summary{m.Summary, m.SummaryMS, m.SummaryUpTo}, err
}

// SetSummary replaces an agent's summary; "" removes it. With upToSeq above 0 the messages up to
// that Seq, except system messages, leave the memory in the same change. It returns fault.Invalid
// for a text that is too long, fault.Conflict for a Seq beyond the ledger, and fault.Stopped if the
// agent has ended.
func (s *Service) SetSummary(ctx context.Context, project, id, text string, upToSeq int64) (Summary, error) {
	text, err := CleanText("summary", text, maxSummary)
	if err != nil {
		return Summary{}, err
	}
	var a Agent
	for try := 1; ; try++ {
		// What leaves the memory is determined outside the write, and inside only if the agent
		// changes all the time.
		var gone []int64
		var rev int64
		if upToSeq > 0 && try < summaryTries {
			if gone, rev, err = s.goneBefore(ctx, project, id, upToSeq); err != nil {
				return Summary{}, err
			}
		}
		a, err = s.setSummary(ctx, project, id, text, upToSeq, func(view AgentView) ([]int64, error) {
			h := view.Head()
			switch {
			case try == summaryTries:
				msgs, err := view.Last(int(max(h.NextSeq-h.Agent.Settings.Memory.BaseSeq, 0)))
				return goneOf(h.Agent.Settings.Memory.Since(msgs), upToSeq), err
			case h.Rev != rev:
				return nil, errMoved
			}
			return gone, nil
		})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	m := &a.Settings.Memory
	return Summary{m.Summary, m.SummaryMS, m.SummaryUpTo}, err
}

// setSummary is SetSummary with a valid text. leaving returns the Seqs of what leaves the memory;
// it is called if something may.
func (s *Service) setSummary(ctx context.Context, project, id, text string, upToSeq int64, leaving func(AgentView) ([]int64, error)) (Agent, error) {
	return s.rememberTx(ctx, project, id, func(view AgentView, h *Head, m *Memory) (Change, error) {
		if upToSeq >= h.NextSeq {
			return Change{}, fault.At(fault.Conflict, "up_to_seq", "%d is beyond the ledger, which has come to %d", upToSeq, h.NextSeq-1)
		}
		m.Summary, m.SummaryMS, m.SummaryUpTo = text, s.NowMS(), upToSeq
		if text == "" {
			m.SummaryMS = 0
			m.disown()
		}
		if upToSeq <= 0 || upToSeq < m.BaseSeq {
			return Change{}, nil
		}
		gone, err := leaving(view)
		if err != nil {
			return Change{}, err
		}
		if gone == nil {
			m.BaseSeq = upToSeq + 1
			return Change{}, nil
		}
		return dropped(view, h.Rev+1, gone)
	})
}

// disown drops the ancestors that are still to be summarized: their summary would bring back what
// was removed or replaced.
func (m *Memory) disown() {
	if m.Inherited != nil && len(m.Inherited.Ancestors) > 0 {
		in := *m.Inherited
		in.Ancestors = nil
		m.Inherited = &in
	}
}

// goneBefore returns the Seqs of what leaves the memory if all messages up to a Seq do, except
// system messages. It returns nil if there are no system messages; then moving the start of the
// memory is enough. rev is the revision that this is based on.
func (s *Service) goneBefore(ctx context.Context, project, id string, upTo int64) (gone []int64, rev int64, err error) {
	h, msgs, err := s.Remembered(ctx, project, id)
	return goneOf(msgs, upTo), h.Rev, err
}

// goneOf returns the Seqs of the messages in memory up to a Seq, without system messages, or nil if
// there are no system messages; see goneBefore.
func goneOf(msgs []Message, upTo int64) []int64 {
	gone, kept := []int64{}, false
	for i := range msgs {
		switch m := &msgs[i]; {
		case m.Seq > upTo || !m.InMemory():
		case instructs(m.Role):
			kept = true
		default:
			gone = append(gone, m.Seq)
		}
	}
	if !kept {
		return nil
	}
	return gone
}

// dropped returns the change that removes single messages from the memory.
func dropped(view AgentView, rev int64, seqs []int64) (Change, error) {
	var c Change
	for _, seq := range seqs {
		m, err := view.Seq(seq)
		if err != nil {
			return Change{}, err
		}
		if m.State == Final {
			m.State, m.Rev = Dropped, rev
			c.Replace = append(c.Replace, m)
		}
	}
	return c, nil
}

// remember changes the memory's own fields, and applies the change that decide returns, in one
// write.
func (s *Service) remember(ctx context.Context, project, id string, decide func(h *Head, m *Memory) (Change, error)) (Agent, error) {
	return s.rememberTx(ctx, project, id, func(_ AgentView, h *Head, m *Memory) (Change, error) { return decide(h, m) })
}

func (s *Service) rememberTx(ctx context.Context, project, id string, decide func(view AgentView, h *Head, m *Memory) (Change, error)) (Agent, error) {
	var out Agent
	err := s.update(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
			return Change{}, err
		}
		a, rev := h.Agent, h.Rev+1 // decide may move h on
		c, err := decide(view, &h, &a.Settings.Memory)
		if err != nil {
			return Change{}, err
		}
		a.Rev = rev
		c.Agent, out = &a, a
		return c, nil
	})
	return out, err
}
