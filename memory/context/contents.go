package context

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// contents is an agent's memory, or the end of it, in order of Seq, with each message also in the
// form that package window uses. It is immutable; a later version may share its arrays.
type contents struct {
	key       agentKey
	startMS   int64 // Agent.StartMS, which differs from that of an earlier agent with the same ID
	rev, base int64
	stored    []memory.Message
	views     []window.Message // of stored; a status keeps out what is not in memory
	// unordered is set if turn numbers decrease somewhere; lastTurn is the highest.
	unordered bool
	lastTurn  int64
	extent    extent
}

// extent is which part of a long memory contents hold: lead system messages, which are all of them
// before from, and then everything from Seq from on. The zero value is all of the memory. See
// memory.Front.
type extent struct {
	from int64
	lead int
	// noSystem is set if the system messages before from are missing because there are too many.
	noSystem         bool
	missing, unheard int   // messages in memory, and unheard answers, that are missing
	minTurn          int64 // a message with a lower turn would belong before from
}

// loadAll returns an agent's whole memory, as of its head or later. After an append it reads only
// what was appended.
func (s *Service) loadAll(ctx context.Context, project, id string) (memory.Head, *contents, error) {
	return s.load(ctx, project, id, func(*memory.Head) int { return math.MaxInt })
}

// load returns an agent's memory. Of a long memory it may return the end only: at least as many
// messages of the ledger as atLeast returns.
func (s *Service) load(ctx context.Context, project, id string, atLeast func(*memory.Head) int) (memory.Head, *contents, error) {
	k := agentKey{project, id}
	h, err := s.Head(ctx, project, id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	least := atLeast(&h)
	old := s.cache.get(k)
	if old != nil && old.usable(&h, least) {
		if old.rev >= h.Rev {
			return h, old, nil
		}
		const most = 256 // changes; with more, reading everything costs the same
		changed, err := s.Messages(ctx, project, id, memory.MessageQuery{AfterRev: old.rev, Limit: most})
		if err != nil {
			return memory.Head{}, nil, err
		}
		if len(changed) < most && old.covers(changed) {
			return h, old.update(changed, h.Rev, s.cache), nil
		}
	}
	if least < math.MaxInt {
		if h, r, err := s.loadEnd(ctx, k, least); r != nil || err != nil {
			return h, r, err
		}
	}
	h, stored, err := s.SinceBase(ctx, project, id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	r := newContents(k, &h, stored, extent{})
	s.cache.put(r)
	return h, r, nil
}

// usable reports whether cached contents are of this agent and memory, and long enough.
func (r *contents) usable(h *memory.Head, least int) bool {
	base := h.Agent.Settings.Memory.BaseSeq
	return r.startMS == h.Agent.StartMS && r.base == base && (r.extent.from <= base || len(r.stored)-r.extent.lead >= least)
}

func newContents(k agentKey, h *memory.Head, stored []memory.Message, e extent) *contents {
	r := &contents{key: k, startMS: h.Agent.StartMS, rev: h.Rev, base: h.Agent.Settings.Memory.BaseSeq, stored: stored, views: windowMessages(stored), extent: e}
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

// loadEnd reads the end of a long memory, at least so many messages of the ledger, and the system
// messages before it. It returns nil contents if the memory is not that long, or changed while it
// was read.
func (s *Service) loadEnd(ctx context.Context, k agentKey, least int) (memory.Head, *contents, error) {
	h, err := s.Head(ctx, k.project, k.id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	m := &h.Agent.Settings.Memory
	if m.Front == nil {
		return h, nil, nil
	}
	const spare = 16 // for messages that arrive meanwhile
	n := max(least, int(h.NextSeq-m.Front.Seq)+spare)
	if int64(n) >= h.NextSeq-max(m.BaseSeq, 1) {
		return h, nil, nil
	}
	h, msgs, err := s.Recent(ctx, k.project, k.id, n)
	if err != nil {
		return memory.Head{}, nil, err
	}
	m = &h.Agent.Settings.Memory
	if f := m.Front; f == nil || len(msgs) < n || msgs[0].Seq <= max(m.BaseSeq, 1) || msgs[0].Seq > f.Seq {
		return h, nil, nil
	}
	e := extentOf(m, msgs)
	if e.from < m.Front.Seq && m.Front.Unordered {
		return h, nil, nil
	}
	if !m.Front.Many {
		lead, ok, err := s.systemBefore(ctx, &h, e.from)
		if !ok || err != nil {
			return h, nil, err
		}
		e.lead = len(lead)
		e.missing -= len(lead)
		msgs = append(lead, msgs...)
	}
	r := newContents(k, &h, msgs, e)
	if !r.covers(msgs[e.lead:]) { // a turn began before the end
		return h, nil, nil
	}
	s.cache.put(r)
	return h, r, nil
}

// extentOf returns the extent of contents that begin with the first of msgs, without the system
// messages before it. That message is counted in the memory's front, or the first one after it.
func extentOf(m *memory.Memory, msgs []memory.Message) extent {
	f := m.Front
	e := extent{from: msgs[0].Seq, noSystem: f.Many, minTurn: f.LastTurn}
	if e.from < f.Seq {
		e.minTurn = msgs[0].TurnID
	}
	e.missing, e.unheard = f.Missing(msgs)
	return e
}

// systemBefore reads the system messages of a memory before a Seq. ok is false if one of them
// changed after the head was read.
func (s *Service) systemBefore(ctx context.Context, h *memory.Head, seq int64) (list []memory.Message, ok bool, err error) {
	for _, at := range h.Agent.Settings.Memory.Front.Before(seq) {
		msgs, err := s.Messages(ctx, h.Agent.Project, h.Agent.ID, memory.MessageQuery{AfterSeq: at - 1, Limit: 1})
		if err != nil {
			return nil, false, err
		}
		if len(msgs) == 0 || msgs[0].Seq != at || msgs[0].Rev > h.Rev || !msgs[0].InMemory() {
			return nil, false, nil
		}
		list = append(list, msgs[0])
	}
	return list, true, nil
}

// covers reports whether the contents can hold all changed messages.
func (r *contents) covers(changed []memory.Message) bool {
	if r.extent.from <= r.base {
		return true
	}
	return !slices.ContainsFunc(changed, func(m memory.Message) bool {
		return m.Seq >= r.base && (m.Seq < r.extent.from || m.TurnID < r.extent.minTurn)
	})
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
		case m.Seq < max(r.base, r.extent.from):
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

// maxEnd limits how long an end of a memory is tried before the whole memory is read.
const maxEnd = 32_000

// read returns what a model is given of a memory, and the contents that it was made from. It loads
// no more of the memory than the method needs. enough, if not nil, reports whether the contents are
// enough for the caller.
func (s *Service) read(ctx context.Context, project, id string, how func(*memory.Agent) (method, error), enough func(*contents) bool) (h memory.Head, r *contents, by method, v window.View, err error) {
	for least := 0; ; least = 4 * len(r.stored) {
		var bad error
		var rev int64
		h, r, err = s.load(ctx, project, id, func(h *memory.Head) int {
			rev = h.Agent.Rev
			if by, bad = how(h.Agent); bad != nil {
				return 0
			}
			if !by.policy.CutsPart() || by.extras.Scope != nil || least > maxEnd {
				return math.MaxInt
			}
			return least
		})
		// The agent changed before the messages were read.
		if err == nil && bad == nil && h.Agent.Rev != rev {
			by, bad = how(h.Agent)
		}
		if err = cmp.Or(err, bad); err != nil {
			return h, r, by, v, err
		}
		r = r.byTurn()
		e, missing := &r.extent, r.extent.missing
		if by.view.ShowsUnheard() {
			missing += e.unheard
		}
		var sure bool
		v, sure = by.policy.ReadPart(r.shownBy(by.view), e.lead, missing, e.noSystem, by.counter, by.extras)
		if sure && (e.from <= r.base || enough == nil || enough(r)) {
			return h, r, by, v, nil
		}
	}
}

// shownBy returns the messages as a view shows them: interrupted answers with the text that is
// shown of them, so that this is what a budget counts, and unheard answers only if the view shows
// them.
func (r *contents) shownBy(v *view.View) []window.Message {
	if !v.Projects() {
		return r.views
	}
	out := r.views
	for i := range r.stored {
		m := &r.stored[i]
		unplayed := m.State == memory.Unplayed && m.ShownBy(v)
		text := m.Content
		if len(m.Parts) == 0 {
			text = m.TextFor(v, m.Content)
		}
		if !unplayed && text == m.Content {
			continue
		}
		if &out[0] == &r.views[0] {
			out = slices.Clone(r.views)
		}
		if unplayed {
			out[i].Status = ""
		}
		if text != m.Content {
			out[i].Text, out[i].Parts, out[i].Chars = text, nil, 0
		}
	}
	return out
}
