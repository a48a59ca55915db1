package memory

import (
	"cmp"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// Front counts the messages at the start of a long memory, so that making a context, or cutting a
// memory on write, reads only its newest messages. The Service keeps it in the agent and moves it
// forward from time to time; a missing one is made with the next append. It is immutable once set.
type Front struct {
	// Seq is where it ends: it counts messages from Memory.BaseSeq up to Seq, without Seq itself.
	Seq int64 `json:"seq"`
	// Count is how many of them are in memory. Unheard is how many are answers of which nothing was
	// heard; some projections show them.
	Count   int64 `json:"count,omitempty"`
	Unheard int64 `json:"unheard,omitempty"`
	// Removed is how many of all that it counts were cleared: what is left of them is a place.
	Removed int64 `json:"removed,omitempty"`
	// System are the Seqs of system messages in memory, ascending. If there are more than
	// MaxFrontSystem, Many is set instead.
	System []int64 `json:"system,omitempty"`
	Many   bool    `json:"many,omitempty"`
	// LastTurn is the highest turn. Unordered is set if turns decrease somewhere.
	LastTurn  int64 `json:"last_turn,omitempty"`
	Unordered bool  `json:"unordered,omitempty"`
}

// Bounds of a Front.
const (
	// MaxFrontSystem limits Front.System. With more system messages, policies that keep them read
	// the whole memory.
	MaxFrontSystem = 64
	// frontEvery is how many messages may be uncounted. An engine has as many in memory. Then the
	// front begins or moves forward, up to the last frontLeaves.
	frontEvery  = 48
	frontLeaves = 16
)

// unheard reports whether the message is an answer of which nothing was heard. Projections may show
// it; see View.Shows.
func (m *Message) unheard() bool {
	return m.State == Unplayed && m.Role == Assistant && m.Status == Accepted && m.Original() != ""
}

// add counts a message in, or out with n = -1. Its place may be anywhere.
func (f *Front) add(m *Message, n int64) {
	if m.unheard() {
		f.Unheard += n
	}
	if m.State == Removed {
		f.Removed += n
	}
	if !m.InMemory() {
		return
	}
	f.Count += n
	if !m.Role.Instructs() || f.Many {
		return
	}
	at, found := slices.BinarySearch(f.System, m.Seq)
	switch {
	case n < 0 && found:
		f.System = slices.Delete(slices.Clone(f.System), at, at+1)
	case n > 0 && !found:
		f.System = slices.Insert(slices.Clone(f.System), at, m.Seq)
		if len(f.System) > MaxFrontSystem {
			f.System, f.Many = nil, true
		}
	}
}

// same reports whether two fronts are equal.
func (f *Front) same(g *Front) bool {
	if f == nil || g == nil {
		return f == g
	}
	return f.Seq == g.Seq && f.Count == g.Count && f.Unheard == g.Unheard && f.Removed == g.Removed && f.Many == g.Many && f.LastTurn == g.LastTurn && f.Unordered == g.Unordered && slices.Equal(f.System, g.System)
}

// KeepFront adds to a change the agent's Front as it is after the change. The head and the view are
// those before it.
func (c *Change) KeepFront(view AgentView, head *Head) error {
	was, base := head.Agent.Settings.Memory.Front, head.Agent.Settings.Memory.BaseSeq
	if head.Agent.Archived() {
		return nil
	}
	now := base
	if c.Agent != nil {
		now = c.Agent.Settings.Memory.BaseSeq
	}
	var f *Front
	switch {
	case now != base: // another memory, or less of it: counted again when it is long
		if was == nil {
			return nil
		}
	default:
		var err error
		if f, err = was.changed(view, base, c); err != nil {
			return err
		}
		if f, err = f.movedOn(view, head, c); err != nil {
			return err
		}
	}
	if c.Agent != nil {
		c.Agent.Settings.Memory.Front = f
		return nil
	}
	if !f.same(was) {
		a := *head.Agent
		a.Settings.Memory.Front = f // nothing that a live tail shows: the agent keeps its Rev
		c.Agent = &a
	}
	return nil
}

// movedOn returns the front, moved forward if the change appends and many messages are not counted
// then. It counts what the change appends too, so that messages are counted while they are in
// memory.
func (f *Front) movedOn(view AgentView, head *Head, c *Change) (*Front, error) {
	from := max(head.Agent.Settings.Memory.BaseSeq, 1)
	if f != nil {
		from = f.Seq
	}
	next := head.NextSeq
	for i := range c.Append {
		next = max(next, c.Append[i].Seq+1)
	}
	if len(c.Append) == 0 || next-from <= frontEvery {
		return f, nil
	}
	stored, err := view.Last(int(head.NextSeq - from))
	if err != nil {
		return f, err
	}
	list := uncounted(stored, c, from)
	end := boundary(list, len(list)-frontLeaves)
	if end <= 0 {
		return f, nil
	}
	n := Front{LastTurn: -1}
	if f != nil {
		n = *f
	}
	for _, m := range list[:end] {
		n.add(m, 1)
		n.Unordered = n.Unordered || m.TurnID < n.LastTurn
		n.LastTurn = max(n.LastTurn, m.TurnID)
	}
	n.Seq = list[end].Seq
	return &n, nil
}

// uncounted returns the messages with a Seq of at least from as they are after a change, in order.
func uncounted(stored []Message, c *Change, from int64) []*Message {
	out := make([]*Message, 0, len(stored)+len(c.Append))
	for _, list := range [][]Message{stored, c.Append} {
		for i := range list {
			if list[i].Seq >= from {
				out = append(out, &list[i])
			}
		}
	}
	bySeq := func(a, b *Message) int { return cmp.Compare(a.Seq, b.Seq) }
	slices.SortStableFunc(out, bySeq)
	for i := range c.Replace {
		if at, found := slices.BinarySearchFunc(out, &c.Replace[i], bySeq); found {
			out[at] = &c.Replace[i]
		}
	}
	return out
}

// boundary returns the last index, up to most, at which no turn has messages on both sides. It
// returns most if there is none, and 0 if the list is too short.
func boundary(list []*Message, most int) int {
	if most <= 0 {
		return 0
	}
	least := int64(math.MaxInt64) // lowest turn from the index on
	for i := len(list) - 1; i >= most; i-- {
		least = min(least, list[i].TurnID)
	}
	highest := make([]int64, most)
	for i := range highest {
		highest[i] = list[i].TurnID
		if i > 0 {
			highest[i] = max(highest[i], highest[i-1])
		}
	}
	for at := most; at > 0; at-- {
		if highest[at-1] < least {
			return at
		}
		least = min(least, list[at-1].TurnID)
	}
	return most
}

// changed returns the front after a change to the messages that it counts.
func (f *Front) changed(view AgentView, base int64, c *Change) (*Front, error) {
	if f == nil {
		return nil, nil
	}
	n := *f
	for i := range c.Replace {
		m := &c.Replace[i]
		if m.Seq >= f.Seq || m.Seq < base {
			continue
		}
		old, err := view.Seq(m.Seq)
		if fault.Is(err, fault.NotFound) {
			continue // the store refuses the change
		}
		if err != nil {
			return f, err
		}
		n.add(&old, -1)
		n.add(m, 1)
		n.moved(m.TurnID, m.TurnID != old.TurnID)
	}
	for i := range c.Append {
		// A late answer in a place that was kept free for it.
		if m := &c.Append[i]; m.Seq < f.Seq && m.Seq >= base {
			n.add(m, 1)
			n.moved(m.TurnID, true)
		}
	}
	return &n, nil
}

// moved notes the turn of a message that came between others.
func (f *Front) moved(turn int64, did bool) {
	if did {
		f.Unordered, f.LastTurn = true, max(f.LastTurn, turn)
	}
}

// Missing returns how many messages in memory the front counts that are not among msgs, which are
// in order of Seq, and how many unheard answers.
func (f *Front) Missing(msgs []Message) (count, unheard int) {
	count, unheard = int(f.Count), int(f.Unheard)
	for i := range msgs {
		m := &msgs[i]
		if m.Seq >= f.Seq {
			break
		}
		if m.InMemory() {
			count--
		}
		if m.unheard() {
			unheard--
		}
	}
	return count, unheard
}

// Before returns the Seqs of the system messages before a Seq.
func (f *Front) Before(seq int64) []int64 {
	at, _ := slices.BinarySearch(f.System, seq)
	return f.System[:at]
}
