package memory

import "slices"

// Limits of what a policy takes into account of a long memory. No LLM call takes more messages.
const (
	// MaxRead is how many of the newest messages of a ledger are read, of every state.
	MaxRead = 4096
	// MaxInstructions is how many older instructions are read in addition.
	MaxInstructions = 64
)

// ConversationStart returns the Seq before which the memory holds nothing but instructions.
func (m *Memory) ConversationStart() int64 { return max(m.BaseSeq, m.ConversationFrom, 1) }

// InstructionsBefore returns the Seqs of the instructions before a Seq.
func (m *Memory) InstructionsBefore(before int64) []int64 {
	at, _ := slices.BinarySearch(m.Instructions, before)
	return m.Instructions[:at]
}

// SetConversationStart notes that the memory holds nothing but instructions before a Seq. Nothing
// is noted while there are more instructions than the list has.
func (m *Memory) SetConversationStart(seq int64) {
	if len(m.Instructions) < MaxInstructions {
		m.ConversationFrom = max(m.ConversationFrom, seq)
	}
}

// NoteInstructions updates Instructions and ConversationFrom for a change of the agent's messages.
// It reports whether they differ then.
func (m *Memory) NoteInstructions(c *Change) (differ bool) {
	m.Instructions, m.ConversationFrom, differ = m.instructionsAfter(c)
	return differ
}

// instructionsAfter returns Instructions and ConversationFrom after a change, and whether they
// differ then.
func (m *Memory) instructionsAfter(c *Change) (_ []int64, _ int64, differ bool) {
	list, from := m.Instructions, m.ConversationFrom
	for _, changed := range [][]Message{c.Append, c.Replace} {
		for i := range changed {
			switch msg := &changed[i]; {
			case msg.Role.Instructs():
				list = withInstruction(list, msg)
			case msg.Seq < from && msg.InMemory():
				from = msg.Seq
			}
		}
	}
	at, _ := slices.BinarySearch(list, m.BaseSeq)
	if list = list[at:]; len(list) > MaxInstructions {
		from = min(from, list[0])
		list = list[len(list)-MaxInstructions:]
	}
	return slices.Clip(list), from, from != m.ConversationFrom || !slices.Equal(list, m.Instructions)
}

// withInstruction returns a copy of the list with an instruction, or without it if that has left
// the memory. A full list, which may lack older ones, stays full, so that it can be told from a
// complete one.
func withInstruction(list []int64, m *Message) []int64 {
	at, found := slices.BinarySearch(list, m.Seq)
	switch {
	case m.InMemory() && !found:
		return slices.Insert(slices.Clone(list), at, m.Seq)
	case !m.InMemory() && found && len(list) < MaxInstructions:
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	return list
}
