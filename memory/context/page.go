package context

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// firstPage is how many messages a policy is given at first. An engine has as many in memory.
const firstPage = 48

// page is the end of a memory as a policy reads it: the instructions before it, and its newest
// messages in order of turns.
type page struct {
	lead, rest []memory.Message
	list       []window.Message // of both
	before     int              // messages before rest that are not in lead
}

// page returns the newest n messages of the contents, or with n of memory.MaxRead all that a policy
// may read.
func (r *contents) page(m *memory.Memory, n int, v *view.View) page {
	bound := max(0, len(r.stored)-memory.MaxRead)
	for bound < len(r.stored) && r.stored[bound].Seq < m.ConversationStart() {
		bound++
	}
	p := page{}
	lead := func(msg *memory.Message, w *window.Message) {
		p.lead, p.list = append(p.lead, *msg), append(p.list, *w)
	}
	for _, list := range [][]memory.Message{r.instructions, r.stored[:bound]} {
		for i := range list {
			msg := &list[i]
			if _, found := slices.BinarySearch(m.Instructions, msg.Seq); found && msg.InMemory() && msg.Role.Instructs() {
				w := msg.ForWindow()
				lead(msg, &w)
			}
		}
	}
	stored, views := r.stored[bound:], r.views[bound:]
	if r.unordered {
		stored = memory.ByTurn(stored)
		views = windowMessages(stored)
	}
	cut := max(0, len(stored)-n)
	for i := range views[:cut] {
		switch w := &views[i]; {
		case w.Status == "" && w.IsSystem():
			lead(&stored[i], w)
		case w.Status == "", stored[i].State == memory.Unplayed && stored[i].ShownBy(v):
			p.before++
		}
	}
	p.rest = stored[cut:]
	shared := len(p.lead) == 0
	if shared {
		p.list = views[cut:]
	} else {
		p.list = append(p.list, views[cut:]...)
	}
	p.show(v, shared)
	return p
}

// at returns the stored message at a place of the list.
func (p *page) at(i int) *memory.Message {
	if i < len(p.lead) {
		return &p.lead[i]
	}
	return &p.rest[i-len(p.lead)]
}

// show changes the list to what a view shows: interrupted answers with the text that is shown of
// them, so that this is what a budget counts, and unheard answers only if the view shows them. A
// shared list is copied before.
func (p *page) show(v *view.View, shared bool) {
	if !v.Projects() {
		return
	}
	for i := range p.list {
		m := p.at(i)
		unplayed := m.State == memory.Unplayed && m.ShownBy(v)
		text := m.Content
		if len(m.Parts) == 0 {
			text = m.TextFor(v, m.Content)
		}
		if !unplayed && text == m.Content {
			continue
		}
		if shared {
			p.list, shared = slices.Clone(p.list), false
		}
		w := &p.list[i]
		if unplayed {
			w.Status = ""
		}
		if text != m.Content {
			w.Text, w.Parts, w.Chars = text, nil, 0
		}
	}
}

// cutWords reports whether a policy left words of the user out of the view that opened their turn,
// and keeps something after them. Then it keeps nothing of what is before the page, either, since
// no message before such words belongs to one after them.
func (p *page) cutWords(v *window.View) bool {
	kept := slices.IndexFunc(v.Entries, func(e window.Entry) bool { return e.Index >= len(p.lead) && !e.Message.IsSystem() })
	if kept < 0 {
		return false
	}
	at := v.Entries[kept].Index
	for i := len(p.lead); i < at; i++ {
		w, m := &p.list[i], p.at(i)
		if w.Status == "" && m.Role == memory.User && m.Opens && (w.Links == nil || len(w.Links.Results) == 0) {
			return true
		}
	}
	return false
}

// hasQuestion reports whether the page holds words of the user.
func (p *page) hasQuestion() bool {
	return slices.ContainsFunc(p.rest, func(m memory.Message) bool { return m.Role == memory.User && m.InContext() })
}

// read returns what a model is given of a memory, and the page that it was made from. It reads the
// newest messages, and more as long as the policy could keep them, or the page has no words of the
// user and asks is set. With counts set the view's Dropped is right, for which everything is read.
func (s *Service) read(ctx context.Context, ref memory.Ref, how func(*memory.Agent) (method, error), counts, asks bool) (h memory.Head, p page, by method, v window.View, err error) {
	least := firstPage
	if counts {
		least = memory.MaxRead
	}
	var r *contents
	for n := firstPage; ; n = min(4*n, memory.MaxRead) {
		if r == nil || !r.reaches(&h, n) {
			if h, r, err = s.load(ctx, ref, max(n, least)); err != nil {
				return h, p, by, v, err
			}
			if by, err = how(h.Agent); err != nil {
				return h, p, by, v, err
			}
		}
		m := &h.Agent.Settings.Memory
		if n < memory.MaxRead && (!by.policy.KeepsEnd() || by.extras.Scope != nil || len(m.Instructions) >= memory.MaxInstructions) {
			n = memory.MaxRead
			continue
		}
		p = r.page(m, n, by.view)
		v = by.policy.Read(p.list, by.counter, by.extras)
		all := n == memory.MaxRead || r.from <= m.ConversationStart() && len(p.rest) < n
		if all || (!*by.policy.Enabled || p.cutWords(&v)) && (!asks || p.hasQuestion()) {
			v.Dropped += p.before
			return h, p, by, v, nil
		}
	}
}
