package recall

import (
	"cmp"
	"math"
	"slices"
)

// What of the best turns is searched once more: the words that weigh most in the first few.
const (
	relatedTurns = 3
	relatedWords = 12
)

// relate adds to the scores of the query's own words how well turns match the words of the best
// turns. That finds the same subject in other words: what else was said about it.
func (r *ranking) relate(q *Query) {
	x, words, out := r.x, r.words, r.related
	better := func(a, b int32) int {
		da, db := &x.docs[x.slots[a].doc], &x.docs[x.slots[b].doc]
		return cmp.Or(cmp.Compare(words[b], words[a]), cmp.Compare(db.At, da.At), cmp.Compare(da.Seq, db.Seq))
	}
	var top []int32
	least := float32(math.SmallestNonzeroFloat32) // that a turn must have
	for i, s := range words {
		if s < least || len(top) == relatedTurns && better(int32(i), top[relatedTurns-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, int32(i), better)
		top = slices.Insert(top, at, int32(i))
		if len(top) >= relatedTurns {
			top = top[:relatedTurns]
			least = words[top[relatedTurns-1]]
		}
	}
	weight := map[int32]float64{}
	for _, i := range top {
		d := &x.docs[x.slots[i].doc]
		for n, w := range d.words {
			if turns := x.vocab[w].turns; len(turns) > 1 && !slices.Contains(d.words[:n], w) {
				weight[w] += float64(words[i]) * min(1, w0.turnLen/float64(len(d.words))) * idf(x.live, len(turns))
			}
		}
	}
	best := make([]int32, 0, len(weight))
	for w := range weight {
		best = append(best, w)
	}
	slices.SortFunc(best, func(a, b int32) int {
		return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(x.vocab[a].stem, x.vocab[b].stem))
	})
	perWord, most := float32(1/(3*x.average())), float32(0)
	for _, w := range best[:min(len(best), relatedWords)] {
		if q.late() {
			break
		}
		v := float32(weight[w])
		for _, p := range x.vocab[w].turns {
			at := x.where[p.doc]
			out[at.slot] += v / (1 + float32(at.words)*perWord)
			most = max(most, out[at.slot])
		}
	}
	factor, highest := float32(0), float32(0)
	if most > 0 {
		factor = float32(w0.related) * words[top[0]] / most
	}
	for i, v := range out[:len(words)] {
		v = words[i] + factor*v
		words[i] = v
		if v > highest { // max takes three times as long
			highest = v
		}
	}
	r.bestWord = 1
	if highest > 0 {
		r.bestWord = highest
	}
}
