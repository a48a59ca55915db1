package memory

import (
	"math"
	"slices"
)

// AgentOrder is what a list of agents is ordered by.
type AgentOrder string

// The orders. The highest comes first, with OldestFirst the lowest; of equal ones the newest, with
// OldestFirst the oldest.
const (
	ByStart     AgentOrder = ""
	ByUnheard   AgentOrder = "unheard"    // the share of the words that were not heard
	ByFirstWord AgentOrder = "first_word" // the slowest time to a first token
)

// MaxPicked is how many agents of one status a list reads at most to choose a page by their
// tallies.
const MaxPicked = 20_000

// Picks reports whether the page is chosen by what the agents' tallies say.
func (q *AgentQuery) Picks() bool {
	return q.Order != ByStart || q.UnheardMin > 0 || q.FirstWordMS > 0 || q.ToolOpen
}

// ReadsOldest reports whether agents are read from the oldest on to pick some. An order other than
// by start compares the newest agents, whichever end of it comes first.
func (q *AgentQuery) ReadsOldest() bool { return q.OldestFirst && q.Order == ByStart }

// ReadsAfter returns the place after which agents are read to pick some.
func (q *AgentQuery) ReadsAfter() AgentPlace {
	if q.Order != ByStart {
		return AgentPlace{}
	}
	return q.After
}

// weigh reports whether an agent with this tally is in the list, and its key in the order.
func (q *AgentQuery) weigh(t *Tally) (key int64, ok bool) {
	share, known := t.UnheardShare()
	slowest := t.Slowest()
	if q.UnheardMin > 0 && (!known || share < q.UnheardMin) || q.FirstWordMS > 0 && slowest < q.FirstWordMS || q.ToolOpen && (!t.Whole() || t.ToolsOpen() == 0) {
		return 0, false
	}
	switch q.Order {
	case ByUnheard:
		return int64(math.Round(share * 1e6)), known
	case ByFirstWord:
		return slowest, slowest > 0
	}
	return 0, true
}

// Picker chooses the agents of a page by their tallies, for a store that reads them in order of
// their starts: in one part, or in one for each status.
type Picker struct {
	Query *AgentQuery
	tally Tally
	read  []AgentPlace
	found []AgentPlace
	until AgentPlace // up to here all parts were read; zero = to their ends
	from  [2]int     // where the part begins in read and found
}

// Part begins the next part.
func (p *Picker) Part() { p.from = [2]int{len(p.read), len(p.found)} }

// Add takes the next agent of the part, with its encoded tally. It reports whether the part is to
// be read on. Page is called after the last part.
func (p *Picker) Add(place AgentPlace, tally []byte) (more bool, err error) {
	stop := len(p.read)-p.from[0] == MaxPicked
	// Without a total a part is read until it has enough.
	if q := p.Query; q.Order == ByStart && !p.counts() && len(p.found)-p.from[1] > q.Limit {
		stop = true
	}
	if stop {
		if last := p.read[len(p.read)-1]; p.until == (AgentPlace{}) || last.Compare(p.until, p.Query.ReadsOldest()) < 0 {
			p.until = last
		}
		return false, nil
	}
	p.tally = Tally{FirstToken: p.tally.FirstToken[:0], FailedAt: p.tally.FailedAt[:0]}
	if err := p.tally.MergeEncoded(tally); err != nil {
		return false, err
	}
	p.read = append(p.read, place)
	var ok bool
	if place.Key, ok = p.Query.weigh(&p.tally); ok {
		p.found = append(p.found, place)
	}
	return true, nil
}

// counts reports whether the page gets a total.
func (p *Picker) counts() bool { return !p.Query.NoTotal && p.Query.After == (AgentPlace{}) }

// Page sets the Places of a page, its Next, Total and Compared.
func (p *Picker) Page(page *AgentPage) {
	q := p.Query
	beyond := func(a AgentPlace) bool {
		a.Key = 0
		return p.until != (AgentPlace{}) && a.Compare(p.until, q.ReadsOldest()) > 0
	}
	p.read, p.found = slices.DeleteFunc(p.read, beyond), slices.DeleteFunc(p.found, beyond)
	if p.counts() {
		page.Total, page.Truncated = len(p.found), p.until != (AgentPlace{})
	}
	if q.Order != ByStart {
		page.Compared, page.ComparedAll = len(p.read), p.until == (AgentPlace{})
		for _, place := range p.read {
			if page.ComparedFromMS == 0 || place.StartMS < page.ComparedFromMS {
				page.ComparedFromMS = place.StartMS
			}
		}
		if q.After != (AgentPlace{}) {
			p.found = slices.DeleteFunc(p.found, func(a AgentPlace) bool { return a.Compare(q.After, q.OldestFirst) <= 0 })
		}
	}
	slices.SortFunc(p.found, func(a, b AgentPlace) int { return a.Compare(b, q.OldestFirst) })
	switch limit := max(q.Limit, 1); {
	case len(p.found) > limit:
		p.found = p.found[:limit]
		page.Next = p.found[limit-1]
	case q.Order == ByStart:
		page.Next = p.until
	}
	page.Places = p.found
}
