package record

import (
	"cmp"
	"math"
	"slices"
)

// Find selects records by their words: those that a driver's Terms function returns for them.
type Find struct {
	Words [][]string // each in the forms that it may have in a record
	All   []string   // what each found record must have too
	Limit int        // at least 1
}

// Found is what a store finds.
type Found struct {
	Records []Record // those with the most and the rarest words first
	Count   int64    // of all records of the space
	With    []int    // how many records have each word; at most MaxMatches
}

// MaxMatches is how many records with a word are candidates. Of those with a more frequent word the
// store picks some, and those that have all words.
const MaxMatches = 2000

// Match is a record with words that were asked for.
type Match struct {
	ID   string
	Size int64
}

// Rank returns the IDs of the best records of a space with a number of records, and how many have
// each word. match returns up to MaxMatches records that have all of the given words, each in one
// of its forms.
func Rank(q Find, count int64, match func(words [][]string) ([]Match, error)) (ids []string, with []int, err error) {
	var must [][]string
	for _, w := range q.All {
		must = append(must, []string{w})
	}
	type rank struct {
		Match
		score float64
	}
	found := map[string]*rank{}
	var known [][]string
	total, more := 0., false
	for _, w := range q.Words {
		list, err := match([][]string{w})
		if err != nil {
			return nil, nil, err
		}
		with = append(with, len(list))
		if len(list) > 0 && len(must) > 0 {
			if list, err = match(append([][]string{w}, must...)); err != nil {
				return nil, nil, err
			}
		}
		if len(list) == 0 {
			continue
		}
		known, more = append(known, w), more || len(list) >= MaxMatches
		weight := math.Log(1 + float64(count)/float64(len(list)))
		total += weight
		for _, m := range list {
			if found[m.ID] == nil {
				found[m.ID] = &rank{Match: m}
			}
			found[m.ID].score += weight
		}
	}
	if more && len(known) > 1 {
		list, err := match(append(known, must...))
		if err != nil {
			return nil, nil, err
		}
		for _, m := range list {
			found[m.ID] = &rank{m, total}
		}
	}
	best := make([]*rank, 0, len(found))
	for _, r := range found {
		best = append(best, r)
	}
	// Of records that match alike, the shorter ones are more about the words.
	slices.SortFunc(best, func(a, b *rank) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.Size, b.Size), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range best[:min(len(best), max(q.Limit, 1))] {
		ids = append(ids, r.ID)
	}
	return ids, with, nil
}

// Arrange puts the records that were read for the IDs of Rank into their order.
func Arrange(list []Record, ids []string) []Record {
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(at[a.ID], at[b.ID]) })
	return list
}
