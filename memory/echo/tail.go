package echo

import (
	"slices"
	"strings"
)

// This file deals with what follows the last place where the list and the ledger say the same.

// tail finds what is new behind turn a of the list and turn b of the ledger, whose newest skip turns the list lacks. What is foreign within turn a
// is noted already.
func (x *aligner) tail(a, b, skip int) {
	next := a + 1
	switch {
	case next >= len(x.a) && skip == 0 && a > 0:
		if x.asksAgain(a, b) {
			return
		}
		if len(x.a[a].rest) == 0 { // The answer was confirmed long ago: the caller said the same again.
			x.result.Pair[x.a[a].user] = -1
			x.result.New = append(x.result.New, x.a[a].user)
		}
		return
	case next < len(x.a) && skip == 1 && x.extends(next, b+1):
		j := x.b[b+1].user
		x.result.Pair[x.a[next].user] = j
		if text := x.in[x.a[next].user].Text; text != x.known[j].Text {
			x.result.Extend = &Extended{Known: j, Text: text}
		}
		x.ghosts(b+1, -1)
		x.result.New = append(x.result.New, x.a[next].rest...)
		return // it is the last of the list
	}
	if next < len(x.a) {
		x.dropped(b+1, skip)
	}
	for ; next < len(x.a); next++ {
		x.result.New = append(x.result.New, x.a[next].user)
		for _, i := range x.a[next].rest {
			if x.in[i].Role == "assistant" && x.in[i].ToolCalls == nil && blank(withoutNote(x.in[i].Text)) || x.continues(i, x.in[i].Text, x.b[b].rest) {
				continue
			}
			x.result.New = append(x.result.New, i)
		}
	}
}

// dropped judges the answers in the newest skip known turns, from turn b on, in whose place the list goes on with other words: the platform took
// words and answer back. Words that were not the caller's say nothing, since the platform need not know of them.
func (x *aligner) dropped(b, skip int) {
	for _, t := range x.b[b : b+skip] {
		if t.user >= 0 && x.known[t.user].Aside {
			continue
		}
		for _, j := range t.rest {
			if k := &x.known[j]; k.Provisional && !k.Aside && x.speaks(j) {
				x.find(Finding{Known: j, Outcome: Unplayed, Confidence: sureLike})
			}
		}
	}
}

// continues tells whether message i, behind later words of the caller, goes on with an answer to the turn before them: a "mhm" had cut the platform's
// account of it in two. The answer was then heard up to there.
func (x *aligner) continues(i int, text string, turn []int) bool {
	if x.in[i].Role != "assistant" || x.in[i].ToolCalls != nil || countWords(text) < 2 {
		return false
	}
	for n := range x.result.Answers {
		f := &x.result.Answers[n]
		if f.Outcome != Interrupted || !slices.Contains(turn, f.Known) {
			continue
		}
		whole := x.known[f.Known].Original
		rest := whole[len(f.Heard):]
		prefix, ok := x.beginning(rest, text)
		if !ok {
			continue
		}
		x.result.Pair[i] = f.Known
		f.Heard = whole[:len(f.Heard)+len(prefix)]
		if f.Heard == whole {
			f.Outcome, f.Heard = Full, ""
		}
		return true
	}
	return false
}

// asksAgain tells whether the list, whose last turn is a, ends where the ledger has been before: at the words of turn b, or at a tool's result. What was
// answered then is a ghost. It is false where one of those answers is known to have been heard.
func (x *aligner) asksAgain(a, b int) bool {
	rest := x.a[a].rest
	if len(rest) == 0 {
		return x.ghosts(b, -1)
	}
	last := rest[len(rest)-1]
	if role := x.in[last].Role; role != "tool" && role != "function" || x.result.Pair[last] < 0 {
		return true
	}
	x.ghosts(b, x.result.Pair[last])
	return true
}

// ghosts finds the answers to known turn b that stand behind the known message after; false if one of them is no longer provisional, and none is found.
// A call whose tool has run is none: what it did is done.
func (x *aligner) ghosts(b, after int) bool {
	var ghosts []int
	for _, j := range x.b[b].rest {
		k := &x.known[j]
		if j <= after || k.Role != "assistant" || k.Aside || k.Unheard || x.ran(k, x.b[b].rest) {
			continue
		}
		if !k.Provisional {
			return false
		}
		ghosts = append(ghosts, j)
	}
	for _, j := range ghosts {
		x.find(Finding{Known: j, Outcome: Ghost, Confidence: sureRepeated})
	}
	return true
}

// ran tells whether one of the turn's messages is the result of a call of k.
func (x *aligner) ran(k *Known, turn []int) bool {
	return len(k.CallIDs) > 0 && slices.ContainsFunc(turn, func(j int) bool {
		r := &x.known[j]
		return r.Role == "tool" && len(r.CallIDs) > 0 && slices.Contains(k.CallIDs, r.CallIDs[0])
	})
}

// extends tells whether the user message of incoming turn i, the last of the list, is that of known turn j, the last of the ledger, as the recogniser
// has it now, and may replace it: with more behind it, or with a word here and there heard otherwise.
func (x *aligner) extends(i, j int) bool {
	if i < 1 || j < 1 {
		return false
	}
	_, u := x.a[i].words()
	_, v := x.b[j].words()
	if v == "" || i != len(x.a)-1 || !strings.HasPrefix(u, v) && !revised(u, v) {
		return false
	}
	rest := x.b[j].rest
	return !slices.ContainsFunc(rest, func(r int) bool {
		k := &x.known[r]
		return k.Role != "assistant" || !k.Provisional && !k.Aside && !x.ran(k, rest)
	})
}

// maxRespelled is the longest word that is compared letter by letter.
const maxRespelled = 32

// revised tells whether u is what became of v when the recogniser had heard more: each word of v, two at least, is there in its order or one that is
// written much like it, but for one in three left out, and never the last. A question that only begins alike is another question.
func revised(u, v string) bool {
	a, b := strings.Fields(u), strings.Fields(v)
	found, at, last := 0, 0, false
	for _, w := range b {
		next := at
		for next < len(a) && next <= at+1 && !respelled(a[next], w) {
			next++ // one word may have come in between
		}
		if last = next < len(a) && next <= at+1; last {
			found, at = found+1, next+1
		}
	}
	return last && found >= 2 && 3*(len(b)-found) <= len(b)
}

// respelled tells whether a recogniser may write b where it wrote a before: one begins the other, or about one letter in three differs.
func respelled(a, b string) bool {
	if a == b {
		return true
	}
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	if len(x) < 2 || len(y) > maxRespelled {
		return false
	}
	if slices.Equal(x, y[:len(x)]) {
		return true
	}
	row := make([]int, len(x)+1) // edit distance
	for i := range row {
		row[i] = i
	}
	for j := range y {
		before := row[0]
		row[0] = j + 1
		for i := range x {
			change := before
			if x[i] != y[j] {
				change++
			}
			before, row[i+1] = row[i+1], min(change, row[i]+1, row[i+1]+1)
		}
	}
	return row[len(x)] <= (len(x)+1)/3
}

// onlyTrailing takes as new what follows the last answer in a list that has nothing in common with the ledger.
func (x *aligner) onlyTrailing() {
	for i := len(x.in) - 1; i >= 0; i-- {
		switch {
		case x.in[i].IsSystem():
			continue
		case x.in[i].Role == "assistant":
			slices.Reverse(x.result.New)
			return
		}
		x.result.New = append(x.result.New, i)
	}
	slices.Reverse(x.result.New)
}
