package memory

import (
	"bytes"
	"context"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxBatch is how many messages one append takes.
const MaxBatch = 1000

// Append stores messages in order, all or none, durable when it returns, and returns them as stored. A message whose ID is stored
// already changes nothing and comes back as it stands; fault.Conflict if it says something else. fault.Stopped if the agent takes no more.
func (s *Service) Append(ctx context.Context, project, id string, msgs []Message) ([]Message, error) {
	out, err := s.Put(ctx, project, id, msgs)
	return out.Messages, err
}

// Appended is what became of messages that were appended.
type Appended struct {
	Messages []Message // as stored, in the order given
	// Merged are those whose words went into an earlier message, which is Into; Dropped the Seqs of messages that left the memory. Both are what the
	// agent's policy does where it applies on write, and empty otherwise.
	Merged  []Merge
	Dropped []int64
}

// Merge tells which message went into which.
type Merge struct{ Seq, Into int64 }

// Put is Append, and tells what the agent's policy merged and dropped on the way. No messages at all are stored as nothing, whatever there was before
// (reference/memory-semantics.md 000-19).
func (s *Service) Put(ctx context.Context, project, id string, msgs []Message) (Appended, error) {
	var out Appended
	err := s.update(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		known, err := knownIDs(view, msgs)
		if err != nil {
			return Change{}, err
		}
		out = Appended{Messages: make([]Message, 0, len(msgs))}
		var c Change
		answering := s.live.answering(agentKey{project, id}, h.LastTurn)
		for _, m := range msgs {
			if stored, ok := known[m.ID]; ok && m.ID != "" {
				if stored.State != Removed && !sameWords(stored, m) && !s.grown(&h.Agent, &stored, &m) { // of what was cleared nobody knows what it said
					return Change{}, fault.At(fault.Conflict, "id", "%q is the id of a stored message (seq %d) with other content", m.ID, stored.Seq)
				}
				out.Messages = append(out.Messages, stored)
				continue
			}
			m, err := h.Place(m, view.Head().Rev+1, s.NowMS(), answering && h.LastTurn == view.Head().LastTurn)
			if err != nil {
				return Change{}, err
			}
			c.Append = append(c.Append, m)
			out.Messages = append(out.Messages, m)
			if m.ID != "" {
				known[m.ID] = m
			}
		}
		if len(c.Append) == 0 {
			return c, nil
		}
		if err := h.Agent.MustBeActive(fault.Stopped); err != nil { // what is stored already may be asked for after the end
			return Change{}, err
		}
		if !s.special(&h.Agent, nil) {
			return c, nil
		}
		return c, s.cut(view, &c, &out)
	})
	if err != nil {
		return Appended{}, err
	}
	return out, nil
}

// knownIDs gives the stored messages that carry an id of msgs; the map is the caller's.
func knownIDs(view AgentView, msgs []Message) (map[string]Message, error) {
	var ids []string
	for _, m := range msgs {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return map[string]Message{}, nil
	}
	stored, err := view.ByIDs(ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]Message, len(stored)+len(ids))
	for k, m := range stored {
		known[k] = m
	}
	return known, nil
}

// grown tells whether a message that came again is a stored answer that later ones were merged into: that it begins it.
func (s *Service) grown(a *Agent, stored, again *Message) bool {
	if stored.Role != Assistant || again.Role != Assistant || stored.Source != again.Source || len(again.ToolCalls)+len(again.Parts) > 0 || !s.special(a, nil) {
		return false
	}
	n := s.PolicyOf(a, nil).Normalise
	return *n.MergeAssistant && strings.HasPrefix(stored.Original(), again.Original()+*n.Separator)
}

// sameWords tells whether a message that came again is the stored one. What was learnt since, such as what was heard of it, does not count.
func sameWords(stored, again Message) bool {
	return stored.Role == again.Role && stored.Source == again.Source && stored.Original() == again.Original() &&
		stored.ToolCallID == again.ToolCallID && bytes.Equal(stored.ToolCalls, again.ToolCalls) && bytes.Equal(stored.Parts, again.Parts)
}
