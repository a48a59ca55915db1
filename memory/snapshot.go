package memory

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxSnapshot is how many messages a snapshot may hold.
const MaxSnapshot = 10_000

// Snapshot is an agent's memory as one value: the whole of it, and not what a policy would show (reference/memory-semantics.md 001-26).
type Snapshot struct {
	Agent    Agent
	Messages []Message // in order
	Summary  string    // "" = none
	// ToolExchange is kept as it came; "" = none.
	ToolExchange string
}

// Snapshot gives an agent's memory, also after its end: what it remembers, and what a restored snapshot held beside that (drafts, answers without
// words), which no LLM is told. Its messages are shared and must not be written to.
func (s *Service) Snapshot(ctx context.Context, project, id string) (Snapshot, error) {
	h, stored, err := s.SinceBase(ctx, project, id)
	msgs := make([]Message, 0, len(stored))
	for i := range stored {
		if m := &stored[i]; m.InMemory() || m.State == Final && m.Raw() != "" {
			msgs = append(msgs, *m)
		}
	}
	m := &h.Agent.Settings.Memory
	return Snapshot{h.Agent, msgs, m.Summary, m.ToolExchange}, err
}

// Restore puts a snapshot in place of an agent's memory, all or nothing and durable when it returns; the ledger keeps what was before. Each message gets a Seq and
// a turn of its own, and none keeps an id. It fails with fault.Invalid for too many messages, fault.Stopped if the agent takes nothing more.
func (s *Service) Restore(ctx context.Context, project, id string, in Snapshot) (Agent, error) {
	if len(in.Messages) > MaxSnapshot {
		return Agent{}, fault.At(fault.Invalid, "messages", "holds %d messages; at most %d are allowed", len(in.Messages), MaxSnapshot)
	}
	summary, err := CleanText("summary", in.Summary, MaxSummary)
	if err != nil {
		return Agent{}, err
	}
	return s.remember(ctx, project, id, func(h *Head, m *Memory) (Change, error) {
		c, err := h.Refill(m, in.Messages, s.NowMS(), false)
		if err != nil {
			return Change{}, err
		}
		m.Summary, m.SummaryMS, m.SummaryUpTo, m.ToolExchange = summary, 0, 0, in.ToolExchange
		m.disown()
		if summary != "" {
			m.SummaryMS = s.NowMS()
		}
		return c, nil
	})
}

// Refill returns the change that starts the memory m of the agent again with these messages. They are
// stored as new messages behind the head, which is advanced. copies is set if they are messages of that
// memory; then the limit on the length of a ledger does not apply.
func (h *Head) Refill(m *Memory, msgs []Message, now int64, copies bool) (Change, error) {
	c := Change{copies: copies}
	m.BaseSeq = h.NextSeq
	rev := h.Rev + 1
	for _, msg := range msgs {
		msg.ID, msg.AnswerSeq, msg.GivenTurn, msg.State = "", 0, false, Final
		msg.Timings, msg.Usage, msg.Failure = nil, nil, nil // measured once, of the message that was copied
		msg.unplayed()
		msg, err := h.Place(msg, rev, now, false)
		if err != nil {
			return Change{}, err
		}
		c.Append = append(c.Append, msg)
	}
	return c, nil
}
