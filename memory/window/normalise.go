package window

// Seam is what happens where a batch of new messages meets the last stored one.
type Seam struct {
	// DropLast is set if the last stored message leaves, because it is a user message that another
	// one follows.
	DropLast bool
	// MergeFirst is set if the first message of the batch is merged into the last stored one, whose
	// text becomes Text.
	MergeFirst bool
	Text       string
}

// Seam returns what to do with last, the last stored message (nil if none), when batch is appended.
// Only the seam matters, not the inside of the batch, so at most one message is dropped. Nothing is
// stripped, and empty parts still get the separator. Both rules are off if a system message is on
// either side, or calls, results or content that is not text. An empty batch changes nothing.
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

// plainAnswer reports whether the message is an assistant's text and nothing else.
func (m *Message) plainAnswer() bool {
	return m.Role == Assistant && len(m.Parts) == 0 && !m.makesCalls()
}

// dropTrailingUsers removes all user messages from the end. Tool results stay.
func dropTrailingUsers(s []slot) []slot {
	for len(s) > 0 && s[len(s)-1].m.isUtterance() {
		s = s[:len(s)-1]
	}
	return s
}
