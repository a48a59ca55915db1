package check

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

const (
	// within is how many utterances may lie between two questions of an agent, or of a caller.
	within = 16
	// shortReply is how many words a reply has at most that is nothing but the answer.
	shortReply = 4
	// longTurn is how many words of the caller may bring up something new, for which an agent may
	// ask the same again.
	longTurn = 8
)

// askedAgain finds questions that were asked a second time although they had been answered.
func (c *call) askedAgain() (out []Finding) {
	for i := range c.list {
		u := &c.list[i]
		if u.agent && u.m.Source != memory.SourceLLM {
			continue
		}
		for j := range u.heard {
			s := &u.heard[j]
			if !s.asks || len(s.words) < 3 && len(s.words[0]) < 10 || routine.only(termsOf(s)) {
				continue
			}
			f := Finding{Check: AskedAgain, By: memory.User}
			var e *sentence
			var m *memory.Message
			if u.agent {
				f.By = memory.Assistant
				m, e = c.answeredBefore(i, s)
			} else {
				m, e, f.Unheard = c.askedBefore(i, s)
			}
			if e != nil {
				f.At, f.Before = placeOf(u.m, s.text), placeOf(m, e.text)
				out = append(out, f)
				break
			}
		}
	}
	return out
}

func termsOf(s *sentence) (out []string) {
	for _, t := range s.terms {
		out = append(out, t[0])
	}
	return out
}

// sameQuestion reports whether two questions ask the same.
func sameQuestion(s, e *sentence) bool {
	if !e.asks || len(s.terms) == 0 {
		return false
	}
	if s.norm == e.norm {
		return true
	}
	return len(s.terms) >= 2 && len(s.terms) == len(e.terms) && allIn(s.terms, e.terms) && allIn(e.terms, s.terms) &&
		slices.Equal(turning.found(s.words), turning.found(e.words)) && !exchanged(s.words, e.words)
}

// answeredBefore returns a question of the agent before utterance i that is the same as s and that
// the caller has answered: with a number where one was asked for, with yes or no, with a few words
// that are nothing but an answer, or with words that the agent has taken up.
func (c *call) answeredBefore(i int, s *sentence) (*memory.Message, *sentence) {
	for j := i - 1; j >= max(0, i-within); j-- {
		u := &c.list[j]
		if !u.agent {
			if len(u.heard) > 0 && j < i && changing.has(wordsOf(u)) {
				return nil, nil
			}
			continue
		}
		if u.m.TurnID == c.list[i].m.TurnID {
			continue
		}
		for k := range u.heard {
			e := &u.heard[k]
			if u.cut && k == len(u.heard)-1 || k < len(u.heard)-1 && u.heard[len(u.heard)-1].asks || !sameQuestion(s, e) {
				continue
			}
			if c.answered(j, i, e) {
				return u.m, e
			}
			return nil, nil
		}
	}
	return nil, nil
}

// answered reports whether the caller has answered a question of utterance j before utterance i.
func (c *call) answered(j, i int, e *sentence) bool {
	if j+1 >= i || c.list[j+1].agent {
		return false
	}
	var all []string
	var reply []sentence
	for at := j + 1; at < i; at++ {
		u := &c.list[at]
		if !u.agent && len(reply) > 0 && len(wordsOf(u)) > longTurn {
			return false
		}
		if u.agent {
			if said := wordsOf(u); misheard.has(said) || failing.has(said) {
				return false // the agent has not understood, or the answer will not do
			}
			continue
		}
		if at == j+1 || !c.list[at-1].agent {
			if len(reply) == 0 || at == j+1 {
				reply = append(reply, u.heard...)
				all = append(all, wordsOf(u)...)
			}
		}
	}
	if i == j+2 && !c.list[i].onlyAsks() || misheard.has(wordsOf(&c.list[i])) || failing.has(wordsOf(&c.list[i])) {
		return false // the agent says why it asks again
	}
	if len(reply) == 0 || unanswered.has(all) || again.has(all) {
		return false
	}
	numbers := false
	for k := range reply {
		if reply[k].mayAsk {
			return false
		}
		numbers = numbers || hasNumber(e.text+" "+reply[k].text) && !hasNumber(e.text)
	}
	if figures.has(e.words) {
		return numbers
	}
	if c.takenUp(j+1, i, e, reply) {
		return true
	}
	return len(all) <= shortReply && numbersOrNames(reply) && !acknowledged.only(all)
}

// onlyAsks reports whether an answer has hardly anything but questions.
func (u *utterance) onlyAsks() bool {
	for k := range u.heard {
		if !u.heard[k].asks && len(u.heard[k].terms) > 1 {
			return false
		}
	}
	return len(u.heard) > 0
}

// takenUp reports whether the agent has said a word of the reply that was not in the question.
func (c *call) takenUp(from, to int, e *sentence, reply []sentence) bool {
	for at := from; at <= to; at++ {
		if !c.list[at].agent {
			continue
		}
		for k := range c.list[at].heard {
			for r := range reply {
				for _, t := range reply[r].terms {
					if !in(t, e.terms) && in(t, c.list[at].heard[k].terms) {
						return true
					}
				}
			}
		}
	}
	return false
}

// numbersOrNames reports whether a short reply has nothing but words of meaning.
func numbersOrNames(reply []sentence) bool {
	for k := range reply {
		s := &reply[k]
		words := 0
		for _, w := range s.words {
			if one := []string{w}; !light.has(one) && !acknowledged.has(one) {
				words++
			}
		}
		if first, _ := utf8.DecodeRuneInString(s.words[0]); text.Unspaced(first) {
			words-- // its terms are pairs of characters
		}
		if len(s.terms) < words || words == 0 {
			return false
		}
	}
	return len(reply) > 0
}

// hasNumber reports whether a text has a number, in digits or words.
func hasNumber(s string) bool {
	return slices.ContainsFunc(recall.IndexTerms(s), func(t string) bool {
		return strings.ContainsFunc(t, func(r rune) bool {
			return unicode.IsDigit(r) || strings.ContainsRune("零一二三四五六七八九十百〇两", r)
		})
	})
}

func wordsOf(u *utterance) (out []string) {
	for k := range u.heard {
		out = append(out, u.heard[k].words...)
	}
	return out
}

// askedBefore returns a question of the caller before utterance i that is the same as s and that
// the agent has answered, and whether the answer was not heard, or not whole.
func (c *call) askedBefore(i int, s *sentence) (m *memory.Message, e *sentence, unheard bool) {
	answers, cut := 0, false
	for j := i - 1; j >= max(0, i-within); j-- {
		u := &c.list[j]
		if u.agent {
			if misheard.has(wordsOf(u)) || u.onlyAsks() {
				return nil, nil, false
			}
			answers++
			cut = u.m.Interrupted || u.m.Content == ""
			continue
		}
		for k := range u.heard {
			e := &u.heard[k]
			if !sameQuestion(s, e) {
				continue
			}
			if answers == 0 || answers > 1 && pointing.has(s.words) {
				return nil, nil, false
			}
			return u.m, e, cut
		}
		if answers > 0 && pointing.has(s.words) && len(s.terms) < 3 {
			return nil, nil, false
		}
	}
	return nil, nil, false
}
