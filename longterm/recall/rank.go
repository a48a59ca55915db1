package recall

import (
	"cmp"
	"math"
	"slices"
)

// candidates is how many turns are ranked by all that is known of them. The rest are ranked by
// their words alone.
const candidates = 200

// ranking is what a query's words are worth in each slot of an index. Of words and near the best
// slot has bestWord and bestNear, by which they are divided.
type ranking struct {
	x       *Index
	p       *parsed
	asked   vector // embedding of the query
	words   []float32
	near    []float32 // words that are spelled like the query's
	related []float32 // words of the best turns
	// 1 if no slot has any.
	bestWord, bestNear float32

	has     []uint32          // the query's words, a bit for each
	hasNear []uint32          // those that are spelled like one
	blocks  []float32         // of each block, the best with 1
	inBlock []float32         // how often one word is in each
	days    map[int32]float32 // that the query names
	// The day that was looked up last, which is mostly the next one too.
	lastDay   int32
	lastValue float32
}

// search ranks the slots by the words of a query, those of the highest idf first.
func (x *Index) search(p *parsed, q *Query) *ranking {
	r := &x.rank
	r.x, r.p, r.days, r.lastDay, r.bestNear = x, p, map[int32]float32{}, math.MinInt32, 1
	for _, list := range []*[]float32{&r.words, &r.near, &r.related} {
		*list = zeros(*list, len(x.slots))
	}
	r.has, r.hasNear = zeros(r.has, len(x.slots)), zeros(r.hasNear, len(x.slots))
	r.blocks, r.inBlock = zeros(r.blocks, len(x.blocks)), zeros(r.inBlock, len(x.blocks))
	most := float32(0)
	for i, t := range p.terms {
		if i > 0 && q.late() {
			break
		}
		most = max(most, r.add(t, 1<<i))
	}
	if most > 0 {
		r.bestNear = most
	}
	r.relate(q)
	most = 0
	for _, v := range r.blocks {
		most = max(most, v)
	}
	for b, v := range r.blocks {
		if v > 0 {
			r.blocks[b] = v / most * min(1, float32(w0.blockLen)/float32(max(x.blocks[b], 1)))
		}
	}
	return r
}

// zeros returns n zeros, in the memory of a list if they fit.
func zeros[T float32 | uint32](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n, n+n/8)
	}
	list = list[:n]
	clear(list)
	return list
}

// add adds the BM25 scores of a word of the query, and a bit where it occurs. It returns the
// highest of the scores in near that it added to.
func (r *ranking) add(t term, bit uint32) (most float32) {
	x := r.x
	avg, with := x.average(), 0
	w, k, perWord := float32(t.idf*(w0.k1+1)), float32(w0.k1*(1-w0.b)), float32(w0.k1*w0.b/avg)
	clear(r.inBlock)
	for _, place := range t.places {
		for _, p := range x.vocab[place].turns {
			at, f := x.where[p.doc], float32(p.n)
			r.has[at.slot] |= bit
			r.words[at.slot] += w * f / (f + k + perWord*float32(at.words))
			if r.inBlock[at.block] == 0 {
				with++
			}
			r.inBlock[at.block] += f
		}
	}
	for _, n := range t.near {
		w, k, perWord := float32(n.weight*(w0.gk1+1)), float32(w0.gk1*(1-w0.gb)), float32(w0.gk1*w0.gb/avg)
		for _, p := range x.vocab[n.place].turns {
			at, f := x.where[p.doc], float32(p.n)
			r.hasNear[at.slot] |= bit
			r.near[at.slot] += w * f / (f + k + perWord*float32(at.words))
			most = max(most, r.near[at.slot])
		}
	}
	w = float32(idf(len(x.blocks), with) * (w0.k1 + 1))
	avg = float64(x.total) / float64(max(len(x.blocks), 1))
	k, perWord = float32(w0.k1*(1-w0.cb)), float32(w0.k1*w0.cb/avg)
	for b, f := range r.inBlock {
		if f > 0 {
			r.blocks[b] += w * f / (f + k + perWord*float32(x.blocks[b]))
		}
	}
	return most
}

// average returns how many words a turn has.
func (x *Index) average() float64 { return max(1, float64(x.total)/float64(max(x.live, 1))) }

// neighbors returns what the turns around a slot are worth for it.
func (r *ranking) neighbors(at int32) float32 {
	w, s := r.words[at-gap:at+gap+1:at+gap+1], r.x.slots[at-gap:at+gap+1:at+gap+1]
	if w[0]+w[1]+w[3]+w[4] == 0 {
		return 0
	}
	one := func(i int, weight float64) float32 {
		if w[i] == 0 {
			return 0
		}
		return float32(weight) * w[i] * min(1, float32(w0.turnLen)/float32(s[i].words))
	}
	before := w0.before1
	if s[1].flags&asking != 0 && s[2].flags&asking == 0 {
		before += w0.asked
	}
	return (one(1, before) + one(3, w0.after1) + one(0, w0.before2) + one(4, w0.after2)) / r.bestWord
}

// parts returns what the score of a slot is the sum of.
func (r *ranking) parts(at int32) Parts {
	s := &r.x.slots[at]
	out := Parts{
		Words: float64(r.words[at] / r.bestWord), Grams: w0.grams * float64(r.near[at]/r.bestNear), Neighbors: float64(r.neighbors(at)),
		Call: w0.call * float64(r.blocks[s.block]), Date: float64(r.date(s.day)),
	}
	switch p := r.p; {
	case p.party&s.flags != 0:
		out.Party = w0.party
	case p.self && s.flags&byUser != 0:
		out.Self = w0.self
	}
	if r.p.when && s.flags&timed != 0 {
		out.When = w0.when
	}
	r.signParts(at, &out)
	return out
}

// date returns what a day is worth to a query that names dates.
func (r *ranking) date(day int32) float32 {
	if len(r.p.dates) == 0 {
		return 0
	}
	if day == r.lastDay {
		return r.lastValue
	}
	v, ok := r.days[day]
	if !ok {
		on := onDay(day)
		for _, asked := range r.p.dates {
			v = max(v, float32(w0.date*asked.near(on)))
		}
		r.days[day] = v
	}
	r.lastDay, r.lastValue = day, v
	return v
}

// candidate is a slot that may be a hit.
type candidate struct {
	slot  int32
	score float32
}

// before orders candidates, the best and of equals the newest first.
func (r *ranking) before(a, b candidate) int {
	switch {
	case a.score > b.score:
		return -1
	case a.score < b.score:
		return 1
	}
	x, y := &r.x.docs[r.x.slots[a.slot].doc], &r.x.docs[r.x.slots[b.slot].doc]
	return cmp.Or(cmp.Compare(y.At, x.At), cmp.Compare(x.Call, y.Call), cmp.Compare(x.Seq, y.Seq))
}

// basic returns what the words of a slot and around it and its day are worth, all that the first
// pass adds up but for who said it and whether it has a word of time.
func (r *ranking) basic(at int32) float32 {
	s := &r.x.slots[at]
	return r.words[at]/r.bestWord + float32(w0.grams)*r.near[at]/r.bestNear + r.neighbors(at) + float32(w0.call)*r.blocks[s.block] + r.date(s.day)
}

// bonuses returns what the first pass adds for who said a turn, and for a word of time in it, with
// the flags of such turns.
func (p *parsed) bonuses() (by uint8, who float32, at uint8, when float32) {
	switch {
	case p.party != 0:
		by, who = p.party, float32(w0.party)
	case p.self:
		by, who = byUser, float32(w0.self)
	}
	if p.when {
		at, when = timed, float32(w0.when)
	}
	return by, who, at, when
}

// best returns the n best slots that fit a query, best first.
func (r *ranking) best(q *Query, n int) []candidate {
	x := r.x
	by, who, with, when := r.p.bonuses()
	perWord, perNear, call, dated := 1/r.bestWord, float32(w0.grams)/r.bestNear, float32(w0.call), len(r.p.dates) > 0
	before1, after1 := perWord*float32(w0.before1+w0.asked), perWord*float32(w0.after1)
	before2, after2 := perWord*float32(w0.before2), perWord*float32(w0.after2)
	top := make([]candidate, 0, n) // a heap, the worst first
	for at := gap; at < len(x.slots)-gap; at++ {
		s, w := &x.slots[at], r.words[at-gap:at+gap+1:at+gap+1]
		if at%slotsAtOnce == 0 && q.late() {
			break
		}
		if s.doc < 0 {
			continue
		}
		bonus, full := float32(0), len(top) == n
		if s.flags&by != 0 {
			bonus = who
		}
		if s.flags&with != 0 {
			bonus += when
		}
		if full { // most are worse, even if all around them counted in full
			most := bonus + perWord*w[2] + perNear*r.near[at] + call*r.blocks[s.block]
			if dated {
				most += r.date(s.day)
			}
			if most+before1*w[1]+after1*w[3]+before2*w[0]+after2*w[4] < .999*top[0].score {
				continue
			}
		}
		score := r.basic(int32(at))
		if score == 0 && r.asked.length == 0 {
			continue
		}
		c := candidate{int32(at), score + bonus}
		if full && (c.score < top[0].score || r.before(top[0], c) < 0) {
			continue
		}
		if d := &x.docs[s.doc]; !q.fits(d) || q.excepts(d) {
			continue
		}
		if full {
			top[0] = c
			r.sift(top, 0)
		} else if top = append(top, c); len(top) == n {
			for i := n / 2; i >= 0; i-- {
				r.sift(top, i)
			}
		}
	}
	slices.SortFunc(top, r.before)
	return top
}

// slotsAtOnce is how many slots are read before the time is.
const slotsAtOnce = 4096

// sift moves a candidate of a heap down to its place.
func (r *ranking) sift(heap []candidate, i int) {
	for {
		worst := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(heap) && r.before(heap[worst], heap[child]) < 0 {
				worst = child
			}
		}
		if worst == i {
			return
		}
		heap[i], heap[worst] = heap[worst], heap[i]
		i = worst
	}
}
