package engine

import (
	"slices"
	"sort"

	"github.com/heardlog/heardlog/memory"
)

// A snapshot is an agent at one version: its head and its newest messages. Snapshots are immutable,
// but several share one array of messages: a later one may use places behind the end of an earlier
// one's tail, which readers of the earlier one never look at. That is safe because the snapshots of
// an agent are made one after the other, each of the one before; after a failed write the next one
// is made of what the store holds.
type snapshot struct {
	no     int64
	ver    int64 // 0 if the store does not count
	head   memory.Head
	tail   []memory.Message // the newest in order of Seq, without a gap towards the end
	full   bool             // tail holds every message of the agent
	hidden int              // how many of the tail history does not show
	bytes  int64            // estimated size of the tail
	// rest is a revision that no message before the tail exceeds, so that the tail alone answers
	// which messages have changed after it.
	rest int64
}

const (
	minTail      = 48      // messages kept of an agent at least
	maxTailBytes = 1 << 20 // and at most; the newest message is kept whatever its size
	messageSize  = 600     // estimated size of a message besides its texts
)

// maxTail returns how many messages are kept of the agent: its max_history, which a turn looks at,
// and 16 more.
func maxTail(a *memory.Agent) int { return max(minTail, a.Settings.LLM.MaxHistory+16) }

// newSnapshot returns the snapshot of what was loaded when n messages were asked for, all of them.
func newSnapshot(st memory.Stored, n int) *snapshot {
	s := &snapshot{
		no: st.No, ver: st.Ver, head: st.Head, tail: st.Tail, rest: st.Head.Rev,
		full: len(st.Tail) < n || st.Head.Last.Seq == 0,
	}
	for i := range s.tail {
		s.count(&s.tail[i], 1)
	}
	return s
}

// trimmed returns the snapshot with no more messages than are to be kept in memory.
func (s *snapshot) trimmed() *snapshot {
	n := *s
	n.trim()
	return &n
}

func (s *snapshot) version() memory.Version {
	return memory.Version{No: s.no, Rev: s.head.Rev, Ver: s.ver}
}

// size estimates what the snapshot takes in memory.
func (s *snapshot) size() int64 {
	return 1500 + s.bytes + 2*int64(len(s.head.Agent.Properties)) + messageSize*int64(cap(s.tail)-len(s.tail))
}

// count adds a message to the sums, or takes it out.
func (s *snapshot) count(m *memory.Message, by int) {
	s.bytes += int64(by) * m.Bytes()
	if !m.InHistory() {
		s.hidden += by
	}
}

// trim drops the oldest messages beyond what is kept.
func (s *snapshot) trim() {
	from, most := 0, maxTail(s.head.Agent)
	for len(s.tail)-from > most || s.bytes > maxTailBytes && len(s.tail)-from > 1 {
		s.count(&s.tail[from], -1)
		s.rest = max(s.rest, s.tail[from].Rev)
		from++
	}
	if from > 0 {
		s.tail, s.full = s.tail[from:], false
	}
}

// apply returns the snapshot after a change.
func (s *snapshot) apply(c memory.Change) *snapshot {
	n := &snapshot{no: s.no, ver: s.ver, head: s.head.Apply(c), tail: s.tail, full: s.full, hidden: s.hidden, bytes: s.bytes, rest: s.rest}
	if s.ver > 0 {
		n.ver++
	}
	owned := false // whether n's array is its own, so that places within s's tail may be written
	own := func() {
		if !owned {
			n.tail, owned = grown(n.tail, maxTail(s.head.Agent)), true
		}
	}
	for i := range c.Append {
		m := &c.Append[i]
		at, _ := n.find(m.Seq)
		switch {
		case at == len(n.tail):
			if at == cap(n.tail) {
				own()
			}
			n.tail = append(n.tail, *m)
		case at == 0 && !n.full:
			n.rest = max(n.rest, m.Rev) // older than the tail
			continue
		default:
			own()
			n.tail = slices.Insert(n.tail, at, *m)
		}
		n.tail[at].GivenTurn = false // as stored
		n.count(m, 1)
	}
	for i := range c.Replace {
		m := &c.Replace[i]
		if at, ok := n.find(m.Seq); ok {
			own()
			n.count(&n.tail[at], -1)
			n.tail[at] = *m
			n.tail[at].GivenTurn = false
			n.count(m, 1)
		} else {
			n.rest = max(n.rest, m.Rev)
		}
	}
	n.trim()
	return n
}

// grown returns a copy of a list with room for more. A full tail slides through its array for a
// while before it is copied again.
func grown(list []memory.Message, most int) []memory.Message {
	out := make([]memory.Message, len(list), max(len(list)+2, min(max(4, len(list)+len(list)/2), most+most/3)))
	copy(out, list)
	return out
}

// find returns the place of a Seq in the tail, or where it would be.
func (s *snapshot) find(seq int64) (int, bool) {
	i := sort.Search(len(s.tail), func(i int) bool { return s.tail[i].Seq >= seq })
	return i, i < len(s.tail) && s.tail[i].Seq == seq
}

// newest returns the newest n messages, oldest first, if the tail holds them.
func (s *snapshot) newest(n int, historyOnly bool) ([]memory.Message, bool) {
	if n <= 0 {
		return nil, true
	}
	if !historyOnly || s.hidden == 0 {
		if n > len(s.tail) && !s.full {
			return nil, false
		}
		n = min(n, len(s.tail))
		return s.tail[len(s.tail)-n : len(s.tail) : len(s.tail)], true
	}
	from, found := len(s.tail), 0
	for from > 0 && found < n {
		from--
		if s.tail[from].InHistory() {
			found++
		}
	}
	if found < n && !s.full {
		return nil, false
	}
	out := make([]memory.Message, 0, found)
	for i := from; i < len(s.tail); i++ {
		if s.tail[i].InHistory() {
			out = append(out, s.tail[i])
		}
	}
	return out, true
}

// page answers a query if the tail holds all that it asks for.
func (s *snapshot) page(q memory.MessageQuery) ([]memory.Message, bool) {
	if !s.full && (len(s.tail) == 0 || q.AfterSeq < s.tail[0].Seq-1 && (q.AfterRev == 0 || q.AfterRev < s.rest)) {
		return nil, q.AfterRev >= s.head.Rev && q.AfterRev > 0 || q.AfterSeq >= s.head.Last.Seq
	}
	at, _ := s.find(q.AfterSeq + 1)
	var out []memory.Message
	size := int64(0)
	for i := at; i < len(s.tail) && len(out) < q.Limit && (q.Bytes == 0 || size < q.Bytes); i++ {
		if m := &s.tail[i]; m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) && (q.Turn == nil || *q.Turn == m.TurnID) {
			out, size = append(out, *m), size+m.Bytes()
		}
	}
	return out, true
}
