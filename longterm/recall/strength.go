package recall

import "slices"

// The strengths of what a search found. They do not follow from scores, which are relative to the
// best hit, but from the share of the query that is covered: by the best hit alone, with the turns
// next to it, and with those two turns away, and by the best covered of the first hits.
const (
	Strong = "strong" // at least strongShare
	Weak   = "weak"   // at least weakShare
	None   = "none"
)

const (
	strongShare = .5
	weakShare   = .2
	// firstHits is how many hits may cover the query best.
	firstHits = 5
	// fewTurns is how many turns a caller is taken to have at least: in few, words that were never
	// said would weigh more than those that were.
	fewTurns = 500
	// lightShare is what light words weigh of what others do.
	lightShare = .25
)

// strength returns how much of the query the best candidates cover.
func (r *ranking) strength(found []candidate, q *Query) string {
	best, most, n := int32(-1), 0., 0
	for _, c := range found {
		if r.basic(c.slot) == 0 { // it can only be close by its embedding
			continue
		}
		if most = max(most, r.share(c.slot, 1, q)); best < 0 {
			best = c.slot
		}
		if n++; n == firstHits {
			break
		}
	}
	if best < 0 {
		return None
	}
	share := (r.share(best, 0, q) + r.share(best, 1, q) + r.share(best, 2, q) + most) / 4
	on := onDay(r.x.slots[best].day)
	if slices.ContainsFunc(r.p.dates, func(d date) bool { return d.holds(on) }) { // asked for by its time
		share = max(share, weakShare)
	}
	switch {
	case share >= strongShare:
		return Strong
	case share >= weakShare:
		return Weak
	}
	return None
}

// share returns the share of the query's weight that a slot covers with those at most so far away.
func (r *ranking) share(at, away int32, q *Query) float64 {
	if r.p.weight == 0 {
		return 0
	}
	var has, near uint32
	for i := at - away; i <= at+away; i++ {
		if d := r.x.slots[i].doc; d >= 0 && !q.excepts(&r.x.docs[d]) {
			has |= r.has[i]
			near |= r.hasNear[i]
		}
	}
	_, weight := r.p.covers(has, near)
	return weight / r.p.weight
}
