package recall

import (
	"maps"
	"math"
	"slices"
)

// spare is how many hits more than asked for are ranked, so that collapsed ones are replaced.
const spare = 5

// sameShare is how much of the shorter text the longer one must contain to say the same.
const sameShare = .9

// collapse folds hits that say the same into the newest of them, at the rank of the best, and
// returns the best k.
func (x *Index) collapse(hits []Hit, k int) []Hit {
	var out []Hit
	texts := make([]wording, len(hits)) // of out
	for _, h := range hits {
		var text wording
		at := 0
		for ; at < len(out); at++ {
			o := &out[at]
			if o.Role == h.Role && x.alike(o, &h) && texts[at].read(o.Text).same(text.read(h.Text)) {
				break
			}
		}
		if at == len(out) {
			if len(out) < k {
				texts[len(out)] = text
				out = append(out, h)
			}
			continue
		}
		best := &out[at]
		if h.At > best.At {
			also := append(best.Also, best.Turn)
			best.Turn, best.slot, best.Also = h.Turn, h.slot, also
			texts[at] = text
		} else {
			best.Also = append(best.Also, h.Turn)
		}
	}
	return out
}

// negations turn a sentence into its opposite.
var negations = wordSet("no not never don didn doesn isn wasn won can cannot nicht kein keine nie ne pas jamais nunca não non mai niet geen не ни inte aldrig ikke")

// alike reports whether two hits may say the same: they have about the same length, match about as
// well, and half of the first words of one are in the other. It is cheap.
func (x *Index) alike(a, b *Hit) bool {
	short, long := min(len(a.Text), len(b.Text)), max(len(a.Text), len(b.Text))
	if 10*short < 8*long || math.Abs(a.Parts.Words-b.Parts.Words) >= .1 || math.Abs(a.Parts.Grams-b.Parts.Grams) >= .02 {
		return false
	}
	some, all := x.docs[x.slots[a.slot].doc].words, x.docs[x.slots[b.slot].doc].words
	if len(some) > len(all) {
		some, all = all, some
	}
	some = some[:min(len(some), firstWords)]
	both := 0
	for _, w := range some {
		both += b2i(slices.Contains(all, w))
	}
	return 2*both >= len(some)
}

// firstWords is how many words of a hit are compared before its whole text is.
const firstWords = 16

// wording is the words of a text, and those of them that must be the same in another one that says
// the same.
type wording struct{ all, exact map[string]bool }

// read returns the words of a text, which it reads the first time.
func (t *wording) read(s string) *wording {
	if t.all != nil {
		return t
	}
	t.all, t.exact = map[string]bool{}, map[string]bool{}
	split(s, func(w word) {
		t.all[w.text] = true
		if w.digits || negations[w.text] || months[w.text] > 0 || weekdays[w.text] > 0 {
			t.exact[w.text] = true
		}
	})
	return t
}

// same reports whether the longer of two texts contains the words of the shorter, nearly all, and
// both have the same numbers, dates and negations.
func (t *wording) same(o *wording) bool {
	if len(t.all) > len(o.all) {
		t, o = o, t
	}
	both := 0
	for w := range t.all {
		if o.all[w] {
			both++
		}
	}
	return both > 0 && float64(both) >= sameShare*float64(len(t.all)) && maps.Equal(t.exact, o.exact)
}

// BytesPerToken is the assumed length of a token. Bytes are closer than characters: those of other
// scripts than Latin have more of both.
const BytesPerToken = 4

// surround sets the context of hits and leaves out the hits that do not fit the query's budget, but
// never the first.
func (x *Index) surround(hits []Hit, q *Query) []Hit {
	if q.Budget == 0 {
		return hits
	}
	left := q.Budget * BytesPerToken
	given := map[int32]bool{}
	for i := range hits {
		given[hits[i].slot] = true
	}
	for i := range hits {
		h := &hits[i]
		if left -= len(h.Text); left < 0 && i > 0 {
			return hits[:i]
		}
		for _, at := range []int32{h.slot - 1, h.slot + 1} {
			if x.slots[at].doc < 0 || given[at] {
				continue
			}
			n := &x.docs[x.slots[at].doc]
			t := n.Turn
			if len(t.Text) > left || q.excepts(n) {
				continue
			}
			left -= len(t.Text)
			given[at] = true
			h.Context = append(h.Context, t)
		}
	}
	return hits
}
