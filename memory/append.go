package memory

import (
	"bytes"
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxBatch is how many messages one append takes.
const MaxBatch = 1000

// Append stores messages in order, all or none, durable when it returns, and returns them as stored. A message whose ID is stored
// already changes nothing and comes back as it stands; fault.Conflict if it says something else. fault.Stopped if the agent takes no more.
func (s *Service) Append(ctx context.Context, project, id string, msgs []Message) ([]Message, error) {
	var out []Message
	err := s.update(ctx, project, id, func(tx Tx) (Change, error) {
		h := tx.Head()
		known, err := knownIDs(tx, msgs)
		if err != nil {
			return Change{}, err
		}
		out = make([]Message, 0, len(msgs))
		var c Change
		answering := s.live.answering(agentKey{project, id}, h.LastTurn)
		for _, m := range msgs {
			if stored, ok := known[m.ID]; ok && m.ID != "" {
				if !sameWords(stored, m) {
					return Change{}, fault.At(fault.Conflict, "id", "%q is the id of a stored message (seq %d) with other content", m.ID, stored.Seq)
				}
				out = append(out, stored)
				continue
			}
			m, err := place(&h, m, tx.Head().Rev+1, s.nowMS(), answering && h.LastTurn == tx.Head().LastTurn)
			if err != nil {
				return Change{}, err
			}
			c.Append = append(c.Append, m)
			out = append(out, m)
			if m.ID != "" {
				known[m.ID] = m
			}
		}
		if len(c.Append) > 0 { // what is stored already may be asked for after the end
			if err := h.Agent.MustBeActive(fault.Stopped); err != nil {
				return Change{}, err
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// knownIDs gives the stored messages that carry an id of msgs; the map is the caller's.
func knownIDs(tx Tx, msgs []Message) (map[string]Message, error) {
	var ids []string
	for _, m := range msgs {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 {
		return map[string]Message{}, nil
	}
	stored, err := tx.ByIDs(ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]Message, len(stored)+len(ids))
	for k, m := range stored {
		known[k] = m
	}
	return known, nil
}

// sameWords tells whether a message that came again is the stored one. What was learnt since, such as what was heard of it, does not count.
func sameWords(stored, again Message) bool {
	return stored.Role == again.Role && stored.Source == again.Source && stored.Original() == again.Original() &&
		stored.ToolCallID == again.ToolCallID && bytes.Equal(stored.ToolCalls, again.ToolCalls) && bytes.Equal(stored.Parts, again.Parts)
}
