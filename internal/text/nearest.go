package text

import (
	"slices"
	"strings"
)

// minNear is the length that the longer of two names has at least, if one is the other misspelt.
// The shorter may have a letter less.
const minNear = 4

// Nearest returns the name that a misspelt one was most likely meant to be, or "" if none is like
// it. It may differ in case, by one letter, or by two in a name of seven letters or more; a name
// of fewer than four letters only in their order.
func Nearest(name string, names []string) string {
	best, limit := "", 1
	if len(name) >= 7 {
		limit = 2
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		short := max(len(name), len(n)) < minNear || min(len(name), len(n)) < minNear-1
		if short && !swapped(name, n) || len(name)-len(n) > limit || len(n)-len(name) > limit {
			continue
		}
		if d := distance(name, n); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// swapped reports whether a and b have the same letters in another order.
func swapped(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values([]byte(a))), slices.Sorted(slices.Values([]byte(b))))
}

// distance returns how many letters must be added, removed or changed to turn a into b, or two
// neighbours swapped.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
