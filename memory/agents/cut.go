package agents

import (
	"cmp"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// farBehind is how many Seqs may lie between the start of the memory and the first message that is
// still in it. Beyond that the start moves up, so that a cut on write reads a limited number of
// messages.
const farBehind = 256

// cut applies the agent's policy to a change that appends, if the policy applies on write: first
// between the last stored message and the first new one, then to the whole memory. Messages that
// leave the memory are marked and stay in the ledger.
func (s *Service) cut(view memory.AgentView, c *memory.Change, out *Appended) error {
	h := view.Head()
	p := s.PolicyOf(h.Agent, nil)
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
	for _, i := range p.Cut(views, counter) {
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
	if !cuttable.spared {
		advanceBase(c, &h, list)
	}
	return nil
}

// cuttable is what a cut on write works on.
type cuttable struct {
	list    []memory.Message // a copy, in order of Seq
	counter window.Counter
	// spared is set if list is only the end of the memory, of which nothing will be cut.
	spared bool
}

// cuttableOf returns the messages since the start of the memory, or as much of the end as the cut
// needs if added are appended. It returns nil if the policy does not apply on write.
func (s *Service) cuttableOf(view memory.AgentView, h *memory.Head, p *window.Policy, added []memory.Message) (*cuttable, error) {
	if p.Apply != window.OnWrite || !*p.Enabled {
		return nil, nil
	}
	counter, err := s.Counter(p)
	if err != nil {
		return nil, err
	}
	m := &h.Agent.Settings.Memory
	all := int(max(h.NextSeq-max(m.BaseSeq, 1), 0))
	n := all
	if f := m.Front; f != nil && !f.Many {
		n = min(n, int(h.NextSeq-f.Seq))
	}
	for ; ; n = min(4*n, all) {
		stored, err := view.Last(n)
		if err != nil {
			return nil, err
		}
		list := m.Since(stored)
		if n == all || len(list) == 0 || len(list) < len(stored) {
			return &cuttable{list: slices.Clone(list), counter: counter}, nil
		}
		missing, _ := m.Front.Missing(list)
		out := make([]memory.Message, 0, len(list)+len(m.Front.System)+len(added))
		for _, seq := range m.Front.Before(list[0].Seq) {
			msg, err := view.Seq(seq)
			if err != nil {
				return nil, err
			}
			out = append(out, msg)
			missing--
		}
		last := lastInMemory(list)
		if out = append(out, list...); missing == 0 {
			return &cuttable{list: out, counter: counter}, nil
		}
		if last >= 0 && p.Spares(int(m.Front.Count)+len(list)+len(added)) {
			return &cuttable{out, counter, true}, nil
		}
	}
}

// advanceBase moves the start of the memory up if it is far before the first message that is still
// in it.
func advanceBase(c *memory.Change, h *memory.Head, list []memory.Message) {
	first := slices.IndexFunc(list, func(m memory.Message) bool { return m.InMemory() })
	if first >= 0 && list[first].Seq-max(h.Agent.Settings.Memory.BaseSeq, 1) > farBehind {
		a := *h.Agent
		a.Settings.Memory.BaseSeq, a.Rev = list[first].Seq, h.Rev+1
		c.Agent = &a
	}
}

// cutBehind applies the policy after an answer was stored in its reserved place. The answer itself
// is not cut.
func (s *Service) cutBehind(view memory.AgentView, c *memory.Change) error {
	h := view.Head()
	if h.Agent.Status.Ended() {
		return nil
	}
	p := s.PolicyOf(h.Agent, nil)
	cuttable, err := s.cuttableOf(view, &h, &p, c.Append)
	if cuttable == nil || err != nil {
		return err
	}
	list, counter := append(cuttable.list, c.Append...), cuttable.counter
	slices.SortFunc(list, func(a, b memory.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, i := range p.Cut(windowMessages(list), counter) {
		if slices.ContainsFunc(c.Append, func(m memory.Message) bool { return m.Seq == list[i].Seq }) {
			continue
		}
		list[i].State, list[i].Rev = memory.Dropped, h.Rev+1
		c.Replace = append(c.Replace, list[i])
	}
	if !cuttable.spared {
		advanceBase(c, &h, list)
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
