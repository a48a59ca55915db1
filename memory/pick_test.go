package memory_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// TestPicker has more agents than one page may read, in three parts, and checks that all pages
// together have those that fit, in order.
func TestPicker(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	type agent struct {
		memory.AgentPlace
		part int
		open bool
	}
	var all []agent
	for n := range int64(60_000) {
		all = append(all, agent{memory.AgentPlace{StartMS: n/4 + 1, No: n + 1}, min(r.IntN(8), 2), r.IntN(50) == 0})
	}
	open, none := &memory.Tally{TallyWords: memory.TallyWords{ToolCalls: 1}}, &memory.Tally{FirstToken: []memory.Count[byte]{{Of: 70, N: 1}}}
	page := func(q memory.AgentQuery) (page memory.AgentPage) {
		p := memory.Picker{Query: &q}
		for part := range 3 {
			p.Part()
			read := slices.Clone(all)
			if !q.ReadsOldest() {
				slices.Reverse(read)
			}
			for _, a := range read {
				if a.part != part || q.ReadsAfter() != (memory.AgentPlace{}) && a.Compare(q.ReadsAfter(), q.ReadsOldest()) <= 0 {
					continue
				}
				tally := none
				if a.open {
					tally = open
				}
				more, err := p.Add(a.AgentPlace, tally.Encode())
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					break
				}
			}
		}
		p.Page(&page)
		return page
	}
	for _, oldestFirst := range []bool{false, true} {
		for _, noTotal := range []bool{false, true} {
			q := memory.AgentQuery{ToolOpen: true, Limit: 500, OldestFirst: oldestFirst, NoTotal: noTotal}
			var got, want []memory.AgentPlace
			for pages := 0; ; pages++ {
				next := page(q)
				if got = append(got, next.Places...); next.Next == (memory.AgentPlace{}) {
					break
				}
				if pages == 0 && !noTotal && (next.Total < 350 || !next.Truncated) {
					t.Errorf("total %d, more %v", next.Total, next.Truncated)
				}
				q.After = next.Next
			}
			for _, a := range all {
				if a.open {
					want = append(want, a.AgentPlace)
				}
			}
			if !oldestFirst {
				slices.Reverse(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("oldest first %v: %d agents, want %d in order", oldestFirst, len(got), len(want))
			}
		}
	}
	q := memory.AgentQuery{Order: memory.ByFirstWord, Limit: 10}
	first := page(q)
	if first.ComparedAll || first.Compared < memory.MaxPicked || first.Compared > 2*memory.MaxPicked || first.ComparedFromMS == 0 || len(first.Places) != 10 {
		t.Errorf("compared %d of %d from %d", first.Compared, len(all), first.ComparedFromMS)
	}
	for _, p := range first.Places {
		if p.StartMS < first.ComparedFromMS {
			t.Errorf("%v is in the page and is older than what was compared, %d", p, first.ComparedFromMS)
		}
	}
}
