package memory

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/heardlog/heardlog/memory/window"
)

// recalled is an agent's memory as the rules of a window see it: what stands since the memory's beginning, in order of Seq, and beside each message what window
// looks at. It is a value that is not changed: what comes later makes another one, which may share its arrays.
type recalled struct {
	key       agentKey
	made      int64 // Agent.StartMS, which tells an agent from an earlier one of the same id
	rev, base int64
	stored    []Message
	views     []window.Message // same places; what is not in memory has a status that keeps it out
	place     *list.Element
	// unordered tells that turns went down in order of Seq; lastTurn is the last one.
	unordered bool
	lastTurn  int64
	part      recalledPart
}

// recalledPart says what is at hand of a long memory whose beginning the agent has counted (see Front): lead system messages, all that are in front, then everything from
// the Seq from on. The zero value is all of it.
type recalledPart struct {
	from             int64
	lead             int
	bare             bool  // the system messages in front are not at hand: they are too many
	missing, unheard int   // what is not at hand: messages in memory, and answers that nobody heard
	floor            int64 // no turn behind from may be below it: that one would belong in front
}

// maxRecalled is how many messages are kept so, of all agents together: some 20 MB beside the texts.
const maxRecalled = 20_000

// recallCache keeps what was recalled, so that a memory of a thousand messages is not read and counted anew for each message that is added. Its zero value
// is ready. What it gives is checked against the agent's head.
type recallCache struct {
	mu    sync.Mutex
	byKey map[agentKey]*recalled
	order list.List // of *recalled, those asked for last in front
	size  int
}

func (c *recallCache) get(k agentKey) *recalled {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.byKey[k]
	if r != nil {
		c.order.MoveToFront(r.place)
	}
	return r
}

// put keeps r in place of whatever is kept of its agent. The caller holds mu.
func (c *recallCache) put(r *recalled) {
	if c.byKey == nil {
		c.byKey = map[agentKey]*recalled{}
	}
	c.drop(c.byKey[r.key])
	if len(r.stored) > maxRecalled/2 {
		return // it would push out all others, and is read anew each time
	}
	r.place = c.order.PushFront(r)
	c.byKey[r.key] = r
	c.size += len(r.stored)
	for c.size > maxRecalled {
		c.drop(c.order.Back().Value.(*recalled))
	}
}

func (c *recallCache) drop(r *recalled) {
	if r == nil || c.byKey[r.key] != r {
		return
	}
	c.order.Remove(r.place)
	delete(c.byKey, r.key)
	c.size -= len(r.stored)
}

func (c *recallCache) forget(k agentKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.byKey[k])
}

// remembered gives an agent's memory, all of it, as of its head or later. After an append it reads and counts what was appended, and no more.
func (s *Service) remembered(ctx context.Context, project, id string) (Head, *recalled, error) {
	return s.recalled(ctx, project, id, func(*Head) int { return math.MaxInt })
}

// recalled is remembered, of the newest messages only where the memory is so long that its beginning is counted: at least so many of the ledger as atLeast says.
func (s *Service) recalled(ctx context.Context, project, id string, atLeast func(*Head) int) (Head, *recalled, error) {
	k := agentKey{project, id}
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	m, least := &h.Agent.Settings.Memory, atLeast(&h)
	old := s.recall.get(k)
	if old != nil && old.made == h.Agent.StartMS && old.base == m.BaseSeq && (old.part.from <= m.BaseSeq || len(old.stored)-old.part.lead >= least) {
		if old.rev >= h.Rev {
			return h, old, nil
		}
		const most = 256 // changes; past that reading all is as good
		changed, err := s.cfg.Store.Messages(ctx, project, id, MessageQuery{AfterRev: old.rev, Limit: most})
		if err != nil {
			return Head{}, nil, err
		}
		if len(changed) < most && old.holds(changed) {
			r := old.with(changed, h.Rev, &s.recall)
			return h, r, nil
		}
	}
	if least < math.MaxInt {
		if h, r, err := s.recallPart(ctx, k, least); r != nil || err != nil {
			return h, r, err
		}
	}
	h, stored, err := s.sinceBase(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	r := newRecalled(k, &h, stored, recalledPart{})
	r.noteTurns(stored)
	s.recall.keep(r)
	return h, r, nil
}

func newRecalled(k agentKey, h *Head, stored []Message, part recalledPart) *recalled {
	r := &recalled{key: k, made: h.Agent.StartMS, rev: h.Rev, base: h.Agent.Settings.Memory.BaseSeq, stored: stored, views: viewsOf(stored), part: part}
	return r
}

// recallPart reads the end of a long memory, at least so many messages of the ledger, and the system messages in front of it; nil where there is no such part, or a
// change came between.
func (s *Service) recallPart(ctx context.Context, k agentKey, least int) (Head, *recalled, error) {
	h, err := s.cfg.Store.Head(ctx, k.project, k.id)
	if err != nil {
		return Head{}, nil, err
	}
	m := &h.Agent.Settings.Memory
	if m.Front == nil {
		return h, nil, nil
	}
	const spare = 16 // what comes meanwhile
	n := max(least, int(h.NextSeq-m.Front.Seq)+spare)
	if int64(n) >= h.NextSeq-max(m.BaseSeq, 1) {
		return h, nil, nil
	}
	h, msgs, err := s.cfg.Store.Recent(ctx, k.project, k.id, n, false)
	if err != nil {
		return Head{}, nil, err
	}
	m = &h.Agent.Settings.Memory
	if f := m.Front; f == nil || len(msgs) < n || msgs[0].Seq <= max(m.BaseSeq, 1) || msgs[0].Seq > f.Seq {
		return h, nil, nil
	}
	part := m.partFrom(msgs)
	if part.from < m.Front.Seq && m.Front.Unordered {
		return h, nil, nil
	}
	if !m.Front.Many {
		lead, ok, err := s.systemBefore(ctx, &h, part.from)
		if !ok || err != nil {
			return h, nil, err
		}
		part.lead = len(lead)
		part.missing -= len(lead)
		msgs = append(lead, msgs...)
	}
	r := newRecalled(k, &h, msgs, part)
	r.noteTurns(msgs)
	if !r.holds(msgs[part.lead:]) { // a turn goes on from far in front
		return h, nil, nil
	}
	s.recall.keep(r)
	return h, r, nil
}

// partFrom gives the part of a memory that begins with the first of msgs, without the system messages in front. msgs begin in the front, or where it ends.
func (m *Memory) partFrom(msgs []Message) recalledPart {
	f := m.Front
	p := recalledPart{from: msgs[0].Seq, bare: f.Many, floor: f.LastTurn}
	if p.from < f.Seq {
		p.floor = msgs[0].TurnID
	}
	p.missing, p.unheard = f.missing(msgs)
	return p
}

// holds tells whether changed messages have their place in what is at hand.
func (r *recalled) holds(changed []Message) bool {
	if r.part.from <= r.base {
		return true
	}
	return !slices.ContainsFunc(changed, func(m Message) bool {
		return m.Seq >= r.base && (m.Seq < r.part.from || m.TurnID < r.part.floor)
	})
}

func (c *recallCache) keep(r *recalled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(r)
}

// with gives what r is after changes, in order of Seq, and keeps it.
func (r *recalled) with(changed []Message, rev int64, c *recallCache) *recalled {
	n := *r
	n.rev, n.place = rev, nil
	end := int64(0)
	if len(r.stored) > 0 {
		end = r.stored[len(r.stored)-1].Seq
	}
	var older, newer []Message
	views := make([]window.Message, 0, len(changed))
	for _, m := range changed {
		switch {
		case m.Seq < max(r.base, r.part.from):
		case m.Seq <= end:
			older = append(older, m)
		default:
			newer, views = append(newer, m), append(views, m.view())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(older) > 0 || c.byKey[r.key] != r { // only the one that is kept may grow its arrays, and what stands in them never changes
		room := len(r.stored) + len(changed) + 16
		n.stored = append(make([]Message, 0, room), r.stored...)
		n.views = append(make([]window.Message, 0, room), r.views...)
	}
	for i := range older {
		m := &older[i]
		at := sort.Search(len(n.stored), func(i int) bool { return n.stored[i].Seq >= m.Seq })
		if at < len(n.stored) && n.stored[at].Seq == m.Seq {
			n.stored[at], n.views[at] = *m, m.view()
		} else {
			n.stored, n.views = slices.Insert(n.stored, at, *m), slices.Insert(n.views, at, m.view())
		}
	}
	n.stored, n.views = append(n.stored, newer...), append(n.views, views...)
	if len(older) > 0 {
		n.unordered, n.lastTurn = false, 0
		n.noteTurns(n.stored)
	} else {
		n.noteTurns(newer)
	}
	c.put(&n)
	return &n
}

func (r *recalled) noteTurns(msgs []Message) {
	for i := range msgs {
		r.unordered = r.unordered || msgs[i].TurnID < r.lastTurn
		r.lastTurn = max(r.lastTurn, msgs[i].TurnID)
	}
}

// reading is how a memory is read for an LLM.
type reading struct {
	policy  window.Policy // full
	counter window.Counter
	view    *View
	extras  window.Extras
}

// read gives what an LLM is told of a memory as how says, with no more of it at hand than that takes. wants says, of what is at hand, whether it will do for the caller; nil is yes.
func (s *Service) read(ctx context.Context, project, id string, how func(*Agent) (reading, error), wants func(*recalled) bool) (h Head, r *recalled, by reading, v window.View, err error) {
	for least := 0; ; least = 4 * len(r.stored) {
		var bad error
		var rev int64
		h, r, err = s.recalled(ctx, project, id, func(h *Head) int {
			rev = h.Agent.Rev
			if by, bad = how(&h.Agent); bad != nil {
				return 0
			}
			if !by.policy.CutsPart() || by.extras.Scope != nil || least > maxPart {
				return math.MaxInt
			}
			return least
		})
		if err == nil && bad == nil && h.Agent.Rev != rev {
			by, bad = how(&h.Agent) // as of the messages
		}
		if err = cmp.Or(err, bad); err != nil {
			return h, r, by, v, err
		}
		r = r.byTurn()
		p, missing := &r.part, r.part.missing
		if q := by.view.projection(); q == HeardAndUnsaid || q == GeneratedWhole {
			missing += p.unheard
		}
		var sure bool
		if v, sure = by.policy.ReadPart(r.seenBy(by.view), p.lead, missing, p.bare, by.counter, by.extras); sure && (p.from <= r.base || wants == nil || wants(r)) {
			return h, r, by, v, nil
		}
	}
}

// maxPart is how long an end of a memory may be that is looked at before all of it is.
const maxPart = 32_000

// byTurn gives the memory in order of its turns: see the function of that name.
func (r *recalled) byTurn() *recalled {
	if !r.unordered {
		return r
	}
	n := *r
	n.stored = byTurn(r.stored)
	n.views = make([]window.Message, len(n.stored))
	for i := range n.stored {
		n.views[i] = n.stored[i].view()
	}
	return &n
}

// sinceBase reads what stands in the ledger since the memory's beginning, of every role and state, with the head as of the same moment.
func (s *Service) sinceBase(ctx context.Context, project, id string) (Head, []Message, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	for {
		n := max(h.NextSeq-max(h.Agent.Settings.Memory.BaseSeq, 1), 0) + 16 // what comes meanwhile
		var msgs []Message
		if h, msgs, err = s.cfg.Store.Recent(ctx, project, id, int(n), false); err != nil {
			return Head{}, nil, err
		}
		if int64(len(msgs)) < n || msgs[0].Seq <= max(h.Agent.Settings.Memory.BaseSeq, 1) {
			return h, h.Agent.Settings.Memory.since(msgs), nil
		}
	}
}

// Remembered gives what an agent remembers: the messages that Memory.Holds, in order of Seq, with the head as of the same moment or earlier.
func (s *Service) Remembered(ctx context.Context, project, id string) (Head, []Message, error) {
	h, stored, err := s.sinceBase(ctx, project, id)
	if err != nil {
		return Head{}, nil, err
	}
	out := make([]Message, 0, len(stored))
	for i := range stored {
		if stored[i].InMemory() {
			out = append(out, stored[i])
		}
	}
	return h, out, nil
}

// view gives what the rules of a window look at of a message.
func (m *Message) view() window.Message {
	v := window.Message{
		Role: m.WireRole(), Text: m.Content, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName,
		Chars: int(m.Size()), Importance: m.Importance(), Interrupted: m.Interrupted, Category: m.Category(),
	}
	if m.Content == "" && len(m.Parts) == 0 && len(m.ToolCalls) > 0 {
		v.Parts = json.RawMessage("null")
	}
	if !m.InMemory() {
		v.Status = window.Discard
	}
	if s := m.Scope(); s != (Scope{}) {
		v.Scope = &window.Scope{UserID: s.UserID, SessionID: s.SessionID, TaskID: s.TaskID}
	}
	if len(v.Parts) > 0 || len(v.ToolCalls) > 0 || v.Role == window.Tool {
		links := v.ReadLinks() // once, and not at each reading
		v.Links = &links
	}
	return v
}

// WireRole gives the role under which the message came and goes: results in blocks are a user message to those who write them so, and a tool's to us.
func (m *Message) WireRole() Role {
	if m.Role == Tool && m.ToolCallID == "" && len(m.Parts) > 0 {
		return User
	}
	return m.Role
}

// OnlyResults tells whether a content is made of results of tools and nothing else: tool_result blocks, as Anthropic's format has them.
func OnlyResults(parts json.RawMessage) bool {
	if !bytes.Contains(parts, []byte(`"tool_result"`)) {
		return false
	}
	var blocks []struct{ Type string }
	if json.Unmarshal(parts, &blocks) != nil {
		return false
	}
	for _, b := range blocks {
		if b.Type != "tool_result" {
			return false
		}
	}
	return true
}
