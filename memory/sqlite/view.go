package sqlite

import (
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/heardlog/heardlog/memory"
)

// A view is what is kept in memory of one agent as of one commit: its head and, while it is hot, its newest messages. Views
// are immutable: a commit makes a new one. Their messages stand packed in arrays that several views share: a later view may use
// places behind the end of an earlier one's tail, which its readers never look at.
type view struct {
	no   int64 // agent.no
	head memory.Head
	hint hints
	// tail holds the newest messages in order of Seq, without a gap towards the end; nil when not kept.
	tail []packed
	full bool // tail is the whole ledger
	// oldRev is at least the highest Rev of the messages before the tail: later changes are all in the tail.
	oldRev int64
	bytes  int64 // of the tail's messages, packed
	// list is the end of the tail as messages, and shown what history shows of the tail where that is not all, until the next garbage
	// collection: what is asked for again and again is unpacked seldom, and what a thousand agents are asked for now and then takes no
	// memory that lasts.
	list, shown unpacked
}

const (
	minTail      = 48                                 // messages kept of one agent at most, where its history asks for no more; see maxTail
	maxTailBytes = 1 << 20                            // and their size, in bytes; the newest message is kept whatever its size
	packedSize   = 32                                 // what one takes besides its bytes: its place in the tail, and what the allocator rounds up
	viewSize     = int64(unsafe.Sizeof(view{})) + 256 // with its entry and its place in the map
)

// size estimates what the view holds on to, in bytes.
func (v *view) size() int64 {
	a := &v.head.Agent
	n := viewSize + 2*int64(len(a.Properties)) + int64(len(a.ID)+len(a.Project)+len(a.Name)+len(a.Message)+len(a.JoinKey)+len(a.JoinHash))
	n += textSize(&v.head.Last)
	if v.tail != nil {
		n += v.bytes + packedSize*int64(cap(v.tail))
	}
	return n
}

func textSize(m *memory.Message) int64 {
	n := len(m.ID) + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts) + len(m.Usage) + len(m.UpstreamID) + len(m.Raw()) + 64
	for k, v := range m.Metadata {
		n += len(k) + len(v) + 64
	}
	return int64(n)
}

// bare gives the view without its tail.
func (v *view) bare() *view { return &view{no: v.no, head: v.head, hint: v.hint} }

// withTail gives the view with the newest messages as read from the database; full tells that there are no others.
func (v *view) withTail(tail []memory.Message, full bool) *view {
	n := &view{no: v.no, head: v.head, hint: v.hint, tail: make([]packed, len(tail)), full: full}
	for i := range tail {
		n.tail[i] = pack(&tail[i])
		n.bytes += int64(len(n.tail[i]))
	}
	if !full {
		n.oldRev = v.head.Rev // not known, and not worth a query: nothing older than this moment is claimed
	}
	n.trim()
	n.list.set(tail[len(tail)-len(n.tail):])
	return n
}

// maxTail is how many messages are kept of the agent: what a turn looks at (its max_history and 16 more), so that no turn has
// to read the database while the committer waits for it.
func maxTail(a *memory.Agent) int { return max(minTail, a.Settings.LLM.MaxHistory+16) }

func (v *view) maxTail() int { return maxTail(&v.head.Agent) }

// push adds a message behind the tail.
func (v *view) push(m *memory.Message) {
	if len(v.tail) == cap(v.tail) {
		v.tail = grown(v.tail, v.maxTail())
	}
	p := pack(m)
	v.tail = append(v.tail, p)
	v.bytes += int64(len(p))
	v.trim()
}

// grown gives a list with more room: by half and not to the double, since the tails of a thousand agents are much of a server's
// memory. A full one slides through its array for a while before it is copied.
func grown[T any](list []T, most int) []T {
	out := make([]T, len(list), max(len(list)+1, min(max(4, len(list)+len(list)/2), most+most/3)))
	copy(out, list)
	return out
}

func (v *view) trim() {
	for len(v.tail) > v.maxTail() || v.bytes > maxTailBytes && len(v.tail) > 1 {
		v.bytes -= int64(len(v.tail[0]))
		rev, _, _ := v.tail[0].found()
		v.oldRev = max(v.oldRev, rev)
		v.tail, v.full = v.tail[1:], false
	}
}

// apply gives the view after a change that was written.
func (v *view) apply(c memory.Change) *view {
	n := &view{no: v.no, head: v.head.Apply(c), hint: v.hint, tail: v.tail, full: v.full, oldRev: v.oldRev, bytes: v.bytes}
	if n.tail == nil && !n.full && v.head.Last.Seq != 0 {
		n.oldRev = v.head.Rev
		n.push(&v.head.Last)
	}
	owned := false // whether n.tail's array is n's own and may be written within its length
	own := func() {
		if !owned {
			n.tail = append(make([]packed, 0, len(n.tail)+4), n.tail...)
			owned = true
		}
	}
	for i := range c.Append {
		m := &c.Append[i]
		if len(n.tail) == 0 || m.Seq > n.tail[len(n.tail)-1].seq() {
			n.push(m)
			continue
		}
		i, _ := n.find(m.Seq)
		if i == 0 && !n.full {
			n.oldRev = max(n.oldRev, m.Rev)
			continue
		}
		own()
		p := pack(m)
		n.tail = slices.Insert(n.tail, i, p)
		n.bytes += int64(len(p))
		n.trim()
	}
	for i := range c.Replace {
		m := &c.Replace[i]
		i, ok := n.find(m.Seq)
		if !ok {
			n.oldRev = max(n.oldRev, m.Rev)
			continue
		}
		own()
		p := pack(m)
		n.bytes += int64(len(p) - len(n.tail[i]))
		n.tail[i] = p
		n.trim()
	}
	v.carry(n, c)
	return n
}

// carry gives the messages that are unpacked already on to the view n, which came of v by c.
func (v *view) carry(n *view, c memory.Change) {
	list, ok := v.list.get()
	added := len(c.Append)
	if !ok || len(n.tail) < added {
		return
	}
	for i := range c.Append { // all must stand at the end
		if seq := c.Append[i].Seq; seq <= list[len(list)-1].Seq || seq != n.tail[len(n.tail)-added+i].seq() {
			return
		}
	}
	switch {
	case len(c.Replace) > 0:
		list = append(make([]memory.Message, 0, len(list)+added+4), list...)
	case cap(list)-len(list) < added:
		list = grown(list, max(n.maxTail(), len(list)+added))
	}
	list = append(list, c.Append...)
	for i := len(list) - added; i < len(list); i++ {
		list[i].GivenTurn = false // as stored
	}
	list = list[max(0, len(list)-len(n.tail)):]
	for i := range c.Replace {
		at, ok := n.find(c.Replace[i].Seq)
		if at -= len(n.tail) - len(list); ok && at >= 0 {
			list[at] = c.Replace[i]
		}
	}
	n.list.set(list)
}

// find gives the place of a Seq in the tail, or where it would stand.
func (v *view) find(seq int64) (int, bool) {
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].seq() >= seq })
	return i, i < len(v.tail) && v.tail[i].seq() == seq
}

// newest gives the newest n messages if the tail holds them.
func (v *view) newest(n int, historyOnly bool) ([]memory.Message, bool) {
	if n == 1 && !historyOnly && v.head.Last.Seq != 0 {
		return []memory.Message{v.head.Last}, true
	}
	if n > len(v.tail) && !v.full {
		return nil, false
	}
	list := v.messages(n)
	if historyOnly {
		list = v.history(list, n)
	}
	if n > len(list) && !v.full {
		return nil, false
	}
	n = min(n, len(list))
	return list[len(list)-n : len(list) : len(list)], true
}

// messages gives the newest n messages of the tail unpacked, or more of them.
func (v *view) messages(n int) []memory.Message {
	n = min(n, len(v.tail))
	if list, ok := v.list.get(); ok && n <= len(list) {
		return list
	}
	const room = 4 // for the messages of the turn that is about to begin: see carry
	list := make([]memory.Message, n, n+room)
	var u unpacker
	for i, p := range v.tail[len(v.tail)-n:] {
		u.unpack(p, &list[i])
	}
	v.list.set(list)
	return list
}

// message gives one message of the tail.
func (v *view) message(i int) (m memory.Message) {
	var u unpacker
	u.unpack(v.tail[i], &m)
	return m
}

// history gives those messages of a list that history shows, which is the newest n of the tail or more; most often all, and then
// without a copy. Where that leaves fewer than n, it gives those of the whole tail.
func (v *view) history(list []memory.Message, n int) []memory.Message {
	if h, ok := v.shown.get(); ok {
		return h
	}
	h := shownOnly(list)
	switch {
	case len(h) == len(list):
		return h
	case len(h) < n && len(list) < len(v.tail):
		h = shownOnly(v.messages(len(v.tail)))
	case len(list) < len(v.tail):
		return h
	}
	v.shown.set(h)
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
	case len(v.tail) > 0 && q.AfterSeq >= v.tail[0].seq()-1:
	case len(v.tail) > 0 && q.AfterRev > 0 && q.AfterRev >= v.oldRev:
	case q.AfterSeq >= v.head.Last.Seq || q.AfterRev >= v.head.Rev && q.AfterRev > 0:
		return nil, true
	default:
		return nil, false
	}
	i, _ := v.find(q.AfterSeq + 1)
	var out []memory.Message
	var u unpacker
	for _, p := range v.tail[i:] {
		if len(out) == q.Limit {
			break
		}
		if rev, _, _ := p.found(); rev <= q.AfterRev {
			continue
		}
		var m memory.Message
		if u.unpack(p, &m); !q.HistoryOnly || m.InHistory() {
			out = append(out, m)
		}
	}
	return out, true
}

// unpacked is a list of messages that the next garbage collection takes away if nobody uses it then. Its zero value holds none. It is safe
// for concurrent use; of two lists that are set at once one stays.
type unpacked struct{ at atomic.Pointer[weakList] }

// weakList is a list by its first message, which keeps nothing alive. While somebody holds a list its array stays, and with it what a weak pointer finds.
type weakList struct {
	first    weak.Pointer[memory.Message]
	len, cap int
}

// set keeps a list for as long as the collector lets it.
func (u *unpacked) set(list []memory.Message) {
	if len(list) > 0 {
		u.at.Store(&weakList{weak.Make(&list[0]), len(list), cap(list)})
	}
}

// get gives the list if it is still there.
func (u *unpacked) get() ([]memory.Message, bool) {
	w := u.at.Load()
	if w == nil {
		return nil, false
	}
	first := w.first.Value()
	if first == nil {
		return nil, false
	}
	return unsafe.Slice(first, w.cap)[:w.len], true
}
