package summary

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Answer is what a model said.
type Answer struct {
	Text string
	// Finish is the finish_reason, or "" if the model sends none.
	Finish string
}

// Asker asks a model.
type Asker interface {
	Ask(ctx context.Context, p Prompt) (Answer, error)
}

// Why an answer is not a summary, and why none could be made of many.
var (
	ErrBlank   = errors.New("the model answered nothing")
	ErrCut     = errors.New("the model did not finish its answer")
	ErrTooLong = errors.New("the model's summary is longer than is kept")
	ErrCalls   = errors.New("the conversation takes more calls than one summary may")
)

// Take returns how many of the first lines one summary can cover within the limits. It is 0 only if
// there are none. The rest is left for the next summary.
func Take(lines []Line, earlier string, l Limits) int {
	l = l.within()
	lines = clipped(lines, l)
	if fits(lines, earlier, l) {
		return len(lines)
	}
	k, n := len(earlierParts(earlier, l)), longest
	for l.calls(n+1, k) <= l.Calls {
		n++
	}
	list := chunks(lines, l.room())
	if n >= len(list) {
		return len(lines)
	}
	return max(1, list[n-1].done)
}

// Make makes one summary of a conversation and of an earlier summary of what came before. No call
// gets more than Limits.Input code points, and there are at most Limits.Calls of them. It fails
// with the error of a call; with ErrBlank, ErrCut or ErrTooLong for an answer that is not a
// summary; and with ErrCalls for more lines than Take allows.
func Make(ctx context.Context, ask Asker, lines []Line, earlier string, l Limits) (string, error) {
	l = l.within()
	m := maker{ctx, ask, l, l.Calls}
	lines, earlier = clipped(lines, l), strings.TrimSpace(earlier)
	if fits(lines, earlier, l) {
		var transcript string
		for _, c := range chunks(lines, l.room()) {
			transcript += c.text
		}
		return m.call(mapPrompt(earlier, transcript, l))
	}
	parts := earlierParts(earlier, l)
	for _, c := range chunks(lines, l.room()) {
		text, err := m.call(mapPrompt("", c.text, l))
		if err != nil {
			return "", err
		}
		parts = append(parts, text)
	}
	for len(parts) > 1 {
		var next []string
		for _, group := range groups(parts, l.room()) {
			text := group[0]
			if len(group) > 1 {
				var err error
				if text, err = m.call(reducePrompt(group, l)); err != nil {
					return "", err
				}
			}
			next = append(next, text)
		}
		parts = next
	}
	return strings.Join(parts, ""), nil
}

// maker counts the calls of one summary.
type maker struct {
	ctx   context.Context
	ask   Asker
	limit Limits
	left  int
}

// call asks once and takes nothing for an answer that is none.
func (m *maker) call(p Prompt) (string, error) {
	if m.left == 0 {
		return "", ErrCalls
	}
	m.left--
	a, err := m.ask.Ask(m.ctx, p)
	if err != nil {
		return "", err
	}
	switch a.Finish {
	case "", "stop", "end_turn", "eos":
	default: // length, content_filter, tool_calls: whatever it is, the summary ends before its end
		return "", fmt.Errorf("%w: finish_reason %q", ErrCut, clip(a.Finish, 40))
	}
	text := strings.TrimSpace(strings.ToValidUTF8(a.Text, "\uFFFD"))
	if text == "" {
		return "", ErrBlank
	}
	if utf8.RuneCountInString(text) > m.limit.MaxSummary() {
		return "", ErrTooLong
	}
	return text, nil
}

// clipped bounds each message, so that a single one can be summarized within the limits: a message
// too long for two calls loses its middle. Split at white space, it may take three calls.
func clipped(lines []Line, l Limits) []Line {
	out := make([]Line, len(lines))
	for i, line := range lines {
		line.Text = clip(line.Text, 2*l.room()-4*(utf8.RuneCountInString(line.Role)+4))
		out[i] = line
	}
	return out
}

// fits reports whether everything fits into one call.
func fits(lines []Line, earlier string, l Limits) bool {
	n := utf8.RuneCountInString(earlier)
	for _, line := range lines {
		if n += utf8.RuneCountInString(line.Role) + utf8.RuneCountInString(line.Text) + 3; n > l.room() {
			return false
		}
	}
	return true
}

// earlierParts splits an earlier summary into parts of at most the length of a summary. A summary
// made here is one part; others may have any length, and lose their middle beyond the limits.
func earlierParts(earlier string, l Limits) []string {
	if earlier = strings.TrimSpace(earlier); earlier == "" {
		return nil
	}
	most := l.MaxSummary()
	return pieces(clip(earlier, l.parts()*most*3/4), most)
}

// groups puts parts together as far as one call takes them; all but the last have two at least.
func groups(parts []string, most int) [][]string {
	var out [][]string
	size := 0
	for _, p := range parts {
		n := utf8.RuneCountInString(p) + len(partSeparator)
		if len(out) == 0 || size+n > most {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], p)
		size += n
	}
	return out
}
