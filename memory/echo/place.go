package echo

import (
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// step is a match: turns (aFrom, a] of the list and (bFrom, b] of the ledger have the same user
// words.
type step struct{ aFrom, a, bFrom, b int }

// Scores of a matched turn: for its words, and for its answer.
const (
	sameWords = 4
	sameReply = 2
	maxScore  = sameWords + sameReply
	// otherReply is subtracted for another answer than ours.
	otherReply = 3
	// olderWords is subtracted if words of the list would precede the whole ledger.
	olderWords = 4
)

// place returns the best alignment, newest turn first, and how many of the newest known turns the
// list lacks. It returns nil if nothing aligns.
func (x *aligner) place(m, n int) (best []step, bestSkip int) {
	bestScore := 0
	var steps []step
	found := -1
	for skip := 0; skip < n && skip <= maxSkip; skip++ {
		for k := m; k >= 1 && k > m-maxAlignUsers; k-- {
			if found >= 0 && bestScore >= maxScore*min(maxWeighed-skip, n-skip, k)-3*skip {
				break // no older place can score higher
			}
			var score int
			// The same number of old turns counts for each skip.
			steps, score = x.match(steps[:0], k, n-skip, maxWeighed-skip)
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

// match walks back from turns k and n. It returns at most most steps, newest first, and their
// score.
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
	if j == 0 && i > 0 { // words older than the ledger: another place is better
		score -= olderWords
	}
	return steps, score
}

// sameUsers reports whether turns i and j have the same user words. One of the lists may have
// merged several messages into one.
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

// tidied reports whether one of u and v is the other with a prompt around it, or u is a later
// transcript of v. It is used if nothing else matches and the answers agree.
func (x *aligner) tidied(u, v *turnOf) bool {
	all, _ := u.normalized()
	said, _ := v.normalized()
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

// same reports whether two user messages have the same words. One of them may also name the
// speaker.
func (t *turnOf) same(o *turnOf) bool {
	if t.text == o.text {
		return true
	}
	norm, bare := t.normalized()
	other, unnamed := o.normalized()
	return norm == other || bare == other || norm == unnamed
}

// joinBack reports whether whole has the words of turns (from, last] joined, and returns from.
func joinBack(turns []turnOf, last int, whole *turnOf) (bool, int) {
	if last < 2 {
		return false, 0
	}
	norm, bare := whole.normalized()
	if ok, from := joins(turns, last, norm); ok || bare == norm {
		return ok, from
	}
	return joins(turns, last, bare)
}

// joins is joinBack for a normalized text.
func joins(turns []turnOf, last int, whole string) (bool, int) {
	rest, ok := cutSuffix(whole, &turns[last])
	for from := last - 1; ok && from >= 1 && last-from < maxMerge; from-- {
		if norm, bare := turns[from].normalized(); rest == norm || rest == bare {
			return true, from - 1
		}
		rest, ok = cutSuffix(rest, &turns[from])
	}
	return false, 0
}

// cutSuffix removes the words of a turn from the end, with or without the speaker's name.
func cutSuffix(words string, t *turnOf) (string, bool) {
	norm, bare := t.normalized()
	rest, ok := strings.CutSuffix(words, norm)
	if !ok && bare != norm {
		rest, ok = strings.CutSuffix(words, bare)
	}
	return strings.TrimSuffix(rest, " "), ok && rest != ""
}

// within reports whether part is the beginning or the end of whole, in words.
func within(whole, part string) bool {
	if front, ok := strings.CutSuffix(whole, part); ok && strings.HasSuffix(front, " ") {
		return true
	}
	behind, ok := strings.CutPrefix(whole, part)
	return ok && strings.HasPrefix(behind, " ") && part != ""
}

// sameAnswer scores the answers to turns i and j. It decides between places where the caller said
// the same. It runs very often for lists that repeat themselves, and therefore compares only normal
// forms.
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
				said = -1 // it begins with the same word: a number may be written differently
			}
		}
	}
	return said
}

// noWords marks an empty normal form in inNorm and knNorm. heard.Normalize never returns it.
const noWords = " "

// once returns the normal form of a text, which it keeps in norm.
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

// normIn returns the normal form of an incoming text.
func (x *aligner) normIn(i int) string { return once(&x.inNorm[i], x.in[i].Text) }

// normKnown returns the normal form of what was generated.
func (x *aligner) normKnown(j int) string { return once(&x.knNorm[j], x.known[j].Original) }

// pairUsers pairs the user messages of a step.
func (x *aligner) pairUsers(s step) {
	i, j := s.aFrom+1, s.bFrom+1
	for ; i <= s.a; i++ {
		x.result.Pair[x.a[i].user] = x.b[min(j, s.b)].user
		j++
	}
	if s.a-s.aFrom == 1 { // if several known messages became one, it is the last of them
		x.result.Pair[x.a[s.a].user] = x.b[s.b].user
	}
}
