package agents

import (
	"cmp"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// How many Seqs may lie between the start of the memory and the first message that is still in it,
// before the start moves up: Memory.BaseSeq, and Memory.ConversationFrom, so that a cut on write
// reads little more than what the memory holds.
const (
	farBehind = 256
	behind    = 32
)

// cut applies the agent's policy to a change that appends, if the policy applies on write: first
// between the last stored message and the first new one, then to the whole memory. Messages that
// leave the memory are marked and stay in the ledger.
func (s *Messages) cut(view memory.AgentView, c *memory.Change, out *Appended) error {
	h := view.Head()
	p := s.policies.Of(h.Agent, nil)
	cuttable, err := s.cuttableOf(view, &h, &p, c.Append)
	if cuttable == nil || err != nil {
		return err
	}
	list, counter := cuttable.list, cuttable.counter
	old := len(list)
	list = append(list, c.Append...)
	views := windowMessages(list)
	was := slices.Clone(list[:old])
	if last := lastInMemory(list[:old]); last >= 0 && list[old].Counts() {
		switch seam := p.Seam(&views[last], views[old:]); {
		case seam.DropLast:
			list[last].State = memory.Dropped
		case seam.MergeFirst:
			list[last].Merge(&list[old], seam.Text)
			list[old].State = memory.Merged
			out.Merged = append(out.Merged, Merge{list[old].Seq, list[last].Seq})
		}
		views[last], views[old] = list[last].ForWindow(), list[old].ForWindow()
	}
	gone := p.Cut(views, counter)
	for _, i := range gone {
		list[i].State = memory.Dropped
	}
	rev := h.Rev + 1
	for i := range was {
		if list[i].State != was[i].State || list[i].Content != was[i].Content {
			list[i].Rev = rev
			c.Replace = append(c.Replace, list[i])
		}
	}
	byNew := map[int64]*memory.Message{}
	for i := range list {
		if list[i].State == memory.Dropped && (i >= old || was[i].State != memory.Dropped) {
			out.Dropped = append(out.Dropped, list[i].Seq)
		}
		if i >= old {
			c.Append[i-old] = list[i]
			byNew[list[i].Seq] = &list[i]
		}
	}
	for i := range out.Messages {
		if now := byNew[out.Messages[i].Seq]; now != nil {
			out.Messages[i] = *now
		}
	}
	if cuttable.whole || len(gone) > 0 {
		advance(c, &h, list)
	}
	return nil
}

// cuttable is what a cut on write works on.
type cuttable struct {
	list    []memory.Message // a copy, in order of Seq
	counter window.Counter
	// whole is set if list is all of the memory, and not only the end that the cut needs.
	whole bool
}

// cuttableOf returns the messages since the start of the memory, or as much of the end as the cut
// needs if added are appended. It returns nil if the policy does not apply on write.
func (s *Messages) cuttableOf(view memory.AgentView, h *memory.Head, p *window.Policy, added []memory.Message) (*cuttable, error) {
	if p.Apply != window.OnWrite || !*p.Enabled {
		return nil, nil
	}
	counter, err := s.policies.Counter(p)
	if err != nil {
		return nil, err
	}
	m := &h.Agent.Settings.Memory
	since := int(max(h.NextSeq-m.ConversationStart(), 0))
	all := min(since, memory.MaxRead)
	n := all
	if p.Spares(all + len(m.Instructions) + len(added)) { // only the last message matters
		n = min(n, behind)
	}
	for ; ; n = min(4*n, all) {
		stored, err := view.Last(n)
		if err != nil {
			return nil, err
		}
		first, _ := slices.BinarySearchFunc(stored, m.ConversationStart(), func(m memory.Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
		list := stored[first:]
		if n < all && lastInMemory(list) < 0 {
			continue
		}
		before := h.NextSeq
		if len(list) > 0 {
			before = list[0].Seq
		}
		out := make([]memory.Message, 0, len(list)+len(added)+len(m.Instructions))
		for _, seq := range m.InstructionsBefore(before) {
			msg, err := view.Seq(seq)
			if err != nil {
				return nil, err
			}
			out = append(out, msg)
		}
		return &cuttable{append(out, list...), counter, n == since}, nil
	}
}

// advance moves the start of the memory up if it is far before the first message that is still in
// it, and ConversationFrom if only instructions are before that.
func advance(c *memory.Change, h *memory.Head, list []memory.Message) {
	a := *h.Agent
	m := &a.Settings.Memory
	first := slices.IndexFunc(list, func(m memory.Message) bool { return m.InMemory() })
	if first < 0 {
		return
	}
	if list[first].Seq-max(m.BaseSeq, 1) > farBehind {
		m.BaseSeq, a.Rev = list[first].Seq, h.Rev+1
		c.Agent = &a
	}
	other := slices.IndexFunc(list, func(m memory.Message) bool { return m.InMemory() && !m.Role.Instructs() })
	if other >= 0 && list[other].Seq-m.ConversationStart() > behind {
		m.SetConversationStart(list[other].Seq)
		c.Agent = &a
	}
}

// cutBehind applies the policy after an answer was stored in its reserved place. The answer itself
// is not cut.
func (s *Messages) cutBehind(view memory.AgentView, c *memory.Change) error {
	h := view.Head()
	if h.Agent.Status.Ended() {
		return nil
	}
	p := s.policies.Of(h.Agent, nil)
	cuttable, err := s.cuttableOf(view, &h, &p, c.Append)
	if cuttable == nil || err != nil {
		return err
	}
	list, counter := append(cuttable.list, c.Append...), cuttable.counter
	slices.SortFunc(list, func(a, b memory.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	gone := p.Cut(windowMessages(list), counter)
	for _, i := range gone {
		if slices.ContainsFunc(c.Append, func(m memory.Message) bool { return m.Seq == list[i].Seq }) {
			continue
		}
		list[i].State, list[i].Rev = memory.Dropped, h.Rev+1
		c.Replace = append(c.Replace, list[i])
	}
	if cuttable.whole || len(gone) > 0 {
		advance(c, &h, list)
	}
	return nil
}

func lastInMemory(list []memory.Message) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].InMemory() {
			return i
		}
	}
	return -1
}

// windowMessages returns messages in the form that package window uses.
func windowMessages(msgs []memory.Message) []window.Message {
	out := make([]window.Message, len(msgs))
	for i := range msgs {
		out[i] = msgs[i].ForWindow()
		out[i].Ref = i
	}
	return out
}
