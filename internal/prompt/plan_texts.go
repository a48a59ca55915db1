package prompt

import (
	"iter"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/redact"
)

// saidTexts are the texts of a request as the ledger has them, with personal data replaced.
type saidTexts struct {
	in     []llmadapter.Incoming
	by     *redact.Redactor   // nil replaces nothing
	spread []*redact.Redactor // by with what is spread over several messages of the request; nil = nothing is
	stored map[string]bool    // the texts of the caller's stored messages
	first  int                // the first message of the caller in a list of several, or -1
}

func newSaid(in []llmadapter.Incoming, recent []memory.Message, by *redact.Redactor) *saidTexts {
	t := &saidTexts{in: in, by: by, first: -1}
	if by == nil {
		return t
	}
	lines, spoken := make([]redact.Line, len(in)), 0
	for i := range in {
		if in[i].IsSystem() {
			continue
		}
		lines[i] = redact.Line{Speaker: in[i].Role, Text: in[i].Text()}
		if spoken++; t.first < 0 && in[i].Role == "user" {
			t.first = i
		}
	}
	if spoken < 2 {
		t.first = -1
	}
	if pieces := by.Spread(lines); pieces != nil {
		t.spread = make([]*redact.Redactor, len(in))
		for i := range in {
			t.spread[i] = by.Knowing(pieces[i])
		}
	}
	t.stored = map[string]bool{}
	for i := range recent {
		if m := &recent[i]; m.Role == memory.User {
			t.stored[m.Renamed(by).Content] = true
		}
	}
	return t
}

// text returns the text of the message at a place. It is one that is stored, if that fits by the
// rules and the names that are known: then no detector has to check it. What it has of a number
// that is spread over several messages is replaced only if that is so in the stored one too.
func (t *saidTexts) text(i int) string {
	said := t.in[i].Text()
	if t.by == nil {
		return said
	}
	known := t.by.Unasked().Text(said)
	if t.stored[known] {
		return known
	}
	if t.spread != nil {
		if parts := t.spread[i].Unasked().Text(said); t.stored[parts] {
			return parts
		}
	}
	if t.by.Detects() {
		return t.by.Text(said)
	}
	return known
}

// answer returns the text of an answer of the model, which is one of those in wholes or a beginning
// of one. That was checked for names when it was stored.
func (t *saidTexts) answer(i int, wholes iter.Seq[string]) string {
	said := t.in[i].Text()
	part := t.by.Unasked().Part(said, wholes)
	if !t.by.Detects() {
		return part
	}
	for whole := range wholes {
		if strings.HasPrefix(whole, part) {
			return part
		}
	}
	return t.by.Part(said, wholes)
}

// findNames makes the names known that are in the texts. The ledger may have had them when they
// were not known yet.
func (t *saidTexts) findNames() {
	if !t.by.Detects() {
		return
	}
	for i := range t.in {
		if m := &t.in[i]; !m.IsSystem() && m.Role != "assistant" {
			t.text(i)
		}
	}
}

// incoming returns a request's messages as package echo takes them.
func incoming(in []llmadapter.Incoming, t *saidTexts, known []echo.Known) []echo.Message {
	by := t.by
	originals := func(yield func(string) bool) {
		for i := range known {
			if !yield(known[i].Original) {
				return
			}
		}
	}
	out := make([]echo.Message, len(in))
	for i := range in {
		m := &in[i]
		out[i] = echo.Message{Role: m.Role, ID: m.AnswerID, CallID: m.ToolCallID, CallIDs: llmadapter.CallIDs(m.ToolCalls), ToolCalls: m.ToolCalls}
		switch {
		case m.IsSystem():
		case m.Role == "assistant": // a cut answer may end within a number that the ledger has replaced
			out[i].Text = t.answer(i, originals)
		default:
			out[i].Text = t.text(i)
			if i == t.first {
				out[i].Text = t.whole(out[i].Text, known)
			}
			out[i].Hidden = out[i].Text == memory.WithheldText
		}
		if by != nil {
			out[i].ToolCalls = by.Calls(m.ToolCalls)
		}
	}
	return out
}

// whole returns the first text of a list, whose beginning may have been cut off, as the ledger has
// it, if messages that the list lacks have the rest of a number in it.
func (t *saidTexts) whole(text string, known []echo.Known) string {
	if t.stored[text] {
		return text
	}
	for i := range known {
		if k := &known[i]; k.Role == "user" && redact.Masks(k.Text) {
			if _, ok := redact.Fit(k.Text, text); ok {
				return k.Text
			}
		}
	}
	return text
}
