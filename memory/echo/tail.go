package echo

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
)

// tail finds what is new after turn a of the list, which matches turn b of the ledger. Messages
// within turn a were handled before.
func (x *aligner) tail(a, b int, steps []step) {
	if a+1 >= len(x.a) {
		// The answer was confirmed before: the caller said the same again.
		if x.why == Asked && a > 0 && b == len(x.b)-1 && !x.asksAgain(a, b) && len(x.a[a].rest) == 0 {
			x.result.Pair[x.a[a].user] = -1
			x.result.New = append(x.result.New, x.a[a].user)
		}
		return
	}
	for next := a + 1; next < len(x.a); next++ {
		if u := x.a[next].user; !x.moved(next, steps) {
			x.result.New = append(x.result.New, u)
		}
		for _, i := range x.a[next].rest {
			m := &x.in[i]
			if _, part := x.result.Part[i]; x.result.Pair[i] >= 0 && !part || m.Role == "assistant" && m.ToolCalls == nil && blank(withoutNote(m.Text)) {
				continue
			}
			x.result.New = append(x.result.New, i)
		}
	}
	x.dropped(b + 1)
}

// moved pairs the user message of turn i with the same words in one of the newest turns of the
// ledger that is not in the list: the platform has moved it.
func (x *aligner) moved(i int, steps []step) bool {
	from := max(0, len(x.b)-maxMoved)
	if len(steps) > 0 { // a window may have removed what is before
		from = max(from, steps[len(steps)-1].b)
	}
	for j := len(x.b) - 1; j > from; j-- {
		if v := &x.b[j]; !slices.Contains(x.result.Pair, v.user) && x.a[i].same(v) {
			x.result.Pair[x.a[i].user] = v.user
			return true
		}
	}
	return false
}

// maxMoved is by how many turns a message may have been moved.
const maxMoved = 4

// dropped adds findings for the answers in the known turns from b on, which the platform has taken
// back together with the user's words. Turns that the platform need not know are left out.
func (x *aligner) dropped(b int) {
	for _, t := range x.b[b:] {
		if t.user >= 0 && (x.known[t.user].Aside || slices.Contains(x.result.Pair, t.user)) {
			continue
		}
		for _, j := range t.rest {
			if k := &x.known[j]; k.Provisional && !k.Aside && x.speaks(j) {
				x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureLike})
			}
		}
	}
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
		if j <= after || k.Role != "assistant" || k.Aside || k.Unheard || k.Ghost || x.ran(k, x.b[b].rest) {
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

// link pairs the user messages of all steps, and notes those that the list has in a newer form.
func (x *aligner) link(steps []step) {
	for _, s := range steps {
		i, j := s.aFrom+1, s.bFrom+1
		for ; i <= s.a; i++ {
			x.result.Pair[x.a[i].user] = x.b[min(j, s.b)].user
			j++
		}
		if s.a-s.aFrom > 1 {
			continue
		}
		u, v := &x.a[s.a], &x.b[s.b]
		x.result.Pair[u.user] = v.user // if several known messages became one, it is the last of them
		if s.b-s.bFrom > 1 || x.in[u.user].Hidden || u.text == v.text || u.same(v) && !v.labelled(u) || x.known[v.user].Aside {
			continue
		}
		switch text := x.in[u.user].Text; {
		case u.same(v):
			x.result.Extend = append(x.result.Extend, Extended{v.user, text})
		case x.replyOf(s.a) < 0:
			x.result.Extend = append(x.result.Extend, Extended{v.user, text})
		default:
			if kin := x.kin(u, v); kin == corrected || kin == unwrapped || kin == unrelated && len(text) < 2*len(v.text)+maxCorrected && (s.aFrom > 0 || s.bFrom == 0) && !titled(text, v.text) {
				x.result.Extend = append(x.result.Extend, Extended{v.user, text})
			}
		}
	}
}

// titled reports whether a text begins with a title, as a summary does ("Summary so far: …"), and
// the known words do not. Speech recognition writes no colons so early.
func titled(text, known string) bool {
	title, _, found := strings.Cut(text, ":")
	return found && len(strings.Fields(title)) <= maxTitle && !strings.Contains(known, ":")
}

// maxTitle is how many words a title has at most.
const maxTitle = 5

// maxCorrected is how much longer than twice the ledger's words a corrected transcript may be, in
// bytes. Anything longer has other text around the caller's words, or is a summary, like the text
// in front of a window.
const maxCorrected = 40

// repeats finds turns of the ledger that later requests have asked again, in the same or newer
// words, and that the list has only once: the others were speculations.
func (x *aligner) repeats(steps []step) {
	for at, s := range steps {
		until := len(x.b) - 1
		if at > 0 {
			until = steps[at-1].bFrom
		}
		u := &x.a[s.a]
		for j := s.b + 1; j <= until && x.withdraw(j, u); j++ { // behind the turn that was kept
		}
		for j := s.b + 1; j <= until && (at > 0 || s.a+1 < len(x.a)); j++ {
			x.note(j)
		}
		from := 0
		switch {
		case at+1 < len(steps):
			from = steps[at+1].b
		case s.aFrom > 0 || x.settled(s.bFrom):
			return // a window may have removed what is before
		case !x.speculated(0, s.bFrom, &x.a[1]):
			x.otherFirst(s)
			return
		}
		for j := s.bFrom; j > from && x.withdraw(j, &x.a[s.aFrom+1]); j-- { // before it
		}
	}
}

// otherFirst takes back the ledger's first words and their answer, if the list goes on from the
// second ones. No list has had that answer until now, so that no window has removed it.
func (x *aligner) otherFirst(s step) {
	if s.bFrom != 1 || len(x.a) < 3 || len(x.a[0].rest) > 0 {
		return
	}
	first := &x.b[1]
	certain := x.known[first.user].First
	if !certain && (sentence(first.text) || !sentence(x.a[1].text)) {
		return
	}
	for _, j := range first.rest {
		if k := &x.known[j]; k.Role != "assistant" || x.said[j] || !k.Provisional || k.Aside || len(k.CallIDs) > 0 {
			return
		}
	}
	for _, j := range first.rest {
		x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureLike})
	}
	if certain && len(first.rest) > 0 && x.shows() {
		x.result.Gone = append(x.result.Gone, first.user)
	}
}

// sentence reports whether a transcript ends as a sentence does.
func sentence(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimSpace(s))
	return strings.ContainsRune(text.SentenceEnds, r)
}

// note takes back the user message of turn j if it was not the caller's: all of it is in brackets,
// and the list has what is around it.
func (x *aligner) note(j int) {
	v := &x.b[j]
	text := strings.TrimSpace(v.text)
	if slices.Contains(x.result.Pair, v.user) || slices.Contains(x.result.Gone, v.user) || len(text) < 2 {
		return
	}
	if first, last := text[0], text[len(text)-1]; first == '(' && last == ')' || first == '[' && last == ']' {
		x.result.Gone = append(x.result.Gone, v.user)
	}
}

// settled reports whether an earlier list has shown one of the answers of the first turns, up to
// the given one.
func (x *aligner) settled(to int) bool {
	return slices.ContainsFunc(rests(x.b, 0, to), func(r int) bool { return x.known[r].Unheard })
}

// withdraw marks turn j of the ledger as a speculation, if it is one.
func (x *aligner) withdraw(j int, u *turnOf) bool {
	if !x.speculated(j-1, j, u) {
		return false
	}
	v := &x.b[j]
	for _, r := range v.rest {
		if x.known[r].Provisional {
			x.told[r] = false
			x.result.Answers = slices.DeleteFunc(x.result.Answers, func(f Finding) bool { return f.Known == r })
			x.addFinding(Finding{Known: r, Outcome: Ghost, Confidence: sureRepeated})
		}
	}
	x.result.Gone = append(x.result.Gone, v.user)
	return true
}

// speculated reports whether u has the words of each of the turns (from, to] of the ledger, or
// newer ones, and nothing of their answers is known to have been heard.
func (x *aligner) speculated(from, to int, u *turnOf) bool {
	_, list := u.normalized()
	for j := from + 1; j <= to; j++ {
		v := &x.b[j]
		_, known := v.normalized()
		if known == "" || slices.Contains(x.result.Pair, v.user) || !u.same(v) && !grown(list, known) {
			return false
		}
		for _, r := range v.rest {
			if k := &x.known[r]; x.said[r] || k.Role != "assistant" || k.Aside || !k.Provisional && !k.Unheard && !k.Ghost || len(k.CallIDs) > 0 {
				return false
			}
		}
	}
	return true
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
