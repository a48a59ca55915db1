package context

import (
	"cmp"
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Snapshot is an agent's whole memory as one value, independent of any policy.
type Snapshot struct {
	Agent    memory.Agent
	Messages []memory.Message // in order
	Summary  string           // "" = none
	// ToolExchange is kept as it came; "" = none.
	ToolExchange string
	// Rev is the revision that the snapshot was taken at.
	Rev int64
	// Policy is the agent's own level of the policy, which Restore sets; nil leaves it as it is.
	Policy **window.Policy
}

// Snapshot returns an agent's memory, also after its end: the messages in it, and the drafts and
// answers without words of a restored snapshot, which no LLM gets. The messages are shared: do not
// change them.
func (s *Service) Snapshot(ctx context.Context, project, id string) (Snapshot, error) {
	h, stored, err := s.messages.SinceBase(ctx, project, id)
	if err != nil {
		return Snapshot{}, err
	}
	m := &h.Agent.Settings.Memory
	return Snapshot{Agent: *h.Agent, Messages: inSnapshot(stored), Summary: m.Summary, ToolExchange: m.ToolExchange, Rev: h.Rev}, nil
}

// inSnapshot returns the messages that belong into a snapshot.
func inSnapshot(stored []memory.Message) []memory.Message {
	msgs := make([]memory.Message, 0, len(stored))
	for i := range stored {
		if m := &stored[i]; m.InMemory() || m.State == memory.Final && m.Filed().Raw != "" {
			msgs = append(msgs, *m)
		}
	}
	return msgs
}

// Read calls each with the messages of Snapshot, some at a time, for a memory that may be too long
// to be held as a whole. It returns the head as of the beginning; a message that changes after the
// first megabyte was read may be as it is then.
func (s *Service) Read(ctx context.Context, project, id string, each func([]memory.Message) error) (memory.Head, error) {
	h, err := s.messages.Head(ctx, project, id)
	if err != nil {
		return h, err
	}
	return h, s.messages.Each(ctx, project, id, max(h.Agent.Settings.Memory.BaseSeq, 1)-1, func(msgs []memory.Message) error {
		end, _ := slices.BinarySearchFunc(msgs, h.NextSeq, func(m memory.Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
		return each(inSnapshot(msgs[:end]))
	})
}

// Restore replaces an agent's memory with a snapshot, all or nothing and durable when it returns;
// the ledger keeps the old messages. Each message gets its own Seq and turn, and loses its ID. It
// returns fault.Invalid for too many messages and fault.Stopped if the agent has ended.
func (s *Service) Restore(ctx context.Context, project, id string, in Snapshot) (memory.Agent, error) {
	if len(in.Messages) > memory.MaxSnapshot {
		return memory.Agent{}, fault.At(fault.Invalid, "messages", "holds %d messages; at most %d are allowed", len(in.Messages), memory.MaxSnapshot)
	}
	summary, err := text.Clean("summary", in.Summary, maxSummary)
	if err != nil {
		return memory.Agent{}, err
	}
	return s.edit(ctx, memory.Ref{Project: project, ID: id}, func(_ memory.AgentView, h *memory.Head, m *memory.Memory) (memory.Change, error) {
		c, err := h.Refill(m, in.Messages, s.messages.NowMS(), false)
		if err != nil {
			return memory.Change{}, err
		}
		m.Summary, m.SummaryMS, m.SummaryUpTo, m.ToolExchange = summary, 0, 0, in.ToolExchange
		disown(m)
		if in.Policy != nil {
			m.Policy = *in.Policy
		}
		if summary != "" {
			m.SummaryMS = s.messages.NowMS()
		}
		return c, nil
	})
}

// Clear empties an agent's  The summary stays, and so does the ledger. The cost does not
// depend on the size of the  It returns fault.Stopped if the agent has ended.
func (s *Service) Clear(ctx context.Context, project, id string) (memory.Agent, error) {
	return s.edit(ctx, memory.Ref{Project: project, ID: id}, func(_ memory.AgentView, h *memory.Head, m *memory.Memory) (memory.Change, error) {
		m.BaseSeq = h.NextSeq
		return memory.Change{}, nil
	})
}
