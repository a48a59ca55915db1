package recall

import (
	"cmp"
	"slices"
)

// What of the best turns is searched once more: the words that weigh most in the first few.
const (
	relatedTurns = 3
	relatedWords = 12
)

// relate adds to the scores of the query's own words how well turns match the words of the best
// turns. That finds the same subject in other words: what else was said about it.
func (x *Index) relate(words []float64) {
	better := func(a, b int32) int {
		da, db := &x.docs[a], &x.docs[b]
		return cmp.Or(cmp.Compare(words[b], words[a]), cmp.Compare(db.At, da.At), cmp.Compare(da.Seq, db.Seq))
	}
	var top []int32
	for i := range words {
		if words[i] == 0 || len(top) == relatedTurns && better(int32(i), top[relatedTurns-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, int32(i), better)
		top = slices.Insert(top, at, int32(i))
		top = top[:min(len(top), relatedTurns)]
	}
	weight := map[string]float64{}
	for _, i := range top {
		d := &x.docs[i]
		seen := map[string]bool{}
		for _, w := range d.lang.numbers(wordsOf(d.Text)) {
			if d.lang.stop[w.text] {
				continue
			}
			stem := d.lang.stem(w)
			if list := x.words[stem]; len(list) > 1 && !seen[stem] {
				seen[stem] = true
				weight[stem] += words[i] * min(1, w0.turnLen/float64(d.words)) * idf(x.live, len(list))
			}
		}
	}
	best := make([]string, 0, len(weight))
	for w := range weight {
		best = append(best, w)
	}
	slices.SortFunc(best, func(a, b string) int { return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b)) })
	out, avg := make([]float64, len(words)), float64(x.total[0])/float64(max(x.live, 1))
	for _, w := range best[:min(len(best), relatedWords)] {
		for _, p := range x.words[w] {
			out[p.doc] += weight[w] / (1 + float64(x.docs[p.doc].words)/(3*avg))
		}
	}
	normalize(out)
	for i := range words {
		words[i] += w0.related * out[i]
	}
	normalize(words)
}
