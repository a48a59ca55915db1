package redis

import (
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"

	"github.com/heardlog/heardlog/internal/lru"
	"github.com/heardlog/heardlog/memory"
)

// A view is an agent as of one stamp: its head and its newest messages. Views are immutable.
type view struct {
	claim string // of which the agent was made: another of the same id has another
	ver   int64
	nonce string // of the commit: after a server has gone back to what it held before, others may have made another of this ver
	head  memory.Head
	tail  []*memory.Message // the newest in order of Seq, without a gap towards the end
	full  bool              // tail is the whole ledger
	bytes int64             // of the tail's texts
}

// stamp is what stands in the server as long as the view holds.
func (v *view) stamp() string { return v.claim + "." + itoa(v.ver) + "." + v.nonce }

const (
	minTail      = 48      // messages kept of one agent at most, where its history asks for no more
	maxTailBytes = 1 << 20 // and their texts' size
)

// maxTail is how many messages are kept of the agent: what a turn looks at, its max_history and 16 more.
func maxTail(a *memory.Agent) int { return max(minTail, a.Settings.LLM.MaxHistory+16) }

func textSize(m *memory.Message) int64 {
	n := len(m.ID) + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.ToolCalls) + len(m.Parts) + len(m.Usage) + len(m.UpstreamID) + len(m.Raw()) + 600
	for k, v := range m.Metadata {
		n += len(k) + len(v) + 64
	}
	return int64(n)
}

// newView makes a view of what was read: list is the newest messages, oldest first; full tells that there are no others.
func newView(claim string, ver int64, nonce string, head memory.Head, list []memory.Message, full bool) *view {
	v := &view{claim: claim, ver: ver, nonce: nonce, head: head, full: full, tail: make([]*memory.Message, len(list))}
	for i := range list {
		v.tail[i] = &list[i]
		v.bytes += textSize(&list[i])
	}
	v.trim()
	return v
}

func (v *view) trim() {
	from := 0
	for len(v.tail)-from > maxTail(&v.head.Agent) || v.bytes > maxTailBytes && len(v.tail)-from > 1 {
		v.bytes -= textSize(v.tail[from])
		from++
	}
	if from > 0 {
		v.tail, v.full = v.tail[from:], false
	}
}

// apply gives the view after a change. Each call gives another stamp.
func (v *view) apply(c memory.Change) *view {
	n := &view{claim: v.claim, ver: v.ver + 1, nonce: strconv.FormatUint(rand.Uint64(), 36), head: v.head.Apply(c), full: v.full, bytes: v.bytes}
	n.tail = append(make([]*memory.Message, 0, len(v.tail)+len(c.Append)), v.tail...)
	for i := range c.Append {
		m := c.Append[i]
		m.GivenTurn = false // as stored
		at, _ := n.find(m.Seq)
		if at == 0 && len(n.tail) > 0 && !n.full {
			continue // older than the tail
		}
		n.tail = slices.Insert(n.tail, at, &m)
		n.bytes += textSize(&m)
	}
	for i := range c.Replace {
		m := c.Replace[i]
		m.GivenTurn = false
		if at, ok := n.find(m.Seq); ok {
			n.bytes += textSize(&m) - textSize(n.tail[at])
			n.tail[at] = &m
		}
	}
	n.trim()
	return n
}

// find gives the place of a Seq in the tail, or where it would stand.
func (v *view) find(seq int64) (int, bool) {
	i := sort.Search(len(v.tail), func(i int) bool { return v.tail[i].Seq >= seq })
	return i, i < len(v.tail) && v.tail[i].Seq == seq
}

// newest gives the newest n messages if the tail holds them.
func (v *view) newest(n int, historyOnly bool) ([]memory.Message, bool) {
	if n <= 0 {
		return nil, true
	}
	from, found := len(v.tail), 0
	for from > 0 && found < n {
		from--
		if !historyOnly || v.tail[from].InHistory() {
			found++
		}
	}
	if found < n && !v.full {
		return nil, false
	}
	out := make([]memory.Message, 0, found)
	for _, m := range v.tail[from:] {
		if !historyOnly || m.InHistory() {
			out = append(out, *m)
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
	for _, m := range v.tail[at:] {
		if len(out) < max(q.Limit, 1) && m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) {
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

// put keeps a view, which the server has just shown or taken. One of a lower ver is no older one where the server has lost something; where it is, the next look at the stamp finds that out.
func (c cache) put(k key, v *view) {
	c.Put(k, v, 1500+v.bytes+2*int64(len(v.head.Agent.Properties))+16*int64(len(v.tail)), nil)
}
