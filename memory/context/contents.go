package context

import (
	"context"
	"slices"
	"sort"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// contents is an agent's memory, or the end of it, in order of Seq, with each message also in the
// form that package window uses. It is immutable; a later version may share its arrays.
type contents struct {
	key       memory.Ref
	startMS   int64 // Agent.StartMS, which differs from that of an earlier agent with the same ID
	rev, base int64
	from      int64 // every message from this Seq on is in stored
	stored    []memory.Message
	views     []window.Message // of stored; a status keeps out what is not in memory
	// instructions are those of the memory before from. noted are the Seqs that the agent has of
	// them.
	instructions []memory.Message
	noted        []int64
	// unordered is set if turn numbers decrease somewhere; lastTurn is the highest.
	unordered bool
	lastTurn  int64
}

// load returns the newest least messages of an agent's memory or more, or all of it, and the older
// instructions, as of the head or later. After an append it reads only what was appended.
func (s *Service) load(ctx context.Context, ref memory.Ref, least int) (memory.Head, *contents, error) {
	h, err := s.messages.Head(ctx, ref.Project, ref.ID)
	if err != nil {
		return memory.Head{}, nil, err
	}
	if old := s.cache.get(ref); old != nil && old.usable(&h, least) {
		if old.rev >= h.Rev {
			return h, old, nil
		}
		const most = 256 // changes; with more, reading everything costs the same
		q := memory.MessageQuery{AfterSeq: old.from - 1, AfterRev: old.rev, Limit: most}
		if len(old.noted) > 0 {
			q.AfterSeq = old.noted[0] - 1
		}
		changed, err := s.messages.Page(ctx, ref.Project, ref.ID, q)
		if err != nil {
			return memory.Head{}, nil, err
		}
		if len(changed) < most && !slices.ContainsFunc(changed, func(m memory.Message) bool { return m.Seq < old.from && m.Role.Instructs() }) {
			return h, old.update(changed, h.Rev, s.cache), nil
		}
	}
	for {
		h, msgs, err := s.messages.Recent(ctx, ref.Project, ref.ID, least)
		if err != nil {
			return memory.Head{}, nil, err
		}
		from := h.Agent.Settings.Memory.ConversationStart()
		if len(msgs) == least {
			from = max(from, msgs[0].Seq)
		}
		at, _ := slices.BinarySearchFunc(msgs, from, func(m memory.Message, seq int64) int { return int(m.Seq - seq) })
		r := newContents(ref, &h, msgs[at:])
		r.from, r.noted = from, h.Agent.Settings.Memory.InstructionsBefore(from)
		ok, err := s.addInstructions(ctx, &h, r)
		if err != nil {
			return memory.Head{}, nil, err
		}
		if ok {
			s.cache.put(r)
			return h, r, nil
		}
	}
}

// addInstructions reads the instructions before the contents. It reports false if one of them
// changed after the head was read.
func (s *Service) addInstructions(ctx context.Context, h *memory.Head, r *contents) (ok bool, err error) {
	for _, seq := range r.noted {
		msgs, err := s.messages.Page(ctx, h.Agent.Project, h.Agent.ID, memory.MessageQuery{AfterSeq: seq - 1, Limit: 1})
		if err != nil {
			return false, err
		}
		if len(msgs) == 0 || msgs[0].Seq != seq {
			continue
		}
		if msgs[0].Rev > h.Rev {
			return false, nil
		}
		if msgs[0].InMemory() && msgs[0].Role.Instructs() {
			r.instructions = append(r.instructions, msgs[0])
		}
	}
	return true, nil
}

// usable reports whether cached contents are of this agent and memory, and long enough. They are
// read again when they have become far longer than a policy needs.
func (r *contents) usable(h *memory.Head, least int) bool {
	m := &h.Agent.Settings.Memory
	return r.startMS == h.Agent.StartMS && r.base == m.BaseSeq && r.reaches(h, least) && slices.Equal(r.noted, m.InstructionsBefore(r.from)) && len(r.stored) <= maxContents
}

// reaches reports whether the contents hold the newest n messages of the memory, or all of it.
func (r *contents) reaches(h *memory.Head, n int) bool {
	return r.from <= h.Agent.Settings.Memory.ConversationStart() || len(r.stored) >= n
}

func newContents(ref memory.Ref, h *memory.Head, stored []memory.Message) *contents {
	r := &contents{
		key: ref, startMS: h.Agent.StartMS, rev: h.Rev, base: h.Agent.Settings.Memory.BaseSeq,
		stored: stored, views: windowMessages(stored),
	}
	r.noteTurns(stored)
	return r
}

func windowMessages(msgs []memory.Message) []window.Message {
	out := make([]window.Message, len(msgs))
	for i := range msgs {
		out[i] = msgs[i].ForWindow()
	}
	return out
}

// update returns the contents after changes, which are in order of Seq, and caches them.
func (r *contents) update(changed []memory.Message, rev int64, c *cache) *contents {
	n := *r
	n.rev = rev
	end := int64(0)
	if len(r.stored) > 0 {
		end = r.stored[len(r.stored)-1].Seq
	}
	var older, newer []memory.Message
	for _, m := range changed {
		switch {
		case m.Seq < r.from:
		case m.Seq <= end:
			older = append(older, m)
		default:
			newer = append(newer, m)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Only the cached contents may append to their arrays, and what is in them never changes.
	if len(older) > 0 || c.get(r.key) != r {
		room := len(r.stored) + len(changed) + 16
		n.stored = append(make([]memory.Message, 0, room), r.stored...)
		n.views = append(make([]window.Message, 0, room), r.views...)
	}
	for i := range older {
		n.put(&older[i])
	}
	n.stored, n.views = append(n.stored, newer...), append(n.views, windowMessages(newer)...)
	if len(older) > 0 {
		n.unordered, n.lastTurn = false, 0
		n.noteTurns(n.stored)
	} else {
		n.noteTurns(newer)
	}
	c.put(&n)
	return &n
}

// put inserts or replaces a message.
func (r *contents) put(m *memory.Message) {
	at := sort.Search(len(r.stored), func(i int) bool { return r.stored[i].Seq >= m.Seq })
	if at < len(r.stored) && r.stored[at].Seq == m.Seq {
		r.stored[at], r.views[at] = *m, m.ForWindow()
	} else {
		r.stored, r.views = slices.Insert(r.stored, at, *m), slices.Insert(r.views, at, m.ForWindow())
	}
}

func (r *contents) noteTurns(msgs []memory.Message) {
	for i := range msgs {
		r.unordered = r.unordered || msgs[i].TurnID < r.lastTurn
		r.lastTurn = max(r.lastTurn, msgs[i].TurnID)
	}
}

// byTurn returns the contents in order of turns.
func (r *contents) byTurn() *contents {
	if !r.unordered {
		return r
	}
	n := *r
	n.stored = memory.ByTurn(r.stored)
	n.views = windowMessages(n.stored)
	return &n
}
