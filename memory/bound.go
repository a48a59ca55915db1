package memory

import "slices"

// Limits of what a policy takes into account of a long memory. No LLM call takes more messages.
const (
	// MaxRead is how many of the newest messages of a ledger are read, of every state.
	MaxRead = 4096
	// MaxInstructions is how many older instructions are read in addition.
	MaxInstructions = 64
)

// Start returns the Seq before which the memory holds nothing but instructions.
func (m *Memory) Start() int64 { return max(m.BaseSeq, m.From, 1) }

// Standing returns the Seqs of the instructions before a Seq.
func (m *Memory) Standing(before int64) []int64 {
	at, _ := slices.BinarySearch(m.Instructions, before)
	return m.Instructions[:at]
}

// StartAt notes that the memory holds nothing but instructions before a Seq. Nothing is noted while
// there are more instructions than the list has.
func (m *Memory) StartAt(seq int64) {
	if len(m.Instructions) < MaxInstructions {
		m.From = max(m.From, seq)
	}
}

// Note updates Instructions and From for a change of the agent's messages. It reports whether they
// differ then.
func (m *Memory) Note(c *Change) (differ bool) {
	m.Instructions, m.From, differ = m.after(c)
	return differ
}

// after returns Instructions and From after a change, and whether they differ then.
func (m *Memory) after(c *Change) (_ []int64, _ int64, differ bool) {
	list, from := m.Instructions, m.From
	for _, changed := range [][]Message{c.Append, c.Replace} {
		for i := range changed {
			switch msg := &changed[i]; {
			case msg.Role.Instructs():
				list = noted(list, msg)
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
	return slices.Clip(list), from, from != m.From || !slices.Equal(list, m.Instructions)
}

// noted returns a copy of the list with an instruction, or without it if that has left the memory.
// A full list, which may lack older ones, stays full, so that it can be told from a complete one.
func noted(list []int64, m *Message) []int64 {
	at, found := slices.BinarySearch(list, m.Seq)
	switch {
	case m.InMemory() && !found:
		return slices.Insert(slices.Clone(list), at, m.Seq)
	case !m.InMemory() && found && len(list) < MaxInstructions:
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	return list
}
