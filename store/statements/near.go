package statements

import (
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// nearest is how many messages before an answer its record may leave words to. Records leave them
// to the newest memory.Referable ones; between these may come some that were stored later.
const nearest = 4 * memory.Referable

// Near has the last messages of a ledger that passes in order.
type Near []memory.Message

// Add adds the next message.
func (n *Near) Add(m *memory.Message) {
	if len(*n) >= 2*nearest {
		*n = slices.Delete(*n, 0, nearest)
	}
	*n = append(*n, *m)
}

func (n Near) find(seq int64) *memory.Message { return memory.FindSeq(n, seq) }

// Inline puts the words that the message's record leaves to the ledger into the record, and removes
// texts that only records refer to.
func (n Near) Inline(m *memory.Message) {
	if made := m.Made(); made.Request != nil || made.Was != nil {
		m.Amend(func(d *memory.Details) {
			if d.Request != nil {
				d.Request = d.Request.Inline(n.find)
			}
			d.Was = nil
		})
	}
}

// refer takes words that the ledger has out of the message's record.
func (n Near) refer(m *memory.Message) {
	if m.Made().Request != nil {
		m.Amend(func(d *memory.Details) {
			t := *d.Request
			t.Refer(n.find)
			d.Request = &t
		})
	}
}
