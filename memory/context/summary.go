package context

import (
	"context"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// maxSummary bounds a summary, in bytes.
const maxSummary = 256 << 10

// Summary stands for messages that have left the
type Summary struct {
	Text string // "" = there is none
	MS   int64  // when it was set, Unix ms
	UpTo int64  // Seq of the last message that it covers; 0 is unknown
}

// Summary returns an agent's summary, also after its end.
func (s *Service) Summary(ctx context.Context, project, id string) (Summary, error) {
	h, err := s.messages.Head(ctx, project, id)
	if err != nil {
		return Summary{}, err
	}
	m := &h.Agent.Settings.Memory
	return Summary{m.Summary, m.SummaryMS, m.SummaryUpTo}, nil
}

// SetSummary replaces an agent's summary; "" removes it. With upToSeq above 0 the messages up to
// that Seq, except system messages, leave the memory in the same change. It returns fault.Invalid
// for a text that is too long, fault.Conflict for a Seq beyond the ledger, and fault.Stopped if the
// agent has ended.
func (s *Service) SetSummary(ctx context.Context, project, id, summary string, upToSeq int64) (Summary, error) {
	summary, err := text.Clean("summary", summary, maxSummary)
	if err != nil {
		return Summary{}, err
	}
	ref := memory.Ref{Project: project, ID: id}
	var a memory.Agent
	for try := 1; ; try++ {
		// What leaves the memory is determined outside the write, and inside only if the agent
		// changes all the time.
		var gone []int64
		var rev int64
		if upToSeq > 0 && try < summaryTries {
			if gone, rev, err = s.goneBefore(ctx, ref, upToSeq); err != nil {
				return Summary{}, err
			}
		}
		a, err = s.setSummary(ctx, ref, summary, upToSeq, func(view memory.AgentView) ([]int64, error) {
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
func (s *Service) setSummary(ctx context.Context, ref memory.Ref, text string, upToSeq int64, leaving func(memory.AgentView) ([]int64, error)) (memory.Agent, error) {
	return s.edit(ctx, ref, func(view memory.AgentView, h *memory.Head, m *memory.Memory) (memory.Change, error) {
		if upToSeq >= h.NextSeq {
			return memory.Change{}, fault.At(fault.Conflict, "up_to_seq", "%d is beyond the ledger, which has come to %d", upToSeq, h.NextSeq-1)
		}
		erases := text == "" && m.Summary != ""
		m.Summary, m.SummaryMS, m.SummaryUpTo = text, s.messages.NowMS(), upToSeq
		if text == "" {
			m.SummaryMS = 0
			disown(m)
		}
		if upToSeq <= 0 || upToSeq < m.BaseSeq {
			return memory.Change{Erases: erases}, nil
		}
		gone, err := leaving(view)
		if err != nil {
			return memory.Change{}, err
		}
		if gone == nil {
			m.BaseSeq = upToSeq + 1
			return memory.Change{}, nil
		}
		m.SetConversationStart(upToSeq + 1)
		return dropped(view, h.Rev+1, gone)
	})
}

// disown drops the ancestors that are still to be summarized: their summary would bring back what
// was removed or replaced.
func disown(m *memory.Memory) {
	if m.Ancestry() {
		in := *m.Inherited
		in.Ancestors = nil
		m.Inherited = &in
	}
}

// goneBefore returns the Seqs of what leaves the memory if all messages up to a Seq do, except
// system messages. It returns nil if there are no system messages; then moving the start of the
// memory is enough. rev is the revision that this is based on.
func (s *Service) goneBefore(ctx context.Context, ref memory.Ref, upTo int64) (gone []int64, rev int64, err error) {
	h, msgs, err := s.messages.Remembered(ctx, ref.Project, ref.ID)
	return goneOf(msgs, upTo), h.Rev, err
}

// goneOf returns the Seqs of the messages in memory up to a Seq, without system messages, or nil if
// there are no system messages; see goneBefore.
func goneOf(msgs []memory.Message, upTo int64) []int64 {
	gone, kept := []int64{}, false
	for i := range msgs {
		switch m := &msgs[i]; {
		case m.Seq > upTo || !m.InMemory():
		case m.Role.Instructs():
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

// dropped returns the change that removes single messages from the
func dropped(view memory.AgentView, rev int64, seqs []int64) (memory.Change, error) {
	var c memory.Change
	for _, seq := range seqs {
		m, err := view.Seq(seq)
		if err != nil {
			return memory.Change{}, err
		}
		if m.State == memory.Final {
			m.State, m.Rev = memory.Dropped, rev
			c.Replace = append(c.Replace, m)
		}
	}
	return c, nil
}

// edit changes the fields of an agent's memory, and applies the change that decide returns, in one
// write. It returns fault.Stopped if the agent has ended.
func (s *Service) edit(ctx context.Context, ref memory.Ref, decide func(view memory.AgentView, h *memory.Head, m *memory.Memory) (memory.Change, error)) (memory.Agent, error) {
	var out memory.Agent
	err := s.messages.Change(ctx, ref.Project, ref.ID, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
			return memory.Change{}, err
		}
		a, rev := *h.Agent, h.Rev+1 // decide may move h on
		c, err := decide(view, &h, &a.Settings.Memory)
		if err != nil {
			return memory.Change{}, err
		}
		a.Rev = rev
		c.Agent, out = &a, a
		return c, nil
	})
	return out, err
}
