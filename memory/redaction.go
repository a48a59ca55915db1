package memory

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/redact"
)

// Redacted returns the agent with the texts replaced that conversations and callers fill.
func (a Agent) Redacted(r *redact.Redactor) Agent {
	if r == nil {
		return a
	}
	m := &a.Settings.Memory
	m.Summary, m.ToolExchange = r.Text(m.Summary), string(r.JSON([]byte(m.ToolExchange)))
	a.Settings.Scores = redactedScores(a.Settings.Scores, r)
	if len(a.Settings.Labels) > 0 {
		a.Settings.Labels = maps.Clone(a.Settings.Labels)
		for k, v := range a.Settings.Labels {
			a.Settings.Labels[k] = r.Text(v)
		}
	}
	return a
}

// Known reports to a redactor which texts of a change are stored already, so that no detector
// checks them again.
func (c *Change) Known(r *redact.Redactor, view AgentView) error {
	if !r.Detects() {
		return nil
	}
	r = r.Again()
	for i := range c.Replace {
		m, err := view.Seq(c.Replace[i].Seq)
		if err != nil {
			return err
		}
		m.Redacted(r)
	}
	if c.Copies {
		for i := range c.Append {
			c.Append[i].Redacted(r)
		}
	}
	if c.Agent != nil {
		view.Head().Agent.Redacted(r)
	}
	return nil
}

// Redacted returns the message as it is stored: with personal data replaced in each text. What was
// sent and heard stays a beginning of what was generated. It returns the message as it is for a nil
// redactor.
func (m Message) Redacted(r *redact.Redactor) Message {
	if r == nil {
		return m
	}
	whole := m.Original()
	if m.CutGenerated { // it may have ended within a number
		if cut := redact.WithoutNumber(whole); len(whole)-len(cut) >= minCutNumber && r.Text(whole) == whole {
			m.Generated, whole = cut, cut
			m.Content, m.Sent = cutTo(m.Content, cut), cutTo(m.Sent, cut)
		}
	}
	part := func(s string) string {
		if strings.HasPrefix(whole, s) {
			return r.Prefix(whole, len(s))
		}
		return r.Text(s)
	}
	if m.Details != nil {
		m.Details = m.Details.redacted(r, part, whole)
	}
	m.Content, m.Sent = part(m.Content), part(m.Sent)
	if m.Generated != "" {
		m.Generated = r.Text(m.Generated)
	}
	m.ToolCalls, m.ToolCallID, m.Parts = r.Calls(m.ToolCalls), r.ID(m.ToolCallID), r.Parts(m.Parts)
	if len(m.Metadata) > 0 {
		m.Metadata = maps.Clone(m.Metadata)
		for k, v := range m.Metadata {
			m.Metadata[k] = r.JSON(v)
		}
	}
	m.Failure = m.Failure.Redacted(r)
	m.Chars = 0 // counted again
	return m
}

// Line returns what the message says, as package redact searches it for numbers that are spread
// over several messages. It reports false for a message that is not said, or of which nothing is
// left.
func (m *Message) Line() (redact.Line, bool) {
	text := m.Original()
	if m.Role != User && m.Role != Assistant || text == "" || m.Paused() {
		return redact.Line{}, false
	}
	return redact.Line{Speaker: string(m.Role), Text: text, AtMS: m.Timestamp}, true
}

// Lines returns what messages say; see Message.Line.
func Lines(msgs iter.Seq[*Message]) (out []redact.Line) {
	for m := range msgs {
		if l, said := m.Line(); said {
			out = append(out, l)
		}
	}
	return out
}

// SameSaid reports whether again is the stored message once more, as a client sends it: with
// personal data, of which the stored one may lack more than the rules alone find in it.
func SameSaid(stored, again Message, r *redact.Redactor) bool {
	red := again.Redacted(r) // first: names in it become known
	stored = stored.Renamed(r)
	if r == nil || SameWords(stored, red) {
		return SameWords(stored, red)
	}
	pieces, ok := redact.Fit(stored.Original(), red.Original())
	return ok && SameWords(stored, again.Redacted(r.Knowing(pieces)))
}

// Renamed returns a stored message with the names replaced that have become known since, as in what
// a client sends again now.
func (m Message) Renamed(r *redact.Redactor) Message {
	if !r.Detects() {
		return m
	}
	return m.Redacted(r.Again())
}

// minCutNumber is the length in bytes of the shortest number at the end of a broken answer that is
// left out, since the rest of it is missing.
const minCutNumber = 7

// cutTo returns a text up to the length of whole if it begins with whole.
func cutTo(text, whole string) string {
	if strings.HasPrefix(text, whole) {
		return whole
	}
	return text
}

// Redacted returns the failure with personal data replaced in its message. Both may be nil.
func (f *Failure) Redacted(r *redact.Redactor) *Failure {
	if f == nil || r == nil {
		return f
	}
	out := *f
	out.Message = r.Text(f.Message)
	if whole, clipped := strings.CutSuffix(out.Message, "…"); clipped { // it may have ended within a number
		cut := redact.WithoutNumber(whole)
		if at := strings.LastIndexByte(whole, ' ') + 1; strings.Contains(whole[at:], "@") {
			cut = whole[:at]
		}
		if len(whole)-len(cut) >= minCutNumber {
			out.Message = cut + "…"
		}
	}
	return &out
}

// redacted returns the details of a message with the generated text whole. part replaces in a
// part of it.
func (d *Details) redacted(r *redact.Redactor, part func(string) string, whole string) *Details {
	out := *d
	out.Filler, out.WithThoughts, out.Category = r.Text(out.Filler), r.Text(out.WithThoughts), r.Text(out.Category)
	if out.Members != "" {
		out.Members = string(r.Message([]byte(out.Members)))
	}
	if out.Raw != "" {
		out.Raw = string(r.Message([]byte(out.Raw)))
	}
	if out.Item != nil && len(out.Item.Extra) > 0 {
		item := *out.Item
		item.Extra = r.JSON(item.Extra)
		out.Item = &item
	}
	if out.Earlier != nil {
		list := slices.Clone(out.Earlier)
		for i := range list {
			list[i].Heard = part(list[i].Heard)
		}
		out.Earlier = list
	}
	if out.Playback != nil {
		p := *out.Playback
		p.Spoken = len(r.Prefix(whole, min(p.Spoken, len(whole))))
		p.Stretches = slices.Clone(p.Stretches)
		for i := range p.Stretches {
			p.Stretches[i] = p.Stretches[i].Redacted(r)
		}
		if p.Audio != nil {
			audio := p.Audio.Redacted(r)
			p.Audio = &audio
		}
		out.Playback = &p
	}
	return &out
}

// Redacted returns the stretch with personal data replaced. A replaced number is one word, which
// ended when its last word did.
func (s Stretch) Redacted(r *redact.Redactor) Stretch {
	words, at := strings.Fields(s.Text), 0
	was := make([]int, len(words)) // how much of text each word completes
	for i, w := range words {
		at += strings.Index(s.Text[at:], w) + len(w)
		was[i] = at
	}
	text := r.Cuts(s.Text, was)
	if text == s.Text {
		return s
	}
	for i, n := range was {
		was[i] = len(strings.TrimRight(text[:n], " "))
	}
	var ends []int64
	at = 0
	i := 0
	for _, w := range strings.Fields(text) {
		at += strings.Index(text[at:], w) + len(w)
		for i < len(was) && was[i] < at { // both ascend
			i++
		}
		if i >= min(len(was), len(s.Ends)) {
			break
		}
		ends = append(ends, s.Ends[i])
	}
	s.Text, s.Ends = text, ends
	return s
}

// PausedText is stored in the place of each text while an agent is paused.
const PausedText = "[paused]"

// WithheldText is stored in the place of a text that a detector had to check and did not.
const WithheldText = "[" + redact.Withheld + "]"

// Hidden reports whether the message was stored without its text: it is Paused, or the text is
// withheld.
func (m *Message) Hidden() bool { return m.Original() == WithheldText || m.Paused() }

// Paused reports whether the message was stored without its texts.
func (m *Message) Paused() bool {
	return m.Original() == PausedText || bytes.Contains(m.ToolCalls, []byte(`\"text\":\"`+PausedText+`\"`))
}
