package report

import (
	"cmp"
	"math"
	"slices"
)

// Sketch counts times in logarithmic buckets, so that percentiles are within 2 % and sketches of
// parts add up to the sketch of the whole. Its buckets are in rising order and never empty.
type Sketch []Bucket

// Bucket is how many times fell into a bucket.
type Bucket struct {
	Of uint16
	N  int64
}

const (
	gamma = 1.04 // the ratio of two neighbouring buckets: the middle of one is within 2 % of its ends
	// maxBucket has all times of more than three days, the longest that an agent may run.
	maxBucket = 496
)

var perBucket = math.Log(gamma)

// Add counts a time in ms; those below 1 as 1.
func (s *Sketch) Add(ms int64) {
	i := math.Ceil(math.Log(float64(max(ms, 1))) / perBucket)
	s.count(uint16(min(i, maxBucket)), 1)
}

func (s *Sketch) count(of uint16, n int64) {
	at, found := slices.BinarySearchFunc(*s, of, func(b Bucket, of uint16) int { return cmp.Compare(b.Of, of) })
	if !found {
		*s = slices.Insert(*s, at, Bucket{Of: of})
	}
	if (*s)[at].N += n; (*s)[at].N == 0 {
		*s = slices.Delete(*s, at, at+1)
	}
}

// Merge adds by times what another sketch has counted: 1, or -1 to take it away.
func (s *Sketch) Merge(o Sketch, by int64) {
	a, b := *s, o
	for len(a) > 0 && len(b) > 0 && a[0].Of <= b[0].Of { // in place, as far as o has no other buckets
		if a[0].Of == b[0].Of {
			if a[0].N+by*b[0].N == 0 {
				break
			}
			a[0].N += by * b[0].N
			b = b[1:]
		}
		a = a[1:]
	}
	if o = b; len(o) == 0 {
		return
	}
	out := make(Sketch, 0, len(*s)+len(o))
	add := func(b Bucket) {
		if b.N != 0 {
			out = append(out, b)
		}
	}
	a = *s
	for len(a) > 0 || len(o) > 0 {
		switch {
		case len(o) == 0 || len(a) > 0 && a[0].Of < o[0].Of:
			add(a[0])
			a = a[1:]
		case len(a) == 0 || o[0].Of < a[0].Of:
			add(Bucket{o[0].Of, by * o[0].N})
			o = o[1:]
		default:
			add(Bucket{a[0].Of, a[0].N + by*o[0].N})
			a, o = a[1:], o[1:]
		}
	}
	*s = out
}

// Count returns how many times were counted.
func (s Sketch) Count() (n int64) {
	for _, b := range s {
		n += b.N
	}
	return n
}

// Percentile returns the time in ms that the share p (0 to 1) of the times did not exceed, within
// 2 %; 0 if none was counted.
func (s Sketch) Percentile(p float64) int64 {
	rank := max(int64(math.Ceil(p*float64(s.Count()))), 1)
	for _, b := range s {
		if rank -= b.N; rank <= 0 {
			return int64(math.Round(2 * math.Pow(gamma, float64(b.Of)) / (gamma + 1)))
		}
	}
	return 0
}
