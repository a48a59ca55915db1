package echo

import (
	"slices"
	"strings"
)

// tail finds what is new after turn a of the list, which matches turn b of the ledger. The list
// lacks the newest skip turns of the ledger. Messages within turn a were handled before.
func (x *aligner) tail(a, b, skip int) {
	next := a + 1
	switch {
	case next >= len(x.a) && skip == 0 && a > 0:
		if x.asksAgain(a, b) {
			return
		}
		// The answer was confirmed before: the caller said the same again.
		if len(x.a[a].rest) == 0 {
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
		return // it is the last turn of the list
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

// dropped adds findings for the answers in the skip known turns from b on, which the platform has
// taken back together with the user's words. Turns that the platform need not know are left out.
func (x *aligner) dropped(b, skip int) {
	for _, t := range x.b[b : b+skip] {
		if t.user >= 0 && x.known[t.user].Aside {
			continue
		}
		for _, j := range t.rest {
			if k := &x.known[j]; k.Provisional && !k.Aside && x.speaks(j) {
				x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureLike})
			}
		}
	}
}

// continues reports whether message i, after later words of the caller, continues an answer of
// turn: a "mhm" has split the platform's record of it. The answer was then heard up to the end of
// message i.
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

// asksAgain reports whether the list, whose last turn is a, ends at a point that the ledger has
// passed: at the words of turn b, or at a tool's result. The answers after it are ghosts. It
// reports false if one of them is known to have been heard.
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

// ghosts marks the answers to known turn b after the known message after as ghosts. It reports
// false, and marks none, if one of them is no longer provisional. Calls whose tool has run are not
// ghosts.
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
		x.addFinding(Finding{Known: j, Outcome: Ghost, Confidence: sureRepeated})
	}
	return true
}

// ran reports whether one of the turn's messages is the result of a call of k.
func (x *aligner) ran(k *Known, turn []int) bool {
	return len(k.CallIDs) > 0 && slices.ContainsFunc(turn, func(j int) bool {
		r := &x.known[j]
		return r.Role == "tool" && len(r.CallIDs) > 0 && slices.Contains(k.CallIDs, r.CallIDs[0])
	})
}

// extends reports whether the user message of incoming turn i, the last of the list, is a newer
// transcript of that of known turn j, the last of the ledger: longer, or with a few words changed.
func (x *aligner) extends(i, j int) bool {
	if i < 1 || j < 1 {
		return false
	}
	_, u := x.a[i].normalized()
	_, v := x.b[j].normalized()
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

// revised reports whether u is a newer transcript of v: u has the words of v, at least two, in
// their order or in a similar spelling. One word in three may be missing, but not the last. A
// question that only begins with the same words is another question.
func revised(u, v string) bool {
	a, b := strings.Fields(u), strings.Fields(v)
	found, at, last := 0, 0, false
	for _, w := range b {
		next := at
		for next < len(a) && next <= at+1 && !respelled(a[next], w) {
			next++ // one word may have been added
		}
		if last = next < len(a) && next <= at+1; last {
			found, at = found+1, next+1
		}
	}
	return last && found >= 2 && 3*(len(b)-found) <= len(b)
}

// respelled reports whether a and b may be transcripts of one word: one is the beginning of the
// other, or at most about one letter in three differs.
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

// onlyTrailing notes as new what follows the last answer of a list that has nothing in common with
// the ledger.
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
