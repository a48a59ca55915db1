package agents

import (
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Appended is what became of messages that were appended.
type Appended struct {
	Messages []memory.Message // as stored, in the order given
	// Merged are the messages that were merged into an earlier one, Dropped the Seqs of messages
	// that left the memory. Both are empty unless the agent's policy applies on write.
	Merged  []Merge
	Dropped []int64
}

// Merge is a merged message: its Seq, and that of the message that it was merged into.
type Merge struct{ Seq, Into int64 }

// Append stores messages in order, all or none, durable when it returns. A message whose ID is
// stored already changes nothing and is returned as stored. It returns fault.Conflict if the stored
// message has other content, and fault.Stopped if the agent accepts no more messages. An empty list
// stores nothing.
func (s *Messages) Append(ctx context.Context, project, id string, msgs []memory.Message) (Appended, error) {
	var out Appended
	ref := memory.Ref{Project: project, ID: id}
	err := s.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		redactor := s.Redactor(h.Agent)
		msgs := withIDs(msgs, redactor)
		known, err := knownIDs(view, msgs)
		if err != nil {
			return memory.Change{}, err
		}
		out = Appended{Messages: make([]memory.Message, 0, len(msgs))}
		var c memory.Change
		h.LastTurn = max(h.LastTurn, s.live.lastTurn(ref))
		last := h.LastTurn
		answering := s.live.isAnswering(ref, last)
		cuts := s.policies.differsFor(h.Agent, nil)
		for _, given := range msgs {
			if stored, ok := known[given.ID]; ok && given.ID != "" {
				again := s.asStored(h.Agent, given)
				// The content of a cleared message is unknown
				if stored.State != memory.Removed && !memory.SameWords(stored, again) && !memory.SameSaid(stored, given, redactor) && !s.grown(h.Agent, &stored, &again) {
					return memory.Change{}, fault.At(fault.Conflict, "id", "%q is the id of a stored message (seq %d) with other content", given.ID, stored.Seq)
				}
				out.Messages = append(out.Messages, stored)
				continue
			}
			if cuts || s.paused(h.Agent) { // otherwise below, together with the messages around it
				given = s.asStored(h.Agent, given)
			}
			m, err := h.Place(given, view.Head().Rev+1, s.NowMS(), answering && h.LastTurn == last)
			if err != nil {
				return memory.Change{}, err
			}
			if c.Append == nil {
				c.Append = make([]memory.Message, 0, len(msgs))
			}
			c.Append = append(c.Append, m)
			out.Messages = append(out.Messages, m)
			if m.ID != "" {
				known[m.ID] = m.Redacted(redactor)
			}
		}
		if len(c.Append) == 0 {
			return c, nil
		}
		// Stored messages are returned even after the end.
		if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
			return memory.Change{}, err
		}
		if cuts {
			if err := s.cut(view, &c, &out); err != nil {
				return memory.Change{}, err
			}
		}
		if err := s.redact(ctx, &c, view, redactor); err != nil {
			return memory.Change{}, err
		}
		for i := range out.Messages { // as stored
			if at := bySeq(c.Append, out.Messages[i].Seq); at >= 0 {
				out.Messages[i] = c.Append[at]
			}
		}
		return c, nil
	})
	if err != nil {
		return Appended{}, err
	}
	return out, nil
}

// withIDs returns messages with the IDs that are stored; see redact.Redactor.ID.
func withIDs(msgs []memory.Message, r *redact.Redactor) []memory.Message {
	if r == nil {
		return msgs
	}
	out := slices.Clone(msgs)
	for i := range out {
		out[i].ID = r.ID(out[i].ID)
	}
	return out
}

// knownIDs returns the stored messages that have an ID of msgs. The caller owns the map.
func knownIDs(view memory.AgentView, msgs []memory.Message) (map[string]memory.Message, error) {
	var ids []string
	for _, m := range msgs {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return map[string]memory.Message{}, nil
	}
	stored, err := view.ByIDs(ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]memory.Message, len(stored)+len(ids))
	for k, m := range stored {
		known[k] = m
	}
	return known, nil
}

// grown reports whether a repeated message is the beginning of a stored answer that later messages
// were merged into.
func (s *Messages) grown(a *memory.Agent, stored, again *memory.Message) bool {
	if stored.Role != memory.Assistant || again.Role != memory.Assistant || stored.Source != again.Source || len(again.ToolCalls)+len(again.Parts) > 0 || !s.policies.differsFor(a, nil) {
		return false
	}
	n := s.policies.Of(a, nil).Normalise
	return *n.MergeAssistant && strings.HasPrefix(stored.Original(), again.Original()+*n.Separator)
}
