// Package summary keeps long conversations short. In the background, a Worker has an agent's LLM
// summarize the messages that are about to leave the agent's memory, and stores the summary in
// their place.
//
// Make summarizes a conversation of any length by calls that are each bounded: the transcript is
// split into chunks, each chunk is summarized (map), and the summaries are summarized together
// until one is left (reduce). The Worker decides when a summary is due, and for which agent.
package summary

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is one message of a transcript.
type Line struct {
	Role string // as the model is told it, such as USER
	Text string
}

// Limits bounds the making of one summary. All sizes are in code points.
type Limits struct {
	Input  int // what one call is given, including the prompt; at least MinInput
	Output int // of a summary, as the model is asked for it; at most a sixth of Input
	Calls  int // for one summary; at least MinCalls
}

// The least that Limits can be: less could not hold the prompt, two summaries and something new.
const (
	MinInput = 8_000
	MinCalls = 8
)

// DefaultLimits are those where nothing else is set: some 6,000 tokens in, some 1,000 out.
func DefaultLimits() Limits { return Limits{Input: 24_000, Output: 4_000, Calls: 16} }

// within returns the limits moved into their own bounds.
func (l Limits) within() Limits {
	l.Input, l.Calls = max(l.Input, MinInput), max(l.Calls, MinCalls)
	l.Output = min(max(l.Output, 500), l.Input/6)
	return l
}

// room is how many code points of a conversation one call takes beside its prompt.
func (l Limits) room() int { return l.Input - promptSize }

// MaxSummary returns how long a summary may be, in code points. Models do not count, so it is twice
// what they are asked for.
func (l Limits) MaxSummary() int { return 2 * l.within().Output }

// fanIn is how many summaries one call takes, if each is as long as it may be.
func (l Limits) fanIn() int { return max(2, l.room()/(2*l.Output+len(partSeparator))) }

// calls is how many calls n chunks and k parts of an earlier summary take at most.
func (l Limits) calls(n, k int) int {
	total := n
	for parts := n + k; parts > 1; {
		parts = (parts + l.fanIn() - 1) / l.fanIn()
		total += parts
	}
	return total
}

// longest is how many chunks one message may take.
const longest = 3

// parts is of how many parts an earlier summary may be beside the longest message.
func (l Limits) parts() int {
	k := 1
	for l.calls(longest, k+1) <= l.Calls {
		k++
	}
	return k
}

// oneLine replaces all line breaks by spaces, so that no message can pass for a line of another
// speaker.
func oneLine(s string) string { return strings.Join(strings.FieldsFunc(s, isBreak), " ") }

func isBreak(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// clipMark stands where the middle of an overlong message was left out.
const clipMark = " […] "

// clip shortens a text to most code points: two thirds from its beginning, the rest from its end.
func clip(s string, most int) string {
	n := utf8.RuneCountInString(s)
	if n <= most {
		return s
	}
	r := []rune(s)
	keep := max(0, most-utf8.RuneCountInString(clipMark))
	head := keep * 2 / 3
	return string(r[:head]) + clipMark + string(r[n-(keep-head):])
}

// pieces splits a text into pieces of at most most code points, at white space if there is some in
// the last quarter of a piece.
func pieces(s string, most int) []string {
	var out []string
	r := []rune(s)
	for len(r) > most {
		at := most
		for i := most; i > most*3/4; i-- {
			if unicode.IsSpace(r[i]) {
				at = i
				break
			}
		}
		out = append(out, strings.TrimSpace(string(r[:at])))
		r = r[at:]
		for len(r) > 0 && unicode.IsSpace(r[0]) {
			r = r[1:]
		}
	}
	return append(out, strings.TrimSpace(string(r)))
}

// chunk is a part of a transcript for one call, and the number of lines that are complete at its
// end.
type chunk struct {
	text string
	done int
}

// chunks splits a transcript into texts of at most most code points, each line of which begins with
// its role. A message that does not fit into the rest of a chunk begins the next; a message too
// long for any chunk is split over several, with its role before each part.
func chunks(lines []Line, most int) []chunk {
	var out []chunk
	var b strings.Builder
	size := 0
	flush := func(done int) {
		if size > 0 {
			out = append(out, chunk{b.String(), done})
			b.Reset()
			size = 0
		}
	}
	for i, l := range lines {
		head := l.Role + ": "
		for _, piece := range pieces(oneLine(l.Text), most-utf8.RuneCountInString(head)-1) {
			if piece == "" {
				continue
			}
			n := utf8.RuneCountInString(head) + utf8.RuneCountInString(piece) + 1
			if size+n > most {
				flush(i)
			}
			b.WriteString(head + piece + "\n")
			size += n
		}
	}
	flush(len(lines))
	if n := len(out); n > 0 {
		out[n-1].done = len(lines)
	}
	return out
}
