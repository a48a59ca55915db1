package window

// Seam is what happens where a batch of new messages meets the last stored one.
type Seam struct {
	// DropLast: the last stored message leaves, for it is a user message that another follows (000-12).
	DropLast bool
	// MergeFirst: the first of the batch goes into the last stored one, whose text becomes Text (000-13).
	MergeFirst bool
	Text       string
}

// Seam tells what to do with last, the last stored message (nil if there is none), when batch is appended. Only the seam is looked at, never the inside of a
// batch (000-14), so that one message at most is dropped (000-15). Nothing is stripped, and empty parts still get the separator (000-17). A system message on
// either side blocks both rules (000-16), and so do calls, results and contents that are not text, which have no one text to merge. An empty batch changes nothing.
func (p Policy) Seam(last *Message, batch []Message) Seam {
	r := p.rules()
	if last == nil || len(batch) == 0 || !r.enabled {
		return Seam{}
	}
	next := &batch[0]
	switch {
	case r.dropHanging && last.isUtterance() && next.isUtterance():
		return Seam{DropLast: true}
	case r.mergeAssistant && last.plainAnswer() && next.plainAnswer():
		return Seam{MergeFirst: true, Text: last.Text + r.separator + next.Text}
	}
	return Seam{}
}

// plainAnswer tells whether the message is an assistant's text and nothing else.
func (m *Message) plainAnswer() bool {
	return m.Role == Assistant && len(m.Parts) == 0 && !m.makesCalls()
}

// dropTrailingUsers takes all user messages away from the end, up to the first message that is none (000-23, 000-26). One that bears a tool's result stays.
func dropTrailingUsers(s []slot) []slot {
	for len(s) > 0 && s[len(s)-1].m.isUtterance() {
		s = s[:len(s)-1]
	}
	return s
}
