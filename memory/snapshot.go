package memory

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxSnapshot is how many messages a snapshot may hold.
const MaxSnapshot = 10_000

// Snapshot is an agent's whole memory as one value, independent of any policy.
type Snapshot struct {
	Agent    Agent
	Messages []Message // in order
	Summary  string    // "" = none
	// ToolExchange is kept as it came; "" = none.
	ToolExchange string
}

// Snapshot returns an agent's memory, also after its end: the messages in it, and the drafts and
// answers without words of a restored snapshot, which no LLM gets. The messages are shared: do not
// change them.
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

// Restore replaces an agent's memory with a snapshot, all or nothing and durable when it returns;
// the ledger keeps the old messages. Each message gets its own Seq and turn, and loses its ID. It
// returns fault.Invalid for too many messages and fault.Stopped if the agent has ended.
func (s *Service) Restore(ctx context.Context, project, id string, in Snapshot) (Agent, error) {
	if len(in.Messages) > MaxSnapshot {
		return Agent{}, fault.At(fault.Invalid, "messages", "holds %d messages; at most %d are allowed", len(in.Messages), MaxSnapshot)
	}
	summary, err := CleanText("summary", in.Summary, maxSummary)
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

// Refill returns the change that rebuilds the memory m of the agent with these messages. They are
// stored as new messages, and the head advances past them. copies is set if they are messages of
// that memory; then the limit on the length of a ledger does not apply.
func (h *Head) Refill(m *Memory, msgs []Message, now int64, copies bool) (Change, error) {
	c := Change{copies: copies}
	m.BaseSeq = h.NextSeq
	rev := h.Rev + 1
	for _, msg := range msgs {
		msg.ID, msg.AnswerSeq, msg.GivenTurn, msg.State = "", 0, false, Final
		// Measured once, of the message that was copied.
		msg.Timings, msg.Usage, msg.Failure = nil, nil, nil
		msg.dropPlayback()
		msg, err := h.Place(msg, rev, now, false)
		if err != nil {
			return Change{}, err
		}
		c.Append = append(c.Append, msg)
	}
	return c, nil
}
