package check

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

// call is a call as its parties spoke.
type call struct {
	msgs []memory.Message
	list []utterance
	said map[string]int // where a form of a term was first heard by or from the caller: its utterance
	left int            // steps
}

// utterance is what one of the parties said at a time. That of a caller has only heard sentences.
type utterance struct {
	m     *memory.Message
	agent bool
	heard []sentence
	// lost is what the agent wanted to say and the caller did not hear.
	lost []sentence
	cut  bool // the last heard sentence may have been heard in part
	sure bool // what was heard is known, or nothing speaks against all of it
}

// sentence is a sentence with its words in their normal form.
type sentence struct {
	text  string
	words []string
	norm  string        // the words between spaces, with one at each end
	terms []recall.Term // that carry meaning here
	asks  bool          // it is a question
	// mayAsk is set if it may be one: transcripts of speech may have no marks, or wrong ones.
	mayAsk bool
}

func newCall(msgs []memory.Message) *call {
	c := &call{msgs: msgs, said: map[string]int{}, left: maxSteps}
	for i := range msgs {
		m := &msgs[i]
		if m.Filed().CopyOf != 0 || len(m.Original()) > maxText || m.Status != memory.Accepted {
			continue
		}
		u := utterance{m: m}
		switch {
		case byCaller(m) && (m.State == memory.Final || m.State == memory.Dropped):
			u.heard, u.sure = sentencesOf(m.Content), true
		case m.Role == memory.Assistant:
			if !u.answer(m) {
				continue
			}
		default:
			continue
		}
		for i := range u.heard {
			for _, t := range u.heard[i].terms {
				for _, form := range t {
					if _, ok := c.said[form]; !ok {
						c.said[form] = len(c.list)
					}
				}
			}
		}
		c.list = append(c.list, u)
	}
	return c
}

// answer sets what was heard of an answer, and reports whether it counts.
func (u *utterance) answer(m *memory.Message) bool {
	u.agent = true
	switch m.State {
	case memory.Final, memory.Dropped:
	case memory.Unplayed, memory.Replaced:
		u.lost = sentencesOf(m.Original())
		return true
	default:
		return false
	}
	known := m.Content
	u.heard, u.sure = sentencesOf(known), !m.Interrupted || m.Method.Rank() >= memory.RateEstimate.Rank()
	whole := m.Original()
	if !m.Interrupted || len(known) >= len(whole) {
		return true
	}
	if !strings.HasPrefix(whole, known) {
		prefix, ok := heard.Align(whole, known)
		if !ok {
			return true
		}
		known = prefix
	}
	rest := whole[len(known):]
	u.cut = strings.TrimSpace(rest[text.Marks(rest):]) != "" && !endsSentence(known, rest)
	u.lost = sentencesOf(rest)
	if u.cut && m.Method == memory.RateEstimate && len(u.lost) > 0 {
		u.lost = u.lost[1:] // where in the sentence it was cut is a guess
	}
	return true
}

func endsSentence(before, rest string) bool {
	last, _ := utf8.DecodeLastRuneInString(strings.TrimSpace(before))
	first, _ := utf8.DecodeRuneInString(rest)
	return strings.ContainsRune(text.SentenceEnds, last) || strings.ContainsRune(text.SentenceEnds, first)
}

func sentencesOf(s string) (out []sentence) {
	for part := range text.Sentences(s) {
		if x := newSentence(part); len(x.words) > 0 {
			out = append(out, x)
		}
	}
	return out
}

func newSentence(s string) sentence {
	norm := heard.Normalize(s)
	if !strings.ContainsFunc(norm, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return sentence{}
	}
	x := sentence{text: s, words: strings.Fields(norm), norm: " " + norm + " ", mayAsk: recall.Asks(s)}
	x.asks = strings.ContainsAny(s, "?？؟") || x.mayAsk && !strings.ContainsAny(s, text.SentenceEnds)
	for _, t := range recall.Terms(s) {
		if !light.has(strings.Fields(heard.Normalize(t[0]))) {
			x.terms = append(x.terms, t)
		}
	}
	return x
}

// same reports whether two terms are forms of one word.
func same(a, b recall.Term) bool {
	return slices.ContainsFunc(a, func(form string) bool { return slices.Contains(b, form) })
}

// in reports whether a term is among others.
func in(t recall.Term, list []recall.Term) bool {
	return slices.ContainsFunc(list, func(o recall.Term) bool { return same(t, o) })
}

// alike reports whether a sentence says the same as an earlier one: all of its words stand there in
// a row, most of them in this order and none of its own, or both have the same words of meaning.
// Words that turn the meaning round (not, before, without) and numbers must be the same.
func (s *sentence) alike(e *sentence) bool {
	if s.norm == e.norm {
		return true
	}
	for _, t := range s.terms {
		if !in(t, e.terms) {
			return false
		}
	}
	if len(s.terms) == 0 {
		return false
	}
	if at := strings.Index(e.norm, s.norm); at >= 0 && len(s.words) >= 5 {
		before := strings.Fields(e.norm[:at])
		return len(before) == 0 || !turning.has(before[len(before)-1:])
	}
	if !allIn(e.terms, s.terms) || !slices.Equal(turning.found(s.words), turning.found(e.words)) {
		return false
	}
	if len(s.words) >= 5 && 5*commonWords(s.words, e.words) >= 4*max(len(s.words), len(e.words)) {
		return !exchanged(s.words, e.words)
	}
	return len(s.terms) >= 4 && len(s.terms) == len(e.terms) && !exchanged(s.words, e.words)
}

func allIn(list, others []recall.Term) bool {
	return !slices.ContainsFunc(list, func(t recall.Term) bool { return !in(t, others) })
}

// exchanged reports whether two words have exchanged those before or behind them, as Munich and
// Berlin do in "from Munich to Berlin" and "from Berlin to Munich".
func exchanged(a, b []string) bool {
	for _, by := range []int{-1, 1} {
		next := func(words []string) map[string]string {
			out := map[string]string{}
			for i, w := range words {
				if at := i + by; at >= 0 && at < len(words) {
					out[w] = words[at]
				}
			}
			return out
		}
		na, nb := next(a), next(b)
		for x, by := range na {
			for y, other := range na {
				if x != y && by != other && nb[x] == other && nb[y] == by {
					return true
				}
			}
		}
	}
	return false
}

// commonWords returns the length of the longest common subsequence of the words.
func commonWords(a, b []string) int {
	if len(a) > 200 || len(b) > 200 {
		return 0
	}
	row := make([]int, len(b)+1)
	for _, w := range a {
		diagonal := 0
		for j, o := range b {
			was := row[j+1]
			if w == o {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = was
		}
	}
	return row[len(b)]
}
