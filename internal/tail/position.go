package tail

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// position is where an event stands in an agent's stream. Events of one revision are in the order
// of their messages; those about the agent itself come last. A reader's position is that of the
// last event it has.
type position struct {
	rev, seq int64
	order    int
}

// agentSeq is the Seq of events about the agent itself.
const agentSeq = math.MaxInt64

// endOf returns the position after every event of a revision.
func endOf(rev int64) position { return position{rev, agentSeq, math.MaxInt} }

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.rev, o.rev), cmp.Compare(p.seq, o.seq), cmp.Compare(p.order, o.order))
}

// wholeRev returns the last revision of which a reader at p has every event.
func (p position) wholeRev() int64 {
	if p.order == math.MaxInt {
		return p.rev
	}
	return p.rev - 1
}

// appendID appends the event's ID: the revision and, unless it is the revision's end, the place in
// it.
func (p position) appendID(b []byte) []byte {
	b = strconv.AppendInt(b, p.rev, 10)
	if p.order == math.MaxInt {
		return b
	}
	seq := p.seq
	if seq == agentSeq {
		seq = 0
	}
	b = strconv.AppendInt(append(b, '.'), seq, 10)
	return strconv.AppendInt(append(b, '.'), int64(p.order), 10)
}

// maxOrder is the highest place of an event among those of one message and revision.
const maxOrder = 99

// parsePosition reads an event's ID. It fails with fault.Invalid.
func parsePosition(id string) (position, error) {
	var n [3]int64
	parts := strings.Split(id, ".")
	ok := len(parts) == 1 || len(parts) == 3
	for i := 0; ok && i < len(parts); i++ {
		v, err := strconv.ParseUint(parts[i], 10, 63)
		n[i], ok = int64(v), err == nil && parts[i][0] != '+' //nolint:gosec // 63 bits
	}
	if !ok || n[2] > maxOrder || len(parts) == 3 && n[0] == 0 {
		return position{}, fault.At(fault.Invalid, "Last-Event-ID or after", "must be an id of this stream, not %q", text.Clip(id, 60))
	}
	if len(parts) == 1 {
		return endOf(n[0]), nil
	}
	return position{n[0], cmp.Or(n[1], agentSeq), int(n[2])}, nil
}
