package sqlite

import (
	"encoding/json"
	"maps"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/heardlog/heardlog/memory"
)

// A view is what is kept in memory of one agent as of one commit: its head and, while it is hot, its newest messages. Views
// are immutable: a commit makes a new one. Their messages stand in arrays that several views share: a later view may use
// places behind the end of an earlier one's tail, which its readers never look at.
type view struct {
	no   int64 // agent.no
	head memory.Head
	hint hints
	// tail holds the newest messages in order of Seq, without a gap towards the end; nil when not kept.
	tail []memory.Message
	full bool // tail is the whole ledger
	// oldRev is at least the highest Rev of the messages before the tail: later changes are all in the tail.
	oldRev int64
	bytes  int64 // of the tail's texts
	hist   atomic.Pointer[[]memory.Message]
}

const (
	minTail      = 48      // messages kept of one agent at most, where its history asks for no more; see maxTail
	maxTailBytes = 1 << 20 // and their texts, in bytes; the newest message is kept whatever its size
	messageSize  = int64(unsafe.Sizeof(memory.Message{}))
	viewSize     = int64(unsafe.Sizeof(view{})) + 256 // with its entry and its place in the map
)

// size estimates what the view holds on to, in bytes.
func (v *view) size() int64 {
	a := &v.head.Agent
	n := viewSize + 2*int64(len(a.Properties)) + int64(len(a.ID)+len(a.Project)+len(a.Name)+len(a.Message)+len(a.JoinKey)+len(a.JoinHash))
	n += textSize(&v.head.Last)
	if v.tail != nil {
		n += v.bytes + messageSize*int64(cap(v.tail)+4)
	}
	return n
}

func textSize(m *memory.Message) int64 {
	n := len(m.ID) + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts) + len(m.Usage) + len(m.UpstreamID) + len(m.Upstream) + len(m.Filler) + 64
	for k, v := range m.Metadata {
		n += len(k) + len(v) + 64
	}
	return int64(n)
}

// bare gives the view without its tail.
func (v *view) bare() *view { return &view{no: v.no, head: v.head, hint: v.hint} }

// withTail gives the view with the newest messages as read from the database; full tells that there are no others.
func (v *view) withTail(tail []memory.Message, full bool) *view {
	n := &view{no: v.no, head: v.head, hint: v.hint, tail: tail, full: full}
	for i := range tail {
		if i > 0 && len(tail[i].Metadata) > 0 {
			before := view{tail: tail[:i]}
			tail[i].Metadata = before.shared(&tail[i])
		}
		n.bytes += textSize(&tail[i])
	}
	if !full {
		n.oldRev = v.head.Rev // not known, and not worth a query: nothing older than this moment is claimed
	}
	n.trim()
	return n
}

// maxTail is how many messages are kept of the agent: what a turn looks at (its max_history and 16 more), so that no turn has
// to read the database while the committer waits for it.
func (v *view) maxTail() int { return max(minTail, v.head.Agent.Settings.LLM.MaxHistory+16) }

// push adds a message behind the tail.
func (v *view) push(m memory.Message) {
	if len(v.tail) == cap(v.tail) {
		// By half and not to the double: the tails of a thousand agents are most of a server's memory. A full one slides
		// through its array for a while before it is copied.
		most := v.maxTail() + v.maxTail()/3
		grown := make([]memory.Message, len(v.tail), max(len(v.tail)+1, min(max(4, len(v.tail)+len(v.tail)/2), most)))
		copy(grown, v.tail)
		v.tail = grown
	}
	m.Metadata = v.shared(&m)
	v.tail = append(v.tail, m)
	v.bytes += textSize(&m)
	v.trim()
}

// shared gives a message's metadata, by the map of a message shortly before it if that says the same. Nobody writes to such
// a map, and a caller's messages mostly carry the same few bytes in one, which cost half a kilobyte each time.
func (v *view) shared(m *memory.Message) map[string]json.RawMessage {
	if len(m.Metadata) == 0 {
		return m.Metadata
	}
	for i := len(v.tail) - 1; i >= max(0, len(v.tail)-4); i-- {
		if old := v.tail[i].Metadata; maps.EqualFunc(old, m.Metadata, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			return old
		}
	}
	return m.Metadata
}

func (v *view) trim() {
	for len(v.tail) > v.maxTail() || v.bytes > maxTailBytes && len(v.tail) > 1 {
		v.bytes -= textSize(&v.tail[0])
		v.oldRev = max(v.oldRev, v.tail[0].Rev)
		v.tail, v.full = v.tail[1:], false
	}
}

// apply gives the view after a change that was written.
func (v *view) apply(c memory.Change) *view {
	n := &view{no: v.no, head: v.head.Apply(c), hint: v.hint, tail: v.tail, full: v.full, oldRev: v.oldRev, bytes: v.bytes}
	if n.tail == nil && !n.full && v.head.Last.Seq != 0 {
		n.oldRev = v.head.Rev
		n.push(v.head.Last)
	}
	owned := false // whether n.tail's array is n's own and may be written within its length
	own := func() {
		if !owned {
			n.tail = append(make([]memory.Message, 0, len(n.tail)+4), n.tail...)
			owned = true
		}
	}
	for _, m := range c.Append {
		if len(n.tail) == 0 || m.Seq > n.tail[len(n.tail)-1].Seq {
			n.push(m)
			continue
		}
		i, _ := n.find(m.Seq)
		if i == 0 && !n.full {
			n.oldRev = max(n.oldRev, m.Rev)
			continue
		}
		own()
		n.tail = append(n.tail, memory.Message{})
		copy(n.tail[i+1:], n.tail[i:])
		n.tail[i] = m
		n.bytes += textSize(&m)
		n.trim()
	}
	for _, m := range c.Replace {
		i, ok := n.find(m.Seq)
		if !ok {
			n.oldRev = max(n.oldRev, m.Rev)
			continue
		}
		own()
		n.bytes += textSize(&m) - textSize(&n.tail[i])
		n.tail[i] = m
		n.trim()
	}
	return n
}

// find gives the place of a Seq in the tail, or where it would stand.
func (v *view) find(seq int64) (int, bool) {
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Seq >= seq })
	return i, i < len(v.tail) && v.tail[i].Seq == seq
}

// newest gives the newest n messages if the tail holds them.
func (v *view) newest(n int, historyOnly bool) ([]memory.Message, bool) {
	list := v.tail
	if historyOnly {
		list = v.history()
	}
	if n > len(list) && !v.full {
		if n == 1 && !historyOnly && v.head.Last.Seq != 0 {
			return []memory.Message{v.head.Last}, true
		}
		return nil, false
	}
	n = min(n, len(list))
	return list[len(list)-n : len(list) : len(list)], true
}

// history gives the tail's messages that history shows; most often all, and then without a copy.
func (v *view) history() []memory.Message {
	if h := v.hist.Load(); h != nil {
		return *h
	}
	h := shownOnly(v.tail)
	v.hist.Store(&h)
	return h
}

func shownOnly(list []memory.Message) []memory.Message {
	for i := range list {
		if list[i].InHistory() {
			continue
		}
		out := append(make([]memory.Message, 0, len(list)-1), list[:i]...)
		for _, m := range list[i+1:] {
			if m.InHistory() {
				out = append(out, m)
			}
		}
		return out
	}
	return list
}

// page answers a query from the tail if the tail holds all that it asks for.
func (v *view) page(q memory.MessageQuery) ([]memory.Message, bool) {
	switch {
	case v.full:
	case len(v.tail) > 0 && q.AfterSeq >= v.tail[0].Seq-1:
	case len(v.tail) > 0 && q.AfterRev > 0 && q.AfterRev >= v.oldRev:
	case q.AfterSeq >= v.head.Last.Seq || q.AfterRev >= v.head.Rev && q.AfterRev > 0:
		return nil, true
	default:
		return nil, false
	}
	i, _ := v.find(q.AfterSeq + 1)
	var out []memory.Message
	for _, m := range v.tail[i:] {
		if len(out) == q.Limit {
			break
		}
		if m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) {
			out = append(out, m)
		}
	}
	return out, true
}
