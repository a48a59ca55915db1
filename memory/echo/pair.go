package echo

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/heard"
)

// plain handles the usual gap, one answer that came back unchanged. It reports false for any other.
func (x *aligner) plain(i, j int) bool {
	k := &x.known[j]
	if x.in[i].Role != "assistant" || k.Role != "assistant" || x.result.Pair[i] >= 0 || x.in[i].ToolCalls != nil || x.in[i].Text != k.Original || k.Original == "" {
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

// pairText finds the known messages whose words an assistant message of the list has: one, or
// several that the platform merged, with or without words of its own.
func (x *aligner) pairText(i int, said string, known []int) bool {
	text := x.in[i].Text
	known = x.possible(i, known)
	if x.pairEqual(i, known) {
		return true
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
	open := slices.ContainsFunc(known, func(j int) bool { return unsettled(&x.known[j]) })
	if f, ok := x.noted(known, text, said); ok {
		x.pair(i, f)
		return true
	}
	// Unchanged first: an answer may begin with what looks like a time or a name.
	for bare, ok, n := text, true, 0; ok && n <= maxLabels; bare, ok = withoutLabel(text) {
		text = bare
		n++
		for _, j := range known {
			if !x.speaks(j) {
				continue
			}
			if f, ok := x.heardOf(j, text); ok {
				x.pair(i, f)
				return true
			}
		}
	}
	if x.pairReordered(i, said, known) {
		return true
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
		if f, ok := x.respoken(j, heard.WithoutNote(text)); ok {
			x.pair(i, f)
			return true
		}
	}
	for _, j := range known {
		if f, ok := x.alike(j, text); ok {
			x.pair(i, f)
			return true
		}
	}
	return x.brokenOff(i, text, known)
}

// possible returns those of the known messages that message i may be.
func (x *aligner) possible(i int, known []int) []int {
	if !x.in[i].Own {
		return known
	}
	return slices.DeleteFunc(slices.Clone(known), func(j int) bool { return !x.known[j].Aside })
}

// pairEqual pairs a message with an answer, or a ghost, that has the same words.
func (x *aligner) pairEqual(i int, known []int) bool {
	text := x.in[i].Text
	known = x.possible(i, known)
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
		if x.revives(j) && x.normIn(i) == x.normKnown(j) {
			x.pair(i, Finding{Known: j, Outcome: Full, Confidence: sureWords})
			return true
		}
	}
	return false
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
func (x *aligner) brokenOff(i int, whole string, known []int) bool {
	theirs := likeWords(whole)
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
		at += text.Marks(whole[at:])
		behind := strings.TrimSpace(whole[at:])
		if r, _ := utf8.DecodeRuneInString(behind); !unicode.IsUpper(r) {
			continue
		}
		end := ours[same-1].end
		if strings.ContainsAny(k.Original[end:end+text.Marks(k.Original[end:])], ".!?。！？") {
			continue // different texts may begin with the same sentence
		}
		x.pair(i, Finding{Known: j, Outcome: Interrupted, Heard: k.Original[:end+text.Marks(k.Original[end:])], Confidence: sureLike})
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
	return k.Role == "assistant" && k.Original != "" && !x.said[j] && !k.Ghost
}

// revives reports whether a known message is a ghost whose words may show that it was played.
func (x *aligner) revives(j int) bool { return x.known[j].Ghost && !x.said[j] }

// heardOf returns what said, a text of the list, shows about an answer.
func (x *aligner) heardOf(j int, said string) (Finding, bool) {
	k := &x.known[j]
	f := Finding{Known: j, Outcome: Full, Confidence: sureSpoken}
	if !x.speaks(j) && !x.revives(j) {
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
		ok = ok && familiar(said, prefix)
		f.Confidence = sureMerged
	}
	if !ok {
		return f, false
	}
	if prefix != k.Original {
		f.Outcome, f.Heard = Interrupted, wholeWords(k.Original, prefix)
		if countWords(said) < 3 {
			f.Confidence = sureFew
		}
	}
	return f, true
}

// wholeWords removes a half word from the end of prefix, unless there is nothing before it.
func wholeWords(whole, prefix string) string {
	last, _ := utf8.DecodeLastRuneInString(prefix)
	next, _ := utf8.DecodeRuneInString(whole[len(prefix):])
	if !unicode.IsLetter(last) || !unicode.IsLetter(next) || unspaced(last) || unspaced(next) {
		return prefix
	}
	end := 0 // of the last whole word
	words(whole, func(_ string, at int) bool {
		if at <= len(prefix) {
			end = at
		}
		return at < len(prefix)
	})
	if end == 0 {
		return prefix
	}
	return whole[:end+text.Marks(whole[end:])]
}

// aligned is heard.AlignExact within the limits. It never returns an empty prefix as found.
func (x *aligner) aligned(generated, said string) (string, bool) {
	return x.alignedBy(heard.AlignExact, generated, said)
}

// alignedBy is aligned with a function of the package heard.
func (x *aligner) alignedBy(align func(generated, heard string) (string, bool), generated, said string) (string, bool) {
	x.aligns++
	x.bytes += len(generated) + len(said)
	if x.aligns > maxAligned || x.bytes > maxAlignedBytes && x.aligns > 1 {
		return "", false
	}
	prefix, ok := align(generated, said)
	return prefix, ok && prefix != ""
}

// respoken compares an answer with a text in which a voice's spoken forms may stand for what was
// written.
func (x *aligner) respoken(j int, said string) (Finding, bool) {
	f := Finding{Known: j, Outcome: Full, Confidence: sureMerged}
	if !x.speaks(j) || countWords(said) < 2 {
		return f, false
	}
	prefix, ok := x.alignedBy(heard.Align, x.known[j].Original, said)
	if ok && prefix != x.known[j].Original {
		f.Outcome, f.Heard = Interrupted, prefix
	}
	return f, ok
}

// beginning returns the beginning of generated that heard stands for. heard.Align also finds words
// further on, since some platforms report only the last utterance; for a few words that would be
// chance.
func (x *aligner) beginning(generated, heard string) (string, bool) {
	prefix, ok := x.aligned(generated, heard)
	if !ok || !familiar(heard, prefix) {
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

// familiar reports whether half of the words of a text are ours too. Single letters, which may be
// spelled, and texts with numbers do not count.
func familiar(text, ours string) bool {
	if strings.ContainsFunc(ours, unicode.IsNumber) {
		return true
	}
	theirs := slices.DeleteFunc(likeWords(text), func(w likeWord) bool { return utf8.RuneCountInString(w.text) < 2 || w.number })
	return len(theirs) < 3 || 2*shared(theirs, likeWords(ours)) >= len(theirs)
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
				f.Outcome, f.Heard = Interrupted, wholeWords(k.Original, prefix)
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
