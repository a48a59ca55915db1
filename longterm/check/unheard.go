package check

import (
	"unicode/utf8"

	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

// minName is how many characters a word behind a demonstrative has at least.
const minName = 4

// unheard finds sentences of the agent that rest on a part of an earlier answer that the caller did
// not hear: by words such as "as I said" with a word that stands nowhere but in that part, or by a
// demonstrative before such a word ("that deposit"), if the sentence does not say what that part
// said. A sentence that says all of it is as it should be.
func (c *call) unheard() (out []Finding) {
	for i := range c.list {
		u := &c.list[i]
		if !u.agent || u.m.Source != memory.SourceLLM && u.m.Source != memory.SourceCommand {
			continue
		}
		for j := range u.heard {
			s := u.heard[j]
			refers := referring.has(s.words) && !resuming.has(s.words)
			if refers && len(s.terms) == 0 && j+1 < len(u.heard) {
				s.terms = u.heard[j+1].terms // "I told you. The deposit …"
			}
			var from *memory.Message
			var lost *sentence
			if refers {
				from, lost = c.lost(i, &s, true)
			} else if name := named(&s); name != nil {
				one := s
				one.terms = []recall.Term{name}
				if from, lost = c.lost(i, &one, false); lost != nil && 2*shared(&s, lost) > len(lost.terms) {
					lost = nil
				}
			}
			if lost != nil {
				out = append(out, Finding{Check: Unheard, At: placeOf(u.m, s.text), Before: placeOf(from, lost.text)})
				break
			}
		}
	}
	return out
}

// lost returns the unheard sentence before utterance i that has a term of s which was neither
// heard nor said before. If s refers, it has at least half of the terms of s.
func (c *call) lost(i int, s *sentence, refers bool) (*memory.Message, *sentence) {
	heardOf := 0
	var fresh []recall.Term
	for _, t := range s.terms {
		if c.known(t, i) {
			heardOf++
		} else {
			fresh = append(fresh, t)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	steps := 0
	for j := i - 1; j >= max(0, i-lookBack); j-- {
		o := &c.list[j]
		if !o.agent {
			continue
		}
		if steps++; !refers && steps > 3 {
			break
		}
		for k := range o.lost {
			l := &o.lost[k]
			if c.left -= len(fresh) * len(l.terms); c.left < 0 {
				return nil, nil
			}
			n := 0
			for _, t := range fresh {
				if in(t, l.terms) {
					n++
				}
			}
			if n > 0 && 2*(n+heardOf) >= len(s.terms) && 2*n >= len(fresh) {
				return o.m, l
			}
		}
	}
	return nil, nil
}

// known reports whether a term was heard or said before an utterance.
func (c *call) known(t recall.Term, i int) bool {
	for _, form := range t {
		if at, ok := c.said[form]; ok && at < i {
			return true
		}
	}
	return false
}

// named returns the term right behind a demonstrative, nil for none.
func named(s *sentence) recall.Term {
	for i := 0; i+1 < len(s.words); i++ {
		name := s.words[i+1 : i+2]
		if demonstratives.at(s.words[i:]) != 1 || times.has(name) || utf8.RuneCountInString(name[0]) < minName {
			continue
		}
		for _, t := range s.terms {
			if t[0] == name[0] {
				return t
			}
		}
	}
	return nil
}

// shared returns how many terms of l are in s.
func shared(s, l *sentence) (n int) {
	for _, t := range l.terms {
		if in(t, s.terms) {
			n++
		}
	}
	return n
}
