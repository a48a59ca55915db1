package recall

import (
	"slices"
	"strings"
)

// nearWord is a word of the vocabulary that is spelled like one of a query.
type nearWord struct {
	place  int32
	weight float64
}

const (
	// nearShare is how many of the grams of the shorter of two words the other has at least.
	nearShare = .5
	// A word is part of a compound that begins or ends with its first bytes: so many at least, and
	// all but so many.
	partBytes   = 4
	endingBytes = 3
)

// compounding are the languages that write compounds as one word.
var compounding = wordSet("german dutch swedish norwegian danish finnish hungarian")

// near returns the words of the vocabulary that share much of a word's spelling: others of its
// family (allergies, allergic), and compounds with it (washer, dishwasher).
func (x *Index) near(w word) (out []nearWord) {
	var parts []string // by which compounds are found
	for _, l := range languages {
		if x.langs[l] > 0 && compounding[l.name] {
			parts = append(parts, w.text, l.stem(w))
		}
	}
	common := map[int32]int32{}
	n := int32(0)
	eachGram(w.text, func(g gram) {
		n++
		for _, place := range x.grams[g] {
			common[place]++
		}
	})
	for place, c := range common {
		e := &x.vocab[place]
		grams := min(n, e.grams)
		alike := float64(c) / float64(grams)
		if grams == 1 && !strings.HasPrefix(e.stem, w.text) && !strings.HasPrefix(w.text, e.stem) {
			alike = 0 // parents is not near rent
		}
		if alike < nearShare && slices.ContainsFunc(parts, func(p string) bool { return partOf(p, e.stem) }) {
			alike = nearShare
		}
		if alike >= nearShare {
			out = append(out, nearWord{place, alike * idf(x.live, len(e.turns))})
		}
	}
	slices.SortFunc(out, func(a, b nearWord) int { return int(a.place - b.place) })
	return out
}

// partOf reports whether a compound begins or ends with a word, its ending left out.
func partOf(word, compound string) bool {
	for n := len(word); n >= max(partBytes, len(word)-endingBytes); n-- {
		if strings.HasSuffix(compound, word[:n]) || strings.HasPrefix(compound, word[:n]) {
			return true
		}
	}
	return false
}
