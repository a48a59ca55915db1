package echo

import (
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// This file finds the place where the list and the ledger say the same.

// step is one matched place: turns (from, to] of each list are the same user words.
type step struct{ aFrom, a, bFrom, b int }

// What a turn is worth that both lists have: its words, and what was answered.
const (
	sameWords = 4
	sameReply = 2
	maxScore  = sameWords + sameReply
	// otherReply is what other words than ours take off again.
	otherReply = 3
	// olderWords is what a place costs that leaves words of the list in front of the whole ledger.
	olderWords = 4
)

// place gives the best alignment, newest turn first, and how many of the newest known turns the list lacks; nil if there is none.
func (x *aligner) place(m, n int) (best []step, bestSkip int) {
	bestScore := 0
	var steps []step
	found := -1
	for skip := 0; skip < n && skip <= maxSkip; skip++ {
		for k := m; k >= 1 && k > m-maxAlignUsers; k-- {
			if found >= 0 && bestScore >= maxScore*min(maxWeighed-skip, n-skip, k)-3*skip {
				break // no place further back can be worth more
			}
			var score int
			steps, score = x.match(steps[:0], k, n-skip, maxWeighed-skip) // the same old turns count for each skip
			if score -= 3 * skip; len(steps) > 0 && (found < 0 || score > bestScore) {
				found, bestScore, bestSkip = k, score, skip
			}
		}
	}
	if found < 0 {
		return nil, 0
	}
	best, _ = x.match(steps[:0], found, n-bestSkip, maxAlignUsers)
	return best, bestSkip
}

// match walks back from turns k and n and gives at most most places where both lists say the same, newest first, and how much that is worth.
func (x *aligner) match(steps []step, k, n, most int) ([]step, int) {
	score := 0
	i, j := k, n
	for i >= 1 && j >= 1 && len(steps) < most {
		s, ok := x.sameUsers(i, j)
		if !ok {
			score--
			break
		}
		steps = append(steps, s)
		score += sameWords + x.sameAnswer(s.a, s.b)
		i, j = s.aFrom, s.bFrom
	}
	if j == 0 && i > 0 { // words older than the ledger: another place fits better, if there is one
		score -= olderWords
	}
	return steps, score
}

// sameUsers tells whether turns i and j end in the same user words, one of the lists perhaps having merged several into one.
func (x *aligner) sameUsers(i, j int) (step, bool) {
	u, v := &x.a[i], &x.b[j]
	if u.same(v) {
		return step{i - 1, i, j - 1, j}, true
	}
	if joined, from := joinBack(x.b, j, u); joined {
		return step{i - 1, i, from, j}, true
	}
	if joined, from := joinBack(x.a, i, v); joined {
		return step{from, i, j - 1, j}, true
	}
	if x.loose && x.sameAnswer(i, j) > 0 && x.tidied(u, v) {
		return step{i - 1, i, j - 1, j}, true
	}
	return step{}, false
}

// tidied tells whether one of u and v is the other with a prompt in front or behind, or u is v as a later transcript has it. It is asked where nothing else fits and what was answered agrees.
func (x *aligner) tidied(u, v *turnOf) bool {
	all, _ := u.words()
	said, _ := v.words()
	if within(all, said) || within(said, all) {
		return true
	}
	if x.likens++; x.likens > maxLikened {
		return false
	}
	g, h := fluent(likeWords(said)), fluent(likeWords(all))
	if len(g) == 0 || len(h) == 0 {
		return false
	}
	n, cost := likeness(g, h)
	return n == len(g) && 4*cost <= len(h) && 2*shared(g, h) >= len(g)
}

// same tells whether two user messages have the same words. One of them may name who speaks; two names must be one.
func (t *turnOf) same(o *turnOf) bool {
	if t.text == o.text {
		return true
	}
	norm, bare := t.words()
	other, unnamed := o.words()
	return norm == other || bare == other || norm == unnamed
}

// joinBack tells whether whole is the words of turns (from, last] put together.
func joinBack(turns []turnOf, last int, whole *turnOf) (bool, int) {
	if last < 2 {
		return false, 0
	}
	norm, bare := whole.words()
	if ok, from := joins(turns, last, norm); ok || bare == norm {
		return ok, from
	}
	return joins(turns, last, bare)
}

func joins(turns []turnOf, last int, whole string) (bool, int) {
	rest, ok := cutSuffix(whole, &turns[last])
	for from := last - 1; ok && from >= 1 && last-from < maxMerge; from-- {
		if norm, bare := turns[from].words(); rest == norm || rest == bare {
			return true, from - 1
		}
		rest, ok = cutSuffix(rest, &turns[from])
	}
	return false, 0
}

// cutSuffix takes the words of a turn off the end, with or without the name of who speaks.
func cutSuffix(words string, t *turnOf) (string, bool) {
	norm, bare := t.words()
	rest, ok := strings.CutSuffix(words, norm)
	if !ok && bare != norm {
		rest, ok = strings.CutSuffix(words, bare)
	}
	return strings.TrimSuffix(rest, " "), ok && rest != ""
}

// within tells whether part is the beginning or the end of whole, in words.
func within(whole, part string) bool {
	if front, ok := strings.CutSuffix(whole, part); ok && strings.HasSuffix(front, " ") {
		return true
	}
	behind, ok := strings.CutPrefix(whole, part)
	return ok && strings.HasPrefix(behind, " ") && part != ""
}

// sameAnswer weighs what followed the user's words in both lists: it decides between places where he said the same. It is asked very often in lists that
// repeat themselves, so it looks at the letters only.
func (x *aligner) sameAnswer(i, j int) int {
	heard := -1
	for _, at := range x.a[i].rest {
		if x.in[at].Role == "assistant" && x.in[at].Text != "" {
			heard = at
			break
		}
	}
	if heard < 0 {
		return 0
	}
	said := 0
	for _, at := range x.b[j].rest {
		if k := &x.known[at]; k.Role == "assistant" && k.Original != "" {
			if strings.HasPrefix(k.Original, x.in[heard].Text) {
				return sameReply
			}
			ours, theirs := x.normKnown(at), x.normIn(heard)
			if strings.HasPrefix(ours, theirs) || strings.HasPrefix(theirs, ours) {
				return sameReply
			}
			if said == 0 {
				said = -otherReply
			}
			if n := strings.IndexByte(ours, ' '); n > 0 && strings.HasPrefix(theirs, ours[:n]) {
				said = -1 // it begins alike: numbers may be written otherwise
			}
		}
	}
	return said
}

// noWords stands in inNorm and knNorm for a text of which Normalise leaves nothing: it is never what Normalise gives.
const noWords = " "

// once gives Normalise of a text that is kept in norm.
func once(norm *string, text string) string {
	if *norm == "" {
		if *norm = heard.Normalize(text); *norm == "" {
			*norm = noWords
		}
	}
	if *norm == noWords {
		return ""
	}
	return *norm
}

// normIn is Normalise of an incoming text, once for each.
func (x *aligner) normIn(i int) string { return once(&x.inNorm[i], x.in[i].Text) }

// normKnown is Normalise of what was generated, once for each.
func (x *aligner) normKnown(j int) string { return once(&x.knNorm[j], x.known[j].Original) }

func (x *aligner) pairUsers(s step) {
	i, j := s.aFrom+1, s.bFrom+1
	for ; i <= s.a; i++ {
		x.result.Pair[x.a[i].user] = x.b[min(j, s.b)].user
		j++
	}
	if s.a-s.aFrom == 1 { // many known ones became one: it is the last of them
		x.result.Pair[x.a[s.a].user] = x.b[s.b].user
	}
}
