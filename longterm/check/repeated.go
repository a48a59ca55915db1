package check

import (
	"github.com/heardlog/heardlog/memory"
)

const (
	// lookBack is how many utterances before one are compared with it.
	lookBack = 200
	// informing is how many words of meaning a sentence has at least that can be repeated.
	informing = 3
)

// repeated finds sentences of the agent that the caller had heard before.
//
// Repeating is right where the caller asks for it, and where the caller's words are about the same:
// then the agent answers or confirms. It may be the answer to a question in other words if it comes
// first. It is also right in a recap. An answer that says nothing else is a repetition only if the
// caller had just taken note.
func (c *call) repeated() (out []Finding) {
	for i := range c.list {
		u := &c.list[i]
		if !u.agent || u.m.Source != memory.SourceLLM {
			continue
		}
		said := c.before(i)
		if said == nil || said.wants() || closingIn(u.heard) {
			continue
		}
		var hit *Finding
		other := false // it says something else
		for j := range u.heard {
			s := &u.heard[j]
			if u.cut && j == len(u.heard)-1 {
				break
			}
			switch m, e := c.earlier(i, s); {
			case e == nil:
				other = other || s.asks || len(s.terms) > 0
			case hit == nil && !said.about(s) && (said.noted || u.restarts(c, i, m) || !pointing.has(s.words) && (other || !said.asks)):
				hit = &Finding{Check: Repeated, At: placeOf(u.m, s.text), Before: placeOf(m, e.text)}
			}
		}
		if hit != nil && (other || said.noted) {
			out = append(out, *hit)
		}
	}
	return out
}

// earlier returns the sentence that the caller heard before an utterance and that says the same as
// s, and its message.
func (c *call) earlier(i int, s *sentence) (*memory.Message, *sentence) {
	if len(s.terms) < informing || s.asks || requests.has(s.words) || referring.has(s.words) {
		return nil, nil
	}
	for j := i - 1; j >= max(0, i-lookBack); j-- {
		u := &c.list[j]
		if !u.agent || !u.sure || j == i-1 && u.m.TurnID == c.list[i].m.TurnID {
			continue
		}
		for k := range u.heard {
			e := &u.heard[k]
			last := k == len(u.heard)-1
			if last && (u.cut || u.m.Interrupted && u.m.Method.Rank() <= memory.RateEstimate.Rank()) {
				continue
			}
			if c.left -= len(s.words); c.left < 0 {
				return nil, nil
			}
			if s.alike(e) {
				return u.m, e
			}
		}
	}
	return nil, nil
}

// restarts reports whether an utterance follows a cut answer of which it says a part again.
func (u *utterance) restarts(c *call, i int, m *memory.Message) bool {
	for j := i - 1; j >= 0; j-- {
		if c.list[j].agent {
			return c.list[j].m == m && m.Interrupted
		}
	}
	return false
}

// words are what the caller said between two utterances of the agent.
type words struct {
	list  []sentence
	all   []string
	noted bool // nothing but that the caller has taken note
	asks  bool
}

// before returns what the caller said right before an utterance; nil for nothing.
func (c *call) before(i int) *words {
	w := &words{noted: true}
	for j := i - 1; j >= 0 && !c.list[j].agent; j-- {
		for k := range c.list[j].heard {
			s := c.list[j].heard[k]
			w.list, w.all = append(w.list, s), append(w.all, s.words...)
			w.noted = w.noted && acknowledged.only(s.words)
			w.asks = w.asks || s.mayAsk
		}
	}
	if len(w.list) == 0 {
		return nil
	}
	return w
}

// wants reports whether the caller may want to hear something again: the words say so, or they are
// a question without words of its own, such as "and when?".
func (w *words) wants() bool {
	if w.noted && !w.asks {
		return false
	}
	if again.has(w.all) {
		return true
	}
	for i := range w.list {
		if len(w.list[i].terms) > 0 {
			return false
		}
	}
	return true
}

// about reports whether the caller's words have a word of meaning of a sentence.
func (w *words) about(s *sentence) bool {
	for i := range w.list {
		for _, t := range w.list[i].terms {
			if in(t, s.terms) {
				return true
			}
		}
	}
	return false
}

func closingIn(list []sentence) bool {
	for i := range list {
		if closing.has(list[i].words) {
			return true
		}
	}
	return false
}
