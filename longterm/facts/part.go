package facts

import (
	"context"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

// Read is how far a call was read for facts. The zero value is not at all.
type Read struct {
	UpTo int64 // the last message
	Rev  int64 // the agent's revision then: an answer that has changed since is read again
}

// maxEarlier is how many turns that were read before a prompt shows again.
const maxEarlier = 20

// Part returns what to ask a model about what was said in the call of an agent after from, and how
// far that reads; ExtractPart takes the answer. Of a call that is running it reads up to the
// caller's last words that an answer follows: that answer may still be spoken, and words that were
// not answered may still change. ok is false if there is nothing new, if the call has as many facts
// as it may, or if no facts of the caller may be kept. The end of a call may still add agreements.
func (s *Service) Part(ctx context.Context, project, user, agentID string, from Read, running bool) (p Prompt, to Read, ok bool, err error) {
	x := &extraction{agentID: agentID, from: from}
	known, ok, err := s.begin(ctx, project, user, x)
	if !ok || err != nil {
		return p, from, false, err
	}
	to = Read{UpTo: x.end(running), Rev: x.version.Rev}
	var earlier, turns []memory.Message
	ok = false
	for i, m := range x.msgs {
		switch {
		case !counts(&m) || m.Seq > to.UpTo:
		case m.Seq > x.from.UpTo:
			turns = append(turns, m)
			ok = ok || m.Role == memory.User
		case x.changed(&m), i > 0 && m.Role == memory.User && x.changed(&x.msgs[i-1]):
			turns, ok = append(turns, m), true
		default:
			earlier = append(earlier, m)
		}
	}
	return newPrompt(known, earlier[max(0, len(earlier)-maxEarlier):], turns), to, ok && (x.of < MaxExtracted || !running && x.of < 2*MaxExtracted), nil
}

// resume counts the facts that were extracted from the call, and moves from to where the last
// extraction that stored one has ended: it may have stored its facts and not how far it read.
func (x *extraction) resume(c *caller) {
	x.of = 0
	for _, e := range c.facts {
		if e.By == ByExtractor && e.Source != nil && e.Source.AgentID == x.agentID && x.agentID != "" {
			if e.State == Active || e.State == Draft {
				x.of++
			}
			if e.Source.Read > x.from.UpTo {
				x.from = Read{UpTo: e.Source.Read, Rev: math.MaxInt64}
			}
		}
	}
}

// end returns the last message of the call that may be read.
func (x *extraction) end(running bool) (seq int64) {
	for i := range slices.Backward(x.msgs) {
		switch m := &x.msgs[i]; {
		case !counts(m):
		case !running || seq > 0 && m.Role == memory.User:
			return m.Seq
		case m.Role == memory.Assistant:
			seq = m.Seq
		}
	}
	return 0
}

// changed reports whether an answer that was read before has changed since.
func (x *extraction) changed(m *memory.Message) bool {
	return m.Role == memory.Assistant && m.State == memory.Final && m.Rev > x.from.Rev && m.Seq <= x.from.UpTo && counts(m)
}

// isNew reports whether a fact rests on what was not read before: its quote, or the words that an
// agreement needs besides, which may follow its source.
func (x *extraction) isNew(n *New) bool {
	src := n.Source
	msgs := slices.DeleteFunc(slices.Clone(x.msgs), func(m memory.Message) bool { return !counts(&m) })
	at := find(msgs, src)
	if len(at) > 0 && at[len(at)-1].Seq > x.from.UpTo {
		return true
	}
	agrees := n.Kind == Agreement || !slices.ContainsFunc(recall.Terms(src.Quote), func(t recall.Term) bool { return !assent[t[0]] })
	if !agrees {
		return false
	}
	for _, m := range msgs {
		switch {
		case m.Seq < src.FromSeq:
		case m.Seq > x.from.UpTo && (m.Seq <= src.ToSeq || src.Speaker == speakerAssistant && m.Role == memory.User), x.changed(&m) && m.Seq <= src.ToSeq:
			return true
		case m.Seq > src.ToSeq && m.Role == memory.User && consents([]memory.Message{m}): // it was read
			return false
		}
	}
	return false
}

// begin reads the call and what is known of the caller. ok is false if no facts of the caller may
// be kept.
func (s *Service) begin(ctx context.Context, project, user string, x *extraction) (known []*Fact, ok bool, err error) {
	if err := s.allowed(ctx, project, user); err != nil {
		if fault.Is(err, fault.Forbidden) {
			err = nil
		}
		return nil, false, err
	}
	if err := s.load(ctx, project, user, x); err != nil {
		return nil, false, err
	}
	c, err := s.current(ctx, project, user)
	if err != nil {
		return nil, false, err
	}
	defer c.leave()
	x.resume(c)
	known = c.list(func(f *Fact) bool {
		return f.State == Active || f.State == Draft && f.Source != nil && f.Source.AgentID == x.agentID
	})
	slices.SortStableFunc(known, lastSeen)
	return known, true, nil
}
