package echo

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// spanKind is where a span is in the list. It decides what the absence of an answer means.
type spanKind int

const (
	// Before the first user message: anything may be missing, and unknown messages are old.
	spanHead     spanKind = iota
	spanFirst             // the same, in the first list of a conversation
	spanMiddle            // unknown messages are old, or too late to be placed: they are not stored
	spanFollowed          // the last turn that both lists have; new turns follow
	spanTail              // the end of the list: what is missing may still come
)

// span is what both lists have from one step to the next.
type span struct {
	kind  spanKind
	in    []int // messages of the list that are not the caller's
	known []int // messages of the ledger that may be among them
	due   []int // those of known whose user message the list has
	// foreign are the messages that are not ours, and empty is the number of those without words.
	foreign []int
	empty   int
}

// split sets the spans of an alignment.
func (x *aligner) split(steps []step) {
	m, n := len(x.a)-1, len(x.b)-1
	if len(steps) == 0 {
		kind := spanFirst
		if m == 0 {
			kind = spanTail
		}
		x.spans = []span{{kind: kind, in: x.a[0].rest, known: x.b[0].rest, due: x.b[0].rest}}
		return
	}
	for at, s := range steps { // newest first, so that the limits cut off the oldest
		p := span{kind: spanMiddle, in: rests(x.a, s.aFrom, s.a), due: rests(x.b, s.bFrom, s.b)}
		// The list may have the answers of turns whose user messages it lacks, such as reminders.
		until := n
		switch {
		case at > 0:
			until = steps[at-1].bFrom
			if next := steps[at-1].aFrom; next > s.a {
				p.in = rests(x.a, s.aFrom, next)
			}
		case s.a < m:
			p.kind = spanFollowed
		default:
			p.kind = spanTail
		}
		if p.known = p.due; until > s.b {
			p.known = rests(x.b, s.bFrom, until)
		}
		x.spans = append(x.spans, p)
	}
	// A greeting, or a window, may precede the first step.
	if first := steps[len(steps)-1]; first.aFrom == 0 {
		known := x.b[first.bFrom].rest
		x.spans = append(x.spans, span{kind: spanHead, in: x.a[0].rest, known: known})
	}
}

// rests returns the messages of turns (from, to] that are not the caller's.
func rests(turns []turnOf, from, to int) []int {
	if to-from == 1 {
		return turns[to].rest
	}
	var all []int
	for _, t := range turns[from+1 : to+1] {
		all = append(all, t.rest...)
	}
	return all
}

// pairSpan pairs the messages of one span, and notes those that are not ours.
func (x *aligner) pairSpan(p *span) {
	if len(p.in) == 1 && len(p.known) == 1 && x.plain(p.in[0], p.known[0]) {
		return
	}
	for _, i := range p.in { // unchanged texts first: similar ones may look like part of them
		if m := &x.in[i]; m.Role == "assistant" && m.ToolCalls == nil && m.Text != "" && x.result.Pair[i] < 0 {
			x.pairEqual(i, p.known)
		}
	}
	for _, i := range p.in {
		m := &x.in[i]
		if m.Role == "assistant" && m.ToolCalls == nil && x.result.Pair[i] >= 0 {
			continue
		}
		paired := (m.Role == "tool" || m.Role == "function" || m.ToolCalls != nil) && x.pairTool(i, p.known)
		switch {
		case m.Role == "assistant" && !paired && blank(withoutNote(m.Text)) && m.ToolCalls == nil && !x.pairText(i, m.Text, p.known):
			p.empty++ // only dots or a note are left of an unheard answer
		case m.Role == "assistant" && m.Text != "" && x.named(i):
		case m.Role == "assistant" && m.Text != "":
			if said := withoutNote(m.Text); !x.pairText(i, said, p.known) && !paired && !blank(said) {
				p.foreign = append(p.foreign, i)
			}
		case !paired && (m.Role != "assistant" || m.ToolCalls != nil):
			p.foreign = append(p.foreign, i)
		}
	}
}

// strays finds our words outside their span: an answer that the platform committed behind later
// words of the caller, moved, or has twice. a and b are the newest turns that both lists have.
func (x *aligner) strays(a, b int) {
	var all []int
	for j := range slices.Backward(x.known) {
		if x.speaks(j) || x.revives(j) {
			all = append(all, j)
		}
	}
	ours := func(i int, near []int) bool {
		m := &x.in[i]
		return m.Role == "assistant" && m.ToolCalls == nil && m.Text != "" && x.result.Pair[i] < 0 && (x.strayText(i, all) || x.repeated(i, near))
	}
	for at := range x.spans {
		p := &x.spans[at]
		p.foreign = slices.DeleteFunc(p.foreign, func(i int) bool { return ours(i, p.known) })
	}
	for next := a + 1; next < len(x.a); next++ {
		for _, i := range x.a[next].rest {
			switch m := &x.in[i]; {
			case x.continues(i, m.Text, x.b[b].rest):
			case next == a+1 && m.Role == "assistant" && m.Text != "" && m.ToolCalls == nil && len(x.spans[0].in) == 0 && x.pairText(i, withoutNote(m.Text), x.b[b].rest):
				// The caller's later words were committed in front of the answer.
			default:
				ours(i, nil)
			}
		}
	}
}

// strayText pairs a text with an answer that it equals or begins, wherever that is in the ledger.
func (x *aligner) strayText(i int, all []int) bool {
	said := withoutNote(x.in[i].Text)
	all = x.possible(i, all)
	norm := x.normIn(i)
	if said != x.in[i].Text {
		norm = heard.Normalize(said)
	}
	for _, j := range all {
		k := &x.known[j]
		switch {
		case x.said[j]:
		case norm == x.normKnown(j):
			x.pair(i, Finding{Known: j, Outcome: Full, Confidence: sureWords})
			return true
		case k.Text != k.Original && k.Text != "" && norm == heard.Normalize(k.Text): // known since an earlier list
			x.pair(i, Finding{Known: j, Outcome: Interrupted, Heard: k.Text, Confidence: sureWords})
			return true
		}
	}
	if strings.Count(norm, " ") < 2 {
		return false
	}
	if x.pairReordered(i, said, all) {
		return true
	}
	first, _, _ := strings.Cut(norm, " ")
	for _, j := range all {
		if x.said[j] || !strings.HasPrefix(x.normKnown(j), first) {
			continue
		}
		if f, ok := x.heardOf(j, said); ok && f.Confidence >= sureFew {
			x.pair(i, f)
			return true
		}
	}
	return false
}

// repeated reports whether a text is one of our answers that the list has before or after it too:
// beside it, which near has, or cut elsewhere. The longer one counts.
func (x *aligner) repeated(i int, near []int) bool {
	norm := x.normIn(i)
	words := strings.Count(norm, " ") + 1
	if words < 2 || x.in[i].Own {
		return false
	}
	for j := range slices.Backward(x.known) {
		k := &x.known[j]
		if !x.said[j] || k.Role != "assistant" || k.Aside || k.Original == "" {
			continue
		}
		whole := x.normKnown(j)
		if norm != whole && (words < 3 || !strings.HasPrefix(whole, norm+" ")) {
			continue
		}
		at := slices.IndexFunc(x.result.Answers, func(f Finding) bool { return f.Known == j && f.Outcome == Interrupted })
		if at < 0 && (norm == whole || !slices.Contains(near, j)) {
			continue
		}
		x.result.Pair[i] = j
		if at >= 0 {
			f := &x.result.Answers[at]
			if prefix, ok := x.beginning(k.Original, x.in[i].Text); ok && len(prefix) > len(f.Heard) {
				f.Heard = prefix
			}
			if f.Heard == k.Original {
				f.Outcome, f.Heard = Full, ""
			}
		}
		return true
	}
	return false
}

// absent adds findings for answers whose words the list lacks: replaced if the platform said
// something else, unplayed if the conversation went on without them. It also notes what is new.
func (x *aligner) absent(p *span) {
	if p.kind == spanHead {
		// Context for the first request only.
		for _, j := range p.known {
			if x.known[j].Reported && x.speaks(j) && len(x.b) == 2 && len(p.in) == 0 && x.shows() {
				x.result.Gone = append(x.result.Gone, j)
			}
		}
		return
	}
	if p.kind != spanFirst {
		x.missing(p)
	}
	if p.kind == spanMiddle {
		return
	}
	for _, i := range p.in {
		if _, part := x.result.Part[i]; part || slices.Contains(p.foreign, i) {
			x.result.New = append(x.result.New, i)
		}
	}
}

// missing adds the findings of absent.
func (x *aligner) missing(p *span) {
	instead := -1
	for _, i := range p.foreign {
		if x.in[i].Role == "assistant" && x.in[i].Text != "" {
			instead = i
		}
	}
	for _, j := range p.known {
		if x.known[j].Reported && x.speaks(j) && x.shows() && p.kind != spanTail && j >= x.recent() && !x.mixed(j, p.in) {
			x.result.Gone = append(x.result.Gone, j)
		}
	}
	for _, j := range p.due {
		k := &x.known[j]
		if !x.speaks(j) || k.Aside || !k.Provisional {
			continue
		}
		switch {
		case len(k.CallIDs) > 0 && slices.ContainsFunc(p.in, func(i int) bool { return x.result.Pair[i] == j }):
			// Many platforms keep the call and leave out its text.
		case p.empty > 0 && p.kind != spanTail:
			p.empty--
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureGone})
		case instead >= 0 && p.kind != spanMiddle:
			if x.result.Place == nil {
				x.result.Place = map[int]int{}
			}
			x.result.Place[instead] = j
			x.addFinding(Finding{Known: j, Outcome: Replaced, Confidence: sureOther})
		case instead >= 0:
			x.addFinding(Finding{Known: j, Outcome: Replaced, Confidence: sureLike})
		case p.kind == spanFollowed: // it may still come late
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureFew})
		case p.kind != spanTail:
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureGone})
		}
	}
}

// shows reports whether the list has answers of ours: some clients never send any.
func (x *aligner) shows() bool {
	for i, j := range x.result.Pair {
		if j >= 0 && x.in[i].Role == "assistant" {
			return true
		}
	}
	return false
}

// mixed reports whether one of the messages in has all words of j, perhaps with words of ours
// between them.
func (x *aligner) mixed(j int, in []int) bool {
	words := likeWords(x.known[j].Original)
	return len(words) == 0 || slices.ContainsFunc(in, func(i int) bool { return shared(words, likeWords(x.in[i].Text)) == len(words) })
}
