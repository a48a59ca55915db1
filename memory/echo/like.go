package echo

import (
	"slices"
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/internal/text"
)

// Limits of the comparison word by word.
const (
	maxLikeWords = 256 // words of a text
	maxSpelled   = 5   // words that spell one number
	maxNear      = 32  // bytes of a word that is compared letter by letter
)

// likeWord is a word for the comparison.
type likeWord struct {
	text string
	// Its end in the text; for the first part of a contraction, the end of the word before.
	end      int
	number   bool // has a digit: the other side may have spelled it, in any language
	optional bool // part of a URL, which is not spoken
}

// alike compares an answer word by word with a transcript that differs here and there. Three words
// of four must be ours, in order; fewer than four must all be ours.
func (x *aligner) alike(j int, heard string) (Finding, bool) {
	f := Finding{Known: j, Outcome: Full, Confidence: sureLike}
	if !x.speaks(j) || x.likens >= maxLikened {
		return f, false
	}
	x.likens++
	k := &x.known[j]
	g, h := likeWords(k.Original), likeWords(heard)
	if len(h) < 2 || len(g) == 0 {
		return f, false
	}
	if spokenToEnd(g, h) {
		return f, true
	}
	n, cost := likeness(g, h)
	if 4*cost > len(h) || shared(g[:n], h) < max(2, min(n, len(h))/2) {
		return f, false
	}
	if n < len(g) {
		end := g[n-1].end
		f.Outcome, f.Heard = Interrupted, k.Original[:end+text.Marks(k.Original[end:])]
		if firstWord(f.Heard) == "" {
			return f, false
		}
	}
	return f, true
}

// spokenToEnd reports whether h is all of g as a voice says it. Numbers, abbreviations and names
// may be any words there, between words that are the same. Both must end with the same word, or
// with a few other ones.
func spokenToEnd(g, h []likeWord) bool {
	// Longest common subsequence, by suffixes.
	rows := make([][]int16, len(g)+1)
	all := make([]int16, len(rows)*(len(h)+1))
	for i := range rows {
		rows[i] = all[i*(len(h)+1) : (i+1)*(len(h)+1)]
	}
	for i := len(g) - 1; i >= 0; i-- {
		for j := len(h) - 1; j >= 0; j-- {
			rows[i][j] = max(rows[i+1][j], rows[i][j+1])
			if spokenAs(&g[i], &h[j]) {
				rows[i][j] = max(rows[i][j], rows[i+1][j+1]+1)
			}
		}
	}
	words, same, first := 0, 0, -1 // of g
	for i := range g {
		if !g[i].number {
			words++
		}
	}
	i, j, lastG, lastH := 0, 0, -1, -1
	for i < len(g) && j < len(h) {
		switch {
		case spokenAs(&g[i], &h[j]) && rows[i][j] == rows[i+1][j+1]+1:
			if first < 0 {
				first = i
			}
			if !g[i].number {
				same++
			}
			lastG, lastH = i, j
			i, j = i+1, j+1
		case rows[i+1][j] >= rows[i][j+1]:
			i++
		default:
			j++
		}
	}
	restG, restH := len(g)-1-lastG, len(h)-1-lastH
	return same >= 3 && first <= 2 && 10*same >= 6*words &&
		(restG == 0 && restH <= 2 || restG > 0 && restG <= 2 && restH >= restG && restH <= 4*restG)
}

// spokenAs reports whether h is the word g, in a similar spelling or without abbreviation.
func spokenAs(g, h *likeWord) bool {
	return g.text == h.text || near(g, h) || len(g.text) >= 2 && len(h.text) > len(g.text) && !g.number && strings.HasPrefix(h.text, g.text)
}

// likeness returns the number of words of g to which h is most similar, the largest such number,
// and how many words must be changed, added or removed. A number may stand for up to maxSpelled
// words on the other side. g and h are not empty.
func likeness(g, h []likeWord) (n, cost int) {
	rows := make([][]int, maxSpelled+1) // rows[i%len(rows)][j] is the cost of h[:i] against g[:j]
	all := make([]int, len(rows)*(len(g)+1))
	for i := range rows {
		rows[i] = all[i*(len(g)+1) : (i+1)*(len(g)+1)]
	}
	for j := range g {
		rows[0][j+1] = rows[0][j] + leftOut(g[j])
	}
	for i := range h {
		before, row := rows[i%len(rows)], rows[(i+1)%len(rows)]
		row[0] = i + 1
		for j := range g {
			change := before[j]
			if g[j].text != h[i].text && !near(&g[j], &h[i]) {
				change++
			}
			c := min(change, before[j+1]+1, row[j]+leftOut(g[j]))
			if g[j].number && !h[i].number {
				for k := range min(maxSpelled, i+1) {
					c = min(c, rows[(i-k)%len(rows)][j])
				}
			}
			if h[i].number && !g[j].number {
				for k := range min(maxSpelled, j+1) {
					c = min(c, before[j-k])
				}
			}
			row[j+1] = c
		}
	}
	n, cost = cheapest(rows[len(h)%len(rows)], func(int) bool { return true })
	// A number at the end may match any words. An end that both have is safer, if it costs little
	// more.
	if at, c := cheapest(rows[len(h)%len(rows)], func(j int) bool { return g[j].text == h[len(h)-1].text }); at > n && g[n-1].number && c <= cost+1 {
		n, cost = at, c
	}
	if more := g[n:]; n > 0 && len(more) <= 2 && g[n-1].number && !slices.ContainsFunc(more, func(w likeWord) bool { return len(w.text) > 3 }) {
		n = len(g) // a unit that is spoken with its number: 20 kg, 40 km/h
	}
	return n, cost
}

// near reports whether two words are spellings of one: they begin with the same letter and differ
// in one letter, or in two if they are long.
func near(a, b *likeWord) bool {
	s, t := a.text, b.text
	if len(s) < 4 || s[0] != t[0] || len(s)-len(t) > 1 || len(t)-len(s) > 1 || len(s) > maxNear || a.number || b.number {
		return false
	}
	var row [maxNear + 2]int
	for j := range len(t) + 1 {
		row[j] = j
	}
	for i := range len(s) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(t) {
			change := diagonal
			if s[i] != t[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(t)] <= 1 || row[len(t)] == 2 && len(s) >= 6
}

// cheapest returns the largest length with the lowest cost, among those whose last word is allowed.
func cheapest(row []int, allowed func(last int) bool) (n, cost int) {
	for j := 1; j < len(row); j++ {
		if (n == 0 || row[j] <= cost) && allowed(j-1) {
			n, cost = j, row[j]
		}
	}
	return n, cost
}

// leftOut returns the cost of a word that was not heard.
func leftOut(w likeWord) int {
	if w.optional {
		return 0
	}
	return 1
}

// shared returns how many words of g are also in h.
func shared(g, h []likeWord) int {
	n := 0
	for i := range g {
		if slices.ContainsFunc(h, func(w likeWord) bool { return w.text == g[i].text }) {
			n++
		}
	}
	return n
}

// likeWords returns the words of a text, at most maxLikeWords.
func likeWords(s string) []likeWord {
	var list []likeWord
	last, address := 0, 0 // ends of the last word and of the last URL
	words(s, func(w string, end int) bool {
		from := end - len(w)
		if at := strings.IndexFunc(s[from:], unicode.IsSpace); from >= address && (strings.HasPrefix(s[from:], "http://") || strings.HasPrefix(s[from:], "https://") || strings.HasPrefix(s[from:], "www.")) {
			if address = len(s); at >= 0 {
				address = from + at
			}
		}
		list = appendLike(list, w, last, end, from < address)
		last = end
		return len(list) < maxLikeWords
	})
	return list
}

// fluent removes hesitations and repeated words, as platforms tidy transcripts.
func fluent(list []likeWord) []likeWord {
	out := list[:0]
	for _, w := range list {
		switch w.text {
		case "um", "uh", "uhm", "er", "erm", "hm", "hmm", "äh", "ähm", "öh", "euh", "eh", "ehm", "э", "эм":
			continue
		}
		if len(out) == 0 || out[len(out)-1].text != w.text {
			out = append(out, w)
		}
	}
	return out
}

// appendLike appends a word; an English contraction becomes two.
func appendLike(list []likeWord, w string, last, end int, optional bool) []likeWord {
	text := foldWord(w)
	if at := strings.IndexAny(w, "'’"); at > 0 {
		first, second := expand(strings.ToLower(w[:at]), strings.ToLower(strings.TrimLeft(w[at:], "'’")))
		if second != "" {
			list = append(list, likeWord{text: first, end: last})
			text = second
		}
	}
	return append(list, likeWord{text, end, strings.ContainsFunc(text, unicode.IsNumber), optional})
}

// expand returns the two words of an English contraction, or "".
func expand(first, second string) (string, string) {
	switch second {
	case "ll":
		return first, "will"
	case "re":
		return first, "are"
	case "ve":
		return first, "have"
	case "m":
		return first, "am"
	case "s":
		return first, "is"
	case "d":
		return first, "would"
	case "t":
		switch first {
		case "can":
			return "can", "not"
		case "won":
			return "will", "not"
		}
		if verb, ok := strings.CutSuffix(first, "n"); ok {
			return verb, "not"
		}
	}
	return "", ""
}
