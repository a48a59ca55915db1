package away

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// agent is what is kept of one agent: the changes that are not stored yet, and the agent after
// them.
type agent struct {
	ref memory.Ref

	mu       sync.Mutex
	gone     bool             // it is no longer in the Keeper
	base     int64            // the next Seq before the first change
	added    []memory.Message // in order of Seq
	replaced []replaced       // messages that the store has
	events   []memory.Event   // about failures; others are made again
	settled  int              // turns
	open     int              // turns that are held
	failed   bool             // an error was reported
	expected bool             // it is created if it does not exist, with these labels
	labels   map[string]string

	// The agent after the changes; head.Agent is nil if it is not known yet.
	head memory.Head
	tail []memory.Message // the newest, in order of Seq
}

// replaced is a message with its new value.
type replaced struct {
	Was     int64 // Rev of the stored value; 0 if that is unknown
	Message memory.Message
}

func (a *agent) empty() bool { return len(a.added)+len(a.replaced) == 0 && a.open == 0 }

// know sets the agent as the store has it, and applies the changes.
func (a *agent) know(head memory.Head, list []memory.Message) {
	a.head, a.tail = head, slices.Clone(list)
	var c memory.Change
	c.Append = a.added
	for _, r := range a.replaced {
		c.Replace = append(c.Replace, r.Message)
	}
	a.apply(c)
}

// apply applies a change to head and tail.
func (a *agent) apply(c memory.Change) {
	if a.head.Agent != nil {
		a.head = a.head.Apply(c)
	}
	for _, m := range slices.Concat(c.Append, c.Replace) {
		if i, ok := find(a.tail, m.Seq); ok {
			a.tail = slices.Clone(a.tail) // readers may have it
			a.tail[i] = m
		} else {
			a.tail = slices.Insert(slices.Clip(a.tail), i, m)
		}
	}
}

// fits reports whether a change that was decided without those that are kept takes no place of
// them.
func (a *agent) fits(c memory.Change) bool {
	return !slices.ContainsFunc(c.Append, func(m memory.Message) bool {
		_, taken := find(a.added, m.Seq)
		return taken
	})
}

// revs returns the revisions of the stored values of messages, 0 where that is unknown.
func (a *agent) revs(list []memory.Message) []int64 {
	out := make([]int64, len(list))
	for i := range list {
		if at, ok := find(a.tail, list[i].Seq); ok {
			out[i] = a.tail[at].Rev
		}
	}
	return out
}

// take adds a change to those that are kept. base is the next Seq before it, was are the revisions
// of what it replaces.
func (a *agent) take(base int64, c memory.Change, was []int64, settled bool) {
	if len(a.added)+len(a.replaced) == 0 {
		a.base = base
	}
	for _, m := range c.Append {
		if i, ok := find(a.added, m.Seq); ok {
			a.added[i] = m
		} else {
			a.added = slices.Insert(a.added, i, m)
		}
	}
	for n, m := range c.Replace {
		if i, ok := find(a.added, m.Seq); ok {
			a.added[i] = m
			continue
		}
		if i := slices.IndexFunc(a.replaced, func(r replaced) bool { return r.Message.Seq == m.Seq }); i >= 0 {
			a.replaced[i].Message = m
			continue
		}
		a.replaced = append(a.replaced, replaced{was[n], m})
	}
	a.events = append(a.events, failures(c.Events)...)
	if settled {
		a.settled++
	}
	a.apply(c)
}

func find(list []memory.Message, seq int64) (int, bool) {
	return slices.BinarySearchFunc(list, seq, func(m memory.Message, seq int64) int { return int(m.Seq - seq) })
}

// stored returns the change that stores what is kept. late reports that something newer was stored
// meanwhile.
func (a *agent) stored(view memory.AgentView) (c memory.Change, late bool, err error) {
	h := view.Head()
	rev := h.Rev + 1
	newer, err := a.newer(view, h)
	if err != nil {
		return c, false, err
	}
	var behind []memory.Message
	for _, m := range a.added {
		if m.Seq >= a.base && len(newer) > 0 {
			behind = append(behind, m)
			continue
		}
		is, err := view.Seq(m.Seq)
		switch {
		case fault.Is(err, fault.NotFound):
			m.Rev = rev
			c.Append = append(c.Append, m)
		case err != nil:
			return c, false, err
		case !same(&is, &m):
			behind = append(behind, m)
		}
	}
	for _, r := range a.replaced {
		is, err := view.Seq(r.Message.Seq)
		if fault.Is(err, fault.NotFound) || err == nil && is.Rev != r.Was {
			continue // it was changed meanwhile
		} else if err != nil {
			return c, false, err
		}
		m := r.Message
		m.Rev = rev
		if len(newer) > 0 && m.AnswerSeq >= a.base {
			m.AnswerSeq = is.AnswerSeq // that place is taken
		}
		c.Replace = append(c.Replace, m)
	}
	if len(behind) > 0 {
		h = h.Apply(c)
		err = a.append(view, h, rev, behind, newer, &c)
		late = true
	}
	if len(c.Append) > 0 {
		c.Events = a.events
	}
	return c, late, err
}

// newer returns what was stored since the first change and is none of those that are kept.
func (a *agent) newer(view memory.AgentView, h memory.Head) ([]memory.Message, error) {
	list, err := view.Last(int(max(0, h.NextSeq-a.base)))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(list), func(m memory.Message) bool {
		i, ok := find(a.added, m.Seq)
		return m.Seq < a.base || ok && same(&m, &a.added[i])
	}), nil
}

// append adds messages behind those that were stored meanwhile, unless they are among them: another
// server may have them from the client's list, or from here.
func (a *agent) append(view memory.AgentView, h memory.Head, rev int64, list, newer []memory.Message, c *memory.Change) error {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = a.idOf(&list[i])
	}
	known, err := view.ByIDs(ids)
	if err != nil {
		return err
	}
	for i, m := range list {
		if _, ok := known[ids[i]]; ok {
			continue
		}
		if at := slices.IndexFunc(newer, func(n memory.Message) bool { return repeats(&n, &m) }); at >= 0 {
			newer = newer[at+1:]
			continue
		}
		m.ID, m.AnswerSeq, m.GivenTurn = ids[i], 0, false
		placed, err := h.Place(m, rev, m.Timestamp, false)
		if err != nil {
			return err
		}
		c.Append = append(c.Append, placed)
	}
	return nil
}

// idOf returns the ID of a message that is appended late: the same each time.
func (a *agent) idOf(m *memory.Message) string {
	if m.ID != "" {
		return m.ID
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d %s %q", a.ref.Project, a.ref.ID, m.Seq, m.Timestamp, m.Role, m.Content))
	return "kept-" + hex.EncodeToString(sum[:12])
}

// same reports whether a stored message is a kept one, perhaps with better evidence.
func same(is, kept *memory.Message) bool {
	return is.Role == kept.Role && is.Timestamp == kept.Timestamp && is.TurnID == kept.TurnID
}

// repeats reports whether a message that was stored later has the words of a kept one, or what was
// heard of them.
func repeats(is, kept *memory.Message) bool {
	if is.Role != kept.Role || is.Timestamp < kept.Timestamp {
		return false
	}
	a, b := strings.TrimSpace(is.Content), strings.TrimSpace(kept.Content)
	return a == b || is.Role == memory.Assistant && a != "" && strings.HasPrefix(strings.TrimSpace(kept.Original()), a)
}

// overlay is a locked agent as a decision sees it.
type overlay struct{ a *agent }

// Head implements memory.AgentView.
func (o overlay) Head() memory.Head { return o.a.head }

// Last implements memory.AgentView.
func (o overlay) Last(n int) ([]memory.Message, error) {
	return slices.Clone(o.a.tail[max(0, len(o.a.tail)-n):]), nil
}

// ByIDs implements memory.AgentView.
func (o overlay) ByIDs(ids []string) (map[string]memory.Message, error) {
	out := map[string]memory.Message{}
	for _, m := range o.a.tail {
		if m.ID != "" && slices.Contains(ids, m.ID) {
			out[m.ID] = m
		}
	}
	return out, nil
}

// Turn implements memory.AgentView.
func (o overlay) Turn(turnID int64) (out []memory.Message, _ error) {
	for _, m := range o.a.tail {
		if m.TurnID == turnID {
			out = append(out, m)
		}
	}
	return out, nil
}

// Seq implements memory.AgentView.
func (o overlay) Seq(seq int64) (memory.Message, error) {
	if i, ok := find(o.a.tail, seq); ok {
		return o.a.tail[i], nil
	}
	return memory.Message{}, fault.New(fault.NotFound, "there is no message with seq %d", seq)
}
