package handlers

import "strings"

// minNear is the length of the shortest name that counts as misspelt.
const minNear = 4

// nearest returns the name that a misspelt one was most likely meant to be, or "" if none is like
// it. It may differ in case, by one letter, or by two in a name of seven letters or more.
func nearest(name string, names []string) string {
	best, limit := "", 1
	if len(name) >= 7 {
		limit = 2
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if len(name) < minNear || len(n) < minNear || len(name)-len(n) > limit || len(n)-len(name) > limit {
			continue
		}
		if d := distance(name, n); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
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
