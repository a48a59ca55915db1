package echo

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
)

// Limits of the comparison of sentences in another order.
const (
	maxOrdered   = 64  // answers that are compared with a text
	maxSentences = 64  // of a text
	maxOrderable = 512 // words of a text
)

// pairReordered pairs an assistant message with an answer whose sentences it has in another order.
func (x *aligner) pairReordered(i int, said string, known []int) bool {
	if inside := strings.TrimRight(said, text.SentenceEnds+" \n"); x.orders > maxOrdered || !strings.ContainsAny(inside, text.SentenceEnds+"\n") {
		return false
	}
	theirs := sentences(said)
	if len(theirs) < 2 {
		return false
	}
	for _, j := range known {
		// Of a settled answer only its own words are of interest.
		if !x.speaks(j) || !unsettled(&x.known[j]) && !sameLetters(x.normKnown(j), x.normIn(i)) {
			continue
		}
		if x.orders++; x.orders > maxOrdered {
			return false
		}
		if f, ok := x.reordered(j, slices.Clone(theirs)); ok {
			x.pair(i, f)
			return true
		}
	}
	return false
}

// reordered compares an answer with the sentences of a text that has them in another order, as
// platforms store them whose voice confirms sentences out of order. In the order of the answer they
// must be the answer, or its beginning if the voice was cut.
func (x *aligner) reordered(j int, theirs []passage) (Finding, bool) {
	whole := x.known[j].Original
	ours := sentences(whole)
	covered, ok := place(ours, theirs)
	if !ok || slices.IsSortedFunc(theirs, byPlace) {
		return Finding{}, false
	}
	slices.SortStableFunc(theirs, byPlace)
	var b strings.Builder
	for _, s := range theirs {
		b.WriteString(s.text)
		b.WriteByte(' ')
	}
	text := strings.TrimSpace(b.String())
	f := Finding{Known: j, Outcome: Full, Confidence: sureSpoken}
	if prefix, exact := x.beginning(whole, text); exact {
		if prefix != whole {
			f.Outcome, f.Heard = Interrupted, wholeWords(whole, prefix)
		}
	} else if f, ok = x.respoken(j, text); !ok {
		f, ok = x.alike(j, text)
	}
	return f, ok && (f.Outcome == Interrupted || covered == len(ours))
}

// passage is a sentence, or a part of one behind an abbreviation.
type passage struct {
	text  string
	words []likeWord
	at    int // which sentence of the answer it is; -1 is not known
}

func byPlace(a, b passage) int { return cmp.Compare(a.at, b.at) }

// same reports whether two passages have the same words.
func (p *passage) same(q *passage) bool {
	return slices.EqualFunc(p.words, q.words, func(a, b likeWord) bool { return a.text == b.text })
}

// place sets which sentence of ours each of theirs is: one with the same words, else the one with
// the most of them. It returns how many of ours, from the first, are theirs. ok is false if theirs
// has others, or lacks one between them.
func place(ours, theirs []passage) (covered int, ok bool) {
	taken := make([]bool, len(ours))
	set := func(p *passage, i int) { p.at, ours[i].at, taken[i] = i, i, true }
	for n := range theirs {
		p := &theirs[n]
		if i := slices.IndexFunc(ours, func(o passage) bool { return o.at < 0 && o.same(p) }); i >= 0 {
			set(p, i)
		}
	}
	left := 0
	for n := range theirs {
		p, best, most := &theirs[n], -1, 0
		if p.at >= 0 {
			continue
		}
		for i := range ours {
			if taken[i] {
				continue
			}
			// The last one may have been cut.
			if same := shared(p.words, ours[i].words); same > most && 2*same >= len(p.words) && (n == len(theirs)-1 || 2*same >= len(ours[i].words)) {
				best, most = i, same
			}
		}
		if best >= 0 {
			set(p, best)
		} else {
			left++
		}
	}
	if left > 1 {
		return 0, false
	}
	for n := range theirs {
		p := &theirs[n]
		if i := slices.Index(taken, false); p.at < 0 && i >= 0 { // only one is left, which may be spoken otherwise
			set(p, i)
		} else if p.at < 0 {
			return 0, false
		}
		// "Doctor Smith" is one passage, where "Dr. Smith" are two.
		more := len(p.words) - len(ours[p.at].words)
		for i := p.at - 1; i >= 0 && !taken[i] && len(ours[i].words) <= more; i-- {
			taken[i], more = true, more-len(ours[i].words)
		}
		for i := p.at + 1; i < len(ours) && !taken[i] && len(ours[i].words) <= more; i++ {
			taken[i], more = true, more-len(ours[i].words)
		}
	}
	covered = slices.Index(append(taken, false), false)
	return covered, !slices.Contains(taken[covered:], true)
}

// sentences splits a text into its sentences. It returns nil for a text that is too long.
func sentences(said string) (list []passage) {
	n := 0
	for part := range text.Sentences(said) {
		switch words := likeWords(part); {
		case len(words) > 0:
			n += len(words)
			list = append(list, passage{part, words, -1})
		case len(list) > 0: // an emoji
			list[len(list)-1].text += " " + part
		}
		if len(list) > maxSentences || n > maxOrderable {
			return nil
		}
	}
	return list
}

// sameLetters reports whether two texts have the same letters, in any order.
func sameLetters(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var n [256]int
	for i := range len(a) {
		n[a[i]]++
		n[b[i]]--
	}
	return n == [256]int{}
}
