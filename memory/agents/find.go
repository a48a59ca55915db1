package agents

import (
	"context"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Limits of one search for a text: it reads at most this many calls and messages, and of a longer
// call its newest messages.
const (
	findCalls    = 1000
	findMessages = 20_000
	findPage     = 50 // calls read at a time
)

// Find lists agents that match q and, unless text is empty, in whose calls it occurs: in a message
// as it was heard or as it was generated, in upper or lower case. A search for a text ends when it
// has read enough, so that a page may have fewer agents than q.Limit, or none, and a Next all the
// same. With a text it leaves Total unset.
func (s *Agents) Find(ctx context.Context, q memory.AgentQuery, text string) (memory.AgentPage, error) {
	if text == "" {
		return s.cfg.Ledger.Agents(ctx, q)
	}
	q.NoTotal = true
	text = strings.ToLower(text)
	var out memory.AgentPage
	limit, calls, messages := q.Limit, 0, 0
	for q.Limit = findPage; ; {
		page, err := s.cfg.Ledger.Agents(ctx, q)
		if err != nil {
			return out, err
		}
		for i := range page.Heads {
			h := &page.Heads[i]
			calls, messages = calls+1, messages+int(min(h.NextSeq-1, findMessages))
			says, err := says(ctx, s.cfg.Ledger, h, text)
			if err != nil {
				return out, err
			}
			if says {
				out.Heads, out.Places = append(out.Heads, *h), append(out.Places, page.Places[i])
			}
			if last := i == len(page.Heads)-1 && page.Next == (memory.AgentPlace{}); !last && (len(out.Heads) == limit || calls >= findCalls || messages >= findMessages) {
				out.Next = page.Places[i]
				return out, nil
			}
		}
		if q.After = page.Next; page.Next == (memory.AgentPlace{}) {
			return out, nil
		}
		if len(page.Heads) < findPage { // many tallies were read for these
			out.Next = page.Next
			return out, nil
		}
	}
}

// says reports whether a text in lower case occurs in one of the agent's messages. It reads the
// newest findMessages.
func says(ctx context.Context, ledger memory.Ledger, h *memory.Head, text string) (bool, error) {
	const page = 1000
	for after := max(0, h.NextSeq-1-findMessages); ; {
		msgs, err := ledger.Messages(ctx, h.Agent.Project, h.Agent.ID, memory.MessageQuery{AfterSeq: after, Limit: page})
		if fault.Is(err, fault.NotFound) {
			return false, nil // erased in the meantime
		}
		if err != nil {
			return false, err
		}
		for i := range msgs {
			m := &msgs[i]
			if m.State != memory.Superseded && (strings.Contains(strings.ToLower(m.Content), text) || strings.Contains(strings.ToLower(m.Original()), text)) {
				return true, nil
			}
		}
		if len(msgs) < page {
			return false, nil
		}
		after = msgs[len(msgs)-1].Seq
	}
}
