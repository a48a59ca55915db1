package recall

import (
	"slices"
)

// nearWord is a word of the vocabulary that is spelled like one of a query.
type nearWord struct {
	place  int32
	weight float64
}

// near returns the words of the vocabulary that share much of a word's spelling: others of its
// family (allergies, allergic), and compounds with it (washer, dishwasher).
func (x *Index) near(w word, own []int32) (out []nearWord) {
	common := map[int32]int{}
	n := 0
	eachGram(w.text, func(g gram) {
		n++
		for _, place := range x.grams[g] {
			common[place]++
		}
	})
	for place, c := range common {
		e := &x.vocab[place]
		alike := float64(c) / float64(min(n, int(e.grams)))
		if alike < nearShare {
			continue
		}
		out = append(out, nearWord{place, alike * idf(x.live, len(e.turns))})
	}
	slices.SortFunc(out, func(a, b nearWord) int { return int(a.place - b.place) })
	return out
}

var nearShare = .5
