package recall

import (
	"maps"
	"slices"
)

// Term is a word of a text that carries meaning, in the forms by which it is compared: as it
// stands, and its stems in English and in the language of the text.
type Term []string

// Terms returns the words of a text that carry meaning, in order.
func Terms(s string) []Term {
	words := wordsOf(s)
	l := languageOf(words)
	if l == nil {
		l = languages[0]
	}
	var out []Term
	for _, w := range words {
		if l.stop[w.text] {
			continue
		}
		t := Term{w.text}
		for _, in := range []*language{languages[0], l} {
			if stem := in.stem(w); stem != w.text {
				t = append(t, stem)
			}
		}
		out = append(out, t)
	}
	return out
}

// IndexTerms returns the stems by which an index finds a text, in any order.
func IndexTerms(s string) []string {
	words := wordsOf(s)
	l := languageOf(words)
	if l == nil {
		l = languages[0]
	}
	stems := map[string]bool{}
	for _, w := range l.numbers(words) {
		if !l.stop[w.text] {
			stems[l.stem(w)] = true
		}
	}
	return slices.Collect(maps.Keys(stems))
}

// QueryTerms returns the words of a query that carry meaning, at most limit, each as it stands and
// in every stem that IndexTerms may have for it.
func QueryTerms(s string, limit int) []Term {
	words := wordsOf(s)
	own := languageOf(words)
	if own == nil {
		own = languages[0]
	}
	var out []Term
	seen := map[string]bool{}
	for _, w := range own.numbers(words) {
		if own.stop[w.text] || seen[w.text] || len(out) == limit {
			continue
		}
		seen[w.text] = true
		t := Term{w.text}
		for _, l := range languages {
			if stem := l.stem(w); !slices.Contains(t, stem) {
				t = append(t, stem)
			}
		}
		out = append(out, t)
	}
	return out
}

// Corpus counts the texts of which an index holds only some.
type Corpus struct {
	Texts int
	With  map[string]int // how many of them have a word, by the first form of its Term
}
