package postgres

import (
	"slices"
	"sort"

	"github.com/heardlog/heardlog/internal/lru"
	"github.com/heardlog/heardlog/memory"
)

type key struct{ project, id string }

// A view is an agent as of one ver of its agent_head row: its head and its newest messages. Views are immutable. Several share one array of messages: a
// later view may use places behind the end of an earlier one's tail, which its readers never look at. An agent's views are made one after the other, by
// its committer; of two that are made of the same view only the later is ever read.
type view struct {
	no, ver int64
	head    memory.Head
	tail    []memory.Message // the newest in order of Seq, without a gap towards the end
	full    bool             // tail is the whole ledger
	hidden  int              // how many of the tail history does not show
	bytes   int64            // of the tail's texts
}

const (
	minTail      = 48      // messages kept of one agent at most, where its history asks for no more
	maxTailBytes = 1 << 20 // and their texts' size
	messageSize  = 600     // what one takes beside its texts
)

// maxTail is how many messages are kept of the agent: what a turn looks at, its max_history and 16 more.
func maxTail(a *memory.Agent) int { return max(minTail, a.Settings.LLM.MaxHistory+16) }

func textSize(m *memory.Message) int64 {
	n := len(m.ID) + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts) + len(m.Usage) + len(m.UpstreamID) + len(m.Raw()) + messageSize
	for k, v := range m.Metadata {
		n += len(k) + len(v) + 64
	}
	return int64(n)
}

// newView makes a view of what was read: list is the newest messages, oldest first; full tells that there are no others.
func newView(no, ver int64, head memory.Head, list []memory.Message, full bool) *view {
	v := &view{no: no, ver: ver, head: head, full: full, tail: list}
	for i := range list {
		v.count(&list[i], 1)
	}
	v.trim()
	return v
}

// count counts a message in, or out.
func (v *view) count(m *memory.Message, by int) {
	v.bytes += int64(by) * textSize(m)
	if !m.InHistory() {
		v.hidden += by
	}
}

func (v *view) trim() {
	from := 0
	for len(v.tail)-from > maxTail(&v.head.Agent) || v.bytes > maxTailBytes && len(v.tail)-from > 1 {
		v.count(&v.tail[from], -1)
		from++
	}
	if from > 0 {
		v.tail, v.full = v.tail[from:], false
	}
}

// apply gives the view after a change.
func (v *view) apply(c memory.Change) *view {
	n := &view{no: v.no, ver: v.ver + 1, head: v.head.Apply(c), tail: v.tail, full: v.full, hidden: v.hidden, bytes: v.bytes}
	owned := false // whether n's array is its own, and may be written to within v's tail
	own := func() {
		if !owned {
			n.tail, owned = grown(n.tail, maxTail(&v.head.Agent)), true
		}
	}
	for i := range c.Append {
		m := c.Append[i]
		m.GivenTurn = false // as stored
		at, _ := n.find(m.Seq)
		switch {
		case at == len(n.tail):
			if at == cap(n.tail) {
				own()
			}
			n.tail = append(n.tail, m)
		case at == 0 && !n.full:
			continue // older than the tail
		default:
			own()
			n.tail = slices.Insert(n.tail, at, m)
		}
		n.count(&m, 1)
	}
	for i := range c.Replace {
		m := c.Replace[i]
		m.GivenTurn = false
		if at, ok := n.find(m.Seq); ok {
			own()
			n.count(&n.tail[at], -1)
			n.count(&m, 1)
			n.tail[at] = m
		}
	}
	n.trim()
	return n
}

// grown gives a copy of a list with room for more: a full tail slides through its array for a while before it is copied again.
func grown(list []memory.Message, most int) []memory.Message {
	out := make([]memory.Message, len(list), max(len(list)+1, min(max(4, len(list)+len(list)/2), most+most/3)))
	copy(out, list)
	return out
}

// find gives the place of a Seq in the tail, or where it would stand.
func (v *view) find(seq int64) (int, bool) {
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Seq >= seq })
	return i, i < len(v.tail) && v.tail[i].Seq == seq
}

// newest gives the newest n messages if the tail holds them: most often a part of the tail, which nobody writes to.
func (v *view) newest(n int, historyOnly bool) ([]memory.Message, bool) {
	if n <= 0 {
		return nil, true
	}
	if !historyOnly || v.hidden == 0 {
		if n > len(v.tail) && !v.full {
			return nil, false
		}
		n = min(n, len(v.tail))
		return v.tail[len(v.tail)-n : len(v.tail) : len(v.tail)], true
	}
	from, found := len(v.tail), 0
	for from > 0 && found < n {
		from--
		if v.tail[from].InHistory() {
			found++
		}
	}
	if found < n && !v.full {
		return nil, false
	}
	out := make([]memory.Message, 0, found)
	for i := from; i < len(v.tail); i++ {
		if v.tail[i].InHistory() {
			out = append(out, v.tail[i])
		}
	}
	return out, true
}

// page answers a query from the tail if the tail holds all that it asks for.
func (v *view) page(q memory.MessageQuery) ([]memory.Message, bool) {
	if !v.full && (len(v.tail) == 0 || q.AfterSeq < v.tail[0].Seq-1) {
		return nil, q.AfterRev >= v.head.Rev && q.AfterRev > 0 || q.AfterSeq >= v.head.Last.Seq
	}
	at, _ := v.find(q.AfterSeq + 1)
	var out []memory.Message
	for i := at; i < len(v.tail) && len(out) < max(q.Limit, 1); i++ {
		if m := &v.tail[i]; m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) {
			out = append(out, *m)
		}
	}
	return out, true
}

// cache keeps views, those asked for last.
type cache struct{ *lru.Cache[key, *view] }

func newCache(most int64) cache { return cache{lru.New[key, *view](most)} }

func (c cache) get(k key) *view {
	v, _ := c.Get(k)
	return v
}

// put keeps a view unless a newer one of the same row is there.
func (c cache) put(k key, v *view) {
	size := 1500 + v.bytes + 2*int64(len(v.head.Agent.Properties)) + messageSize*int64(cap(v.tail)-len(v.tail)) // textSize counts the rest
	c.Put(k, v, size, func(there *view) bool { return there.no == v.no && there.ver > v.ver })
}
