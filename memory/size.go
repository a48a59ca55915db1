package memory

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory/window"
)

// Size returns how much a message counts towards a budget, in code points; see window.Chars.
// Missing content counts as "null"; role, IDs and calls cost nothing.
func (m *Message) Size() int64 {
	if m.Chars > 0 {
		return m.Chars
	}
	return measure(m)
}

// measure counts Size.
func measure(m *Message) int64 {
	parts := m.Parts
	if m.Content == "" && len(parts) == 0 && len(m.ToolCalls) > 0 {
		parts = json.RawMessage("null")
	}
	return int64(window.Chars(m.Content, parts))
}

// Measure sets the size of all that a change writes.
func (c *Change) Measure() {
	for _, list := range [][]Message{c.Append, c.Replace} {
		for i := range list {
			list[i].Chars = measure(&list[i])
		}
	}
}

// messageSize is the estimated size of a message besides its texts, in bytes.
const messageSize = 600

// Bytes estimates what a message takes in memory.
func (m *Message) Bytes() int64 {
	n := len(m.ID) + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts) + len(m.Usage) +
		len(m.UpstreamID) + len(m.Filed().Raw) + messageSize
	if m.Details != nil {
		n += len(m.WithThoughts) + len(m.Details.Members)
	}
	for k, v := range m.Metadata {
		n += len(k) + len(v) + 64
	}
	return int64(n)
}
