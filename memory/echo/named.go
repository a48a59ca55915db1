package echo

import "github.com/heardlog/heardlog/memory/heard"

// pairNamed pairs the answers that the list names. Their words are not searched for then, and words
// of others are not taken for theirs.
func (x *aligner) pairNamed() {
	var at map[string]int
	for i := range x.in {
		m := &x.in[i]
		if m.ID == "" || m.Text == "" || m.Role != "assistant" {
			continue
		}
		if at == nil {
			at = make(map[string]int, len(x.known))
			for j := range x.known {
				if k := &x.known[j]; k.ID != "" && k.Original != "" && k.Role == "assistant" {
					at[k.ID] = j
				}
			}
		}
		j, ok := at[m.ID]
		if !ok || x.said[j] {
			continue
		}
		k := &x.known[j]
		f := Finding{Known: j, Outcome: Full, Confidence: sureSame}
		if m.Text != k.Original && x.normIn(i) != x.normKnown(j) {
			prefix, ok := heard.Align(k.Original, withoutNote(m.Text))
			if !ok {
				continue
			}
			if prefix != k.Original {
				f.Outcome, f.Heard, f.Confidence = Interrupted, wholeWords(k.Original, prefix), sureSpoken
			}
		}
		x.pair(i, f)
	}
}

// named reports whether pairNamed has found message i.
func (x *aligner) named(i int) bool {
	j := x.result.Pair[i]
	return j >= 0 && x.in[i].ID != "" && x.in[i].ID == x.known[j].ID
}

// over adds findings for the answers that the whole history of a call lacks: they were not played.
// A list that begins after the ledger's first turns says nothing about these.
func (x *aligner) over() {
	first := len(x.known)
	for _, j := range x.result.Pair {
		if j >= 0 {
			first = min(first, j)
		}
	}
	if len(x.a) > 1 && x.result.Pair[x.a[1].user] == x.firstUser() {
		first = 0 // it begins where the ledger does
	}
	for j := first; j < len(x.known); j++ {
		if k := &x.known[j]; k.Provisional && x.speaks(j) && !k.Ghost {
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureGone})
		}
	}
}

// firstUser returns the first user message of the ledger, or -2.
func (x *aligner) firstUser() int {
	if len(x.b) > 1 {
		return x.b[1].user
	}
	return -2
}
