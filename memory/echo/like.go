package echo

import (
	"slices"
	"strings"
	"unicode"
)

// This file compares word by word, for echoes that no exact reading explains: what a voice wrote otherwise is a word here and there.

// maxLikeWords is how many words of a text are compared one by one, maxSpelled how many words one number is spelled with.
const (
	maxLikeWords = 256
	maxSpelled   = 5
	maxNear      = 32 // bytes of a word that is compared letter by letter
)

// likeWord is a word as it is compared.
type likeWord struct {
	text     string
	end      int  // where it ends in its text; of the first part of a contraction, where the word before ends
	number   bool // holds a digit: the other side may have spelled it, in whatever language
	optional bool // of an address, which a voice leaves out
}

// alike compares word by word. Three words of four must be ours, in order, and few words must be so without any exception.
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
	n, cost := likeness(g, h)
	if 4*cost > len(h) || shared(g[:n], h) < max(2, min(n, len(h))/2) {
		return f, false
	}
	if n < len(g) {
		end := g[n-1].end
		f.Outcome, f.Heard = Interrupted, k.Original[:end+marks(k.Original[end:])]
		if firstWord(f.Heard) == "" {
			return f, false
		}
	}
	return f, true
}

// likeness gives the number of words of g that h is most like, the most where several are (g and h are not empty), and how many words have to be changed, put in or left out.
// A number is like up to maxSpelled words, on either side.
func likeness(g, h []likeWord) (n, cost int) {
	rows := make([][]int, maxSpelled+1) // rows[i%len(rows)][j]: cost of h[:i] against g[:j]
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
	// A number at the end may have taken in any words: an end that the two have in common is surer, if it costs little more.
	if at, c := cheapest(rows[len(h)%len(rows)], func(j int) bool { return g[j].text == h[len(h)-1].text }); at > n && g[n-1].number && c <= cost+1 {
		n, cost = at, c
	}
	if more := g[n:]; n > 0 && len(more) <= 2 && g[n-1].number && !slices.ContainsFunc(more, func(w likeWord) bool { return len(w.text) > 3 }) {
		n = len(g) // a unit that was spoken with its number: 20 kg, 40 km/h
	}
	return n, cost
}

// near tells whether two words are one in two spellings: they begin alike and a letter differs, or two of a long word.
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

// cheapest gives the length, among those whose last word is allowed, that costs least, and of equal ones the largest.
func cheapest(row []int, allowed func(last int) bool) (n, cost int) {
	for j := 1; j < len(row); j++ {
		if (n == 0 || row[j] <= cost) && allowed(j-1) {
			n, cost = j, row[j]
		}
	}
	return n, cost
}

// leftOut is the cost of a word that was not heard.
func leftOut(w likeWord) int {
	if w.optional {
		return 0
	}
	return 1
}

// shared counts the words of g that h has too.
func shared(g, h []likeWord) int {
	n := 0
	for i := range g {
		if slices.ContainsFunc(h, func(w likeWord) bool { return w.text == g[i].text }) {
			n++
		}
	}
	return n
}

// likeWords gives the words of a text as they are compared, at most maxLikeWords.
func likeWords(s string) []likeWord {
	var list []likeWord
	last, address := 0, 0 // where the last word and the last address end
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

// fluent leaves out what transcripts are tidied of: hesitations and words said twice.
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

// appendLike appends a word, an English contraction as two.
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

// expand gives the two words of an English contraction, "" for what is none.
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
