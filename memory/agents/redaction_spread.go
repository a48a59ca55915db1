package agents

import (
	"cmp"
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// redact replaces personal data in all that a change stores. view is nil for a new agent.
func (s *Messages) redact(ctx context.Context, c *memory.Change, view memory.AgentView, r *redact.Redactor) error {
	if r == nil {
		return nil
	}
	if view != nil {
		if err := c.Known(r, view); err != nil {
			return err
		}
	}
	err := s.redactSpread(ctx, c, view, r)
	redactChange(c, r)
	return err
}

// redactSpread replaces the parts of numbers and addresses that are spread over several messages,
// if the change brings the last of them. What is stored of them already is changed too, with the
// events that hold it; the records of requests that hold it are dropped. A change that brings no
// such part costs a look at the first words of its messages.
func (s *Messages) redactSpread(ctx context.Context, c *memory.Change, view memory.AgentView, r *redact.Redactor) error {
	if !bringsRest(c.Append, r) && !bringsRest(c.Replace, r) {
		return nil
	}
	e := edit{c: c}
	var agent *memory.Agent
	if view != nil {
		h := view.Head()
		agent, e.rev = h.Agent, h.Rev+1
		var err error
		if e.stored, err = view.Last(redact.MaxLines); err != nil {
			return err
		}
	}
	e.apply()
	is := e.redact(r)
	if len(is) == 0 {
		return nil
	}
	e.dropRequests(is)
	if agent == nil || s.cfg.Reworded == nil {
		return nil
	}
	events, err := s.cfg.Reworded(ctx, agent.Project, agent.ID, e.stored, is)
	c.Rewritten = append(c.Rewritten, events...)
	return err
}

// bringsRest reports whether one of the messages may have the rest of a number.
func bringsRest(list []memory.Message, r *redact.Redactor) bool {
	if r == nil {
		return false
	}
	return slices.ContainsFunc(list, func(m memory.Message) bool {
		l, said := m.Line()
		return said && r.Continues(l.Text)
	})
}

// edit changes further messages in a change.
type edit struct {
	c      *memory.Change
	rev    int64
	stored []memory.Message // the newest before the change
	after  []memory.Message // the newest after it
}

// apply sets after, and makes lists that may be changed.
func (e *edit) apply() {
	e.c.Append, e.c.Replace = slices.Clone(e.c.Append), slices.Clone(e.c.Replace)
	e.after = slices.Concat(e.stored, e.c.Append)
	for i := range e.c.Replace {
		if at := bySeq(e.after, e.c.Replace[i].Seq); at >= 0 {
			e.after[at] = e.c.Replace[i]
		}
	}
	slices.SortStableFunc(e.after, func(a, b memory.Message) int { return cmp.Compare(a.Seq, b.Seq) })
}

// redact replaces what is spread over several messages, and returns these.
func (e *edit) redact(r *redact.Redactor) (changed []memory.Message) {
	var lines []redact.Line
	var at []int // in after
	for i := range e.after {
		if l, said := e.after[i].Line(); said {
			lines, at = append(lines, l), append(at, i)
		}
	}
	for i, pieces := range r.Spread(lines) {
		if len(pieces) == 0 {
			continue
		}
		by := r
		if bySeq(e.stored, e.after[at[i]].Seq) >= 0 {
			by = r.Again()
		}
		m := e.after[at[i]].Redacted(by.Knowing(pieces))
		if m.Made().Was != nil { // only records that are dropped refer to it
			m.Amend(func(d *memory.Details) { d.Was = nil })
		}
		e.put(&m)
		e.after[at[i]] = m
		changed = append(changed, m)
	}
	return changed
}

// put puts a message into the change.
func (e *edit) put(m *memory.Message) {
	for _, list := range [2][]memory.Message{e.c.Append, e.c.Replace} {
		if i := bySeq(list, m.Seq); i >= 0 {
			list[i] = *m
			return
		}
	}
	m.Rev = e.rev
	e.c.Replace = append(e.c.Replace, *m)
}

// dropRequests drops the records of requests that have words of changed messages.
func (e *edit) dropRequests(changed []memory.Message) {
	dropped := map[int64]bool{}
	for i := range e.after {
		m := e.after[i]
		t := m.Made().Request
		if t == nil || !dropped[t.Of] && !slices.ContainsFunc(t.Own(), func(seq int64) bool { return bySeq(changed, seq) >= 0 }) {
			continue
		}
		dropped[m.Seq] = true
		m.DropRequest()
		e.put(&m)
	}
}

func bySeq(list []memory.Message, seq int64) int {
	return slices.IndexFunc(list, func(m memory.Message) bool { return m.Seq == seq })
}
