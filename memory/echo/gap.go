package echo

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory/heard"
)

// gapKind is where a gap, the messages between two user messages, is in the list. It decides what
// the absence of an answer means.
type gapKind int

const (
	// Before the first user message: anything may be missing, and unknown messages are old.
	gapHead     gapKind = iota
	gapFirst            // the same, in the first list of a conversation
	gapMiddle           // unknown messages are old, or too late to be placed: they are not stored
	gapFollowed         // the last turn that both lists have; new turns follow
	gapTail             // the end of the list: what is missing may still come
)

// gap pairs the messages of one gap, adds findings for our answers, and notes new messages. more
// are known messages that may be there as well.
func (x *aligner) gap(in, known, more []int, kind gapKind) {
	if len(in) == 1 && len(known) == 1 && x.plain(in[0], known[0]) {
		return
	}
	var foreign []int
	due, empty := known, 0
	if len(more) > 0 {
		known = slices.Concat(known, more)
	}
	for _, i := range in {
		role := x.in[i].Role
		paired := (role == "tool" || role == "function" || x.in[i].ToolCalls != nil) && x.pairTool(i, known)
		switch {
		case role == "assistant" && !paired && blank(withoutNote(x.in[i].Text)) && x.in[i].ToolCalls == nil && !x.pairText(i, x.in[i].Text, known):
			empty++ // only dots or a note are left of an unheard answer
		case role == "assistant" && x.in[i].Text != "":
			said := withoutNote(x.in[i].Text)
			if !x.pairText(i, said, known) && !paired && !blank(said) {
				foreign = append(foreign, i)
			}
		case !paired && (role != "assistant" || x.in[i].ToolCalls != nil):
			foreign = append(foreign, i)
		}
	}
	x.absent(foreign, in, due, empty, kind)
	if kind == gapMiddle || kind == gapHead {
		return
	}
	for i := range in {
		at := in[i]
		if _, part := x.result.Part[at]; part || slices.Contains(foreign, at) {
			x.result.New = append(x.result.New, at)
		}
	}
}

// plain handles the usual gap, one answer that came back unchanged. It reports false for any other.
func (x *aligner) plain(i, j int) bool {
	k := &x.known[j]
	if x.in[i].Role != "assistant" || k.Role != "assistant" || x.in[i].ToolCalls != nil || x.in[i].Text != k.Original || k.Original == "" {
		return false
	}
	x.pair(i, Finding{Known: j, Outcome: Full, Confidence: sureSame})
	return true
}

// pair notes that incoming message i has the words of a known message.
func (x *aligner) pair(i int, f Finding) {
	x.said[f.Known] = true
	if x.result.Pair[i] < 0 {
		x.result.Pair[i] = f.Known
	}
	x.addFinding(f)
}

// pairTool pairs a tool's result, or a message that calls tools, by the IDs of the calls, or else
// by the functions and arguments.
func (x *aligner) pairTool(i int, known []int) bool {
	in := &x.in[i]
	if in.ToolCalls != nil {
		return x.pairCall(i, known)
	}
	id := in.CallID
	if ours, ok := x.called[id]; ok {
		id = ours
	}
	for _, j := range known {
		k := &x.known[j]
		if k.Role != "tool" || x.said[j] {
			continue
		}
		// The older form has no call ID.
		if id != "" && slices.Contains(k.CallIDs, id) || id == "" && x.normIn(i) == x.normKnown(j) {
			x.result.Pair[i], x.said[j] = j, true
			return true
		}
	}
	return false
}

// pairCall pairs a message that calls tools.
func (x *aligner) pairCall(i int, known []int) bool {
	ids := x.in[i].CallIDs
	for _, j := range known {
		if k := &x.known[j]; k.Role == "assistant" && slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(k.CallIDs, id) }) {
			x.result.Pair[i] = j
			return true
		}
	}
	if len(ids) == 0 {
		return false
	}
	called := callsIn(x.in[i].ToolCalls)
	for _, j := range known {
		k := &x.known[j]
		if k.Role != "assistant" || len(k.CallIDs) != len(ids) || len(called) == 0 || !slices.Equal(called, x.callsOf(j)) || slices.Contains(x.result.Pair, j) {
			continue
		}
		if x.called == nil {
			x.called = map[string]string{}
		}
		for n, id := range ids {
			x.called[id] = k.CallIDs[n]
		}
		x.result.Pair[i] = j
		return true
	}
	return false
}

// callsIn returns the functions that a tool_calls array calls, with their arguments.
func callsIn(list []byte) (out []string) {
	var calls []json.RawMessage
	if json.Unmarshal(list, &calls) != nil {
		return nil
	}
	for _, call := range calls {
		var c struct {
			Function struct{ Name, Arguments string }
		}
		if json.Unmarshal(call, &c) == nil {
			out = append(out, c.Function.Name+" "+strings.Join(strings.Fields(c.Function.Arguments), ""))
		}
	}
	return out
}

// callsOf returns callsIn of a known message.
func (x *aligner) callsOf(j int) []string {
	list, ok := x.calls[j]
	if !ok {
		if x.calls == nil {
			x.calls = map[int][]string{}
		}
		list = callsIn(x.known[j].ToolCalls)
		x.calls[j] = list
	}
	return list
}

// pairText finds the known messages whose words an assistant message of the list has: one, or
// several that the platform merged, with or without words of its own.
func (x *aligner) pairText(i int, said string, known []int) bool {
	text := x.in[i].Text
	for _, j := range known {
		if k := &x.known[j]; x.speaks(j) && (text == k.Original || x.normIn(i) == x.normKnown(j)) {
			sure := sureWords
			if text == k.Original {
				sure = sureSame
			}
			x.pair(i, Finding{Known: j, Outcome: Full, Confidence: sure})
			return true
		}
	}
	for _, j := range known {
		if x.speaks(j) {
			x.work += len(text)
		}
	}
	if x.work > maxWork {
		return false
	}
	// Settled answers need no finding, so that the expensive comparisons are skipped for them.
	open := slices.ContainsFunc(known, func(j int) bool { return x.known[j].Provisional || x.known[j].Unheard })
	if f, ok := x.noted(known, text, said); ok {
		x.pair(i, f)
		return true
	}
	// Unchanged first: an answer may begin with what looks like a time or a name.
	for bare, ok, n := text, true, 0; ok && n <= maxLabels; bare, ok = withoutLabel(text) {
		text = bare
		n++
		for _, j := range known {
			if f, ok := x.heardOf(j, text); ok {
				x.pair(i, f)
				return true
			}
		}
	}
	if open {
		x.deep++
	}
	if !open || x.deep > maxDeep {
		return false
	}
	if x.continues(i, text, known) || x.merged(i, text, known) {
		return true
	}
	for _, j := range known {
		if f, ok := x.alike(j, text); ok {
			x.pair(i, f)
			return true
		}
	}
	return x.brokenOff(i, text, known)
}

// noted finds the answer after which the platform added a note, such as "(user interrupted)".
func (x *aligner) noted(known []int, text, said string) (Finding, bool) {
	if said == text || firstWord(said) == "" {
		return Finding{}, false
	}
	for _, j := range known {
		if strings.Contains(x.known[j].Original, text[len(said):]) {
			continue
		}
		if f, ok := x.heardOf(j, said); ok {
			return f, true
		}
	}
	return Finding{}, false
}

// brokenOff finds an answer that was cut and is followed by the platform's own words in the same
// message: at least four of our words that do not end a sentence, then two words that begin one.
func (x *aligner) brokenOff(i int, text string, known []int) bool {
	theirs := likeWords(text)
	for _, j := range known {
		if !x.speaks(j) {
			continue
		}
		k := &x.known[j]
		ours, same := likeWords(k.Original), 0
		for same < min(len(ours), len(theirs)) && ours[same].text == theirs[same].text {
			same++
		}
		if same < 4 || len(theirs)-same < 2 {
			continue
		}
		at := theirs[same-1].end
		at += marks(text[at:])
		behind := strings.TrimSpace(text[at:])
		if r, _ := utf8.DecodeRuneInString(behind); !unicode.IsUpper(r) {
			continue
		}
		end := ours[same-1].end
		if strings.ContainsAny(k.Original[end:end+marks(k.Original[end:])], ".!?。！？") {
			continue // different texts may begin with the same sentence
		}
		x.pair(i, Finding{Known: j, Outcome: Interrupted, Heard: k.Original[:end+marks(k.Original[end:])], Confidence: sureLike})
		x.part(i, behind)
		return true
	}
	return false
}

// part notes the platform's own text in a message that also has words of ours.
func (x *aligner) part(i int, text string) {
	if x.result.Part == nil {
		x.result.Part = map[int]string{}
	}
	x.result.Part[i] = text
}

// speaks reports whether a known message is an answer whose words were not found in the list yet.
func (x *aligner) speaks(j int) bool {
	k := &x.known[j]
	return k.Role == "assistant" && k.Original != "" && !x.said[j]
}

// heardOf returns what said, a text of the list, shows about an answer.
func (x *aligner) heardOf(j int, said string) (Finding, bool) {
	k := &x.known[j]
	f := Finding{Known: j, Outcome: Full, Confidence: sureSpoken}
	if !x.speaks(j) {
		return f, false
	}
	// Known since an earlier list.
	if k.Text != k.Original && k.Text != "" && heard.Normalize(said) == heard.Normalize(k.Text) {
		f.Outcome, f.Heard = Interrupted, k.Text
		return f, true
	}
	prefix, ok := x.beginning(k.Original, said)
	if !ok && countWords(said) >= 4 { // it may be the last sentence only
		prefix, ok = x.aligned(k.Original, said)
		f.Confidence = sureMerged
	}
	if !ok {
		return f, false
	}
	if prefix != k.Original {
		f.Outcome, f.Heard = Interrupted, prefix
		if countWords(said) < 3 {
			f.Confidence = sureFew
		}
	}
	return f, true
}

// aligned is heard.Align within the limits. It never returns an empty prefix as found.
func (x *aligner) aligned(generated, said string) (string, bool) {
	x.aligns++
	x.bytes += len(generated) + len(said)
	if x.aligns > maxAligned || x.bytes > maxAlignedBytes && x.aligns > 1 {
		return "", false
	}
	prefix, ok := heard.Align(generated, said)
	return prefix, ok && prefix != ""
}

// beginning returns the beginning of generated that heard stands for. heard.Align also finds words
// further on, since some platforms report only the last utterance; for a few words that would be
// chance.
func (x *aligner) beginning(generated, heard string) (string, bool) {
	prefix, ok := x.aligned(generated, heard)
	if !ok {
		return "", false
	}
	n := 1 // a word that was cut
	words(heard, func(w string, _ int) bool {
		if n++; isDigit(w) && !strings.Contains(prefix, w) {
			n += maxSpelled // the number is spelled out there
		}
		return true
	})
	return prefix, countWords(prefix) <= n || strings.Contains(prefix, "```") // code is not spoken
}

// merged finds our answers within a longer text: several answers in one message, with the
// platform's own words before, between or after them. These own words are noted as new.
func (x *aligner) merged(i int, text string, known []int) bool {
	rest, own, found := text, "", false
	for _, j := range known {
		if !x.speaks(j) {
			continue
		}
		lead, behind, f, ok := x.within(j, rest)
		if !ok {
			continue
		}
		found = true
		own = joinWords(own, lead)
		rest = behind
		x.pair(i, f)
	}
	if !found {
		return false
	}
	if own = joinWords(own, rest); own != "" {
		x.part(i, own)
	}
	return true
}

// within finds answer j in text: all of it, or its beginning at the end of text. lead and behind
// are the text before and after it.
func (x *aligner) within(j int, text string) (lead, behind string, f Finding, ok bool) {
	const most = 6 // places that begin like the answer and are compared
	k := &x.known[j]
	f = Finding{Known: j, Outcome: Full, Confidence: sureMerged}
	first := firstWord(k.Original)
	tries, from := 0, 0
	words(text, func(w string, end int) bool {
		at := end - len(w)
		front := from == 0
		if front || tries < most && foldWord(w) == first {
			tries++
			if prefix, all := x.beginning(text[at:], k.Original); all && (front || countWords(k.Original) > 1) && !x.splits(text[at:], prefix) {
				lead, behind, ok = text[:at], text[at+len(prefix):], true
			} else if prefix, cut := x.beginning(k.Original, text[at:]); cut && at > 0 && countWords(text[at:]) > 1 {
				lead, ok = text[:at], true
				f.Outcome, f.Heard = Interrupted, prefix
				if prefix == k.Original {
					f.Outcome, f.Heard = Full, ""
				}
			}
		}
		from = end
		return !ok
	})
	return lead, behind, f, ok
}

// splits reports whether prefix ends inside a word of text, like "Yes" in "Yesterday".
func (x *aligner) splits(text, prefix string) bool {
	last, _ := utf8.DecodeLastRuneInString(prefix)
	next, _ := utf8.DecodeRuneInString(text[len(prefix):])
	return unicode.IsLetter(last) && unicode.IsLetter(next) && !unspaced(next)
}

// absent adds findings for answers whose words the list lacks: replaced if the platform said
// something else, unplayed if the conversation went on without them. empty is the number of
// messages without words in the gap.
func (x *aligner) absent(foreign, in, known []int, empty int, kind gapKind) {
	if kind == gapHead || kind == gapFirst {
		return
	}
	instead := -1
	for _, i := range foreign {
		if x.in[i].Role == "assistant" && x.in[i].Text != "" {
			instead = i
		}
	}
	for _, j := range known {
		k := &x.known[j]
		if !x.speaks(j) || k.Aside || !k.Provisional {
			continue
		}
		switch {
		case len(k.CallIDs) > 0 && slices.ContainsFunc(in, func(i int) bool { return x.result.Pair[i] == j }):
			// Many platforms keep the call and leave out its text.
		case empty > 0 && kind != gapTail:
			empty--
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureGone})
		case instead >= 0 && kind != gapMiddle:
			if x.result.Place == nil {
				x.result.Place = map[int]int{}
			}
			x.result.Place[instead] = j
			x.addFinding(Finding{Known: j, Outcome: Replaced, Confidence: sureOther})
		case instead >= 0:
			x.addFinding(Finding{Known: j, Outcome: Replaced, Confidence: sureLike})
		case kind != gapTail:
			x.addFinding(Finding{Known: j, Outcome: Unplayed, Confidence: sureGone})
		}
	}
}
