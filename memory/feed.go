package memory

import "sync"

// Written is a change as stored. Its messages are shared with the store: do not change them.
type Written struct {
	Prev, Rev       int64 // of the agent before and with this change
	Agent           *Agent
	Append, Replace []Message
}

// Limits of what waits in a feed until it is taken; beyond them it is Lost.
const (
	maxFed      = 256
	maxFedBytes = 1 << 20
	maxFedNotes = 64
)

// Note is something that happened to an agent and left nothing in its ledger.
type Note struct {
	Action string // ActionSearched
	Count  int    // how many messages it was about
}

// Fed is what a Feed returns.
type Fed struct {
	// Written are the changes since the last Take, in the order in which their calls returned. They
	// may be out of order, and changes by other servers are missing. A reader that needs all of
	// them reads the store where Rev has a gap.
	Written []Written
	// Lost is set if there were more changes than the feed keeps, or one that is not among them.
	// The store has them.
	Lost  bool
	Notes []Note
}

// Feed receives what happens to one agent in this process: the stored changes (Written) and Notes.
// Writers never wait for its reader: what is not taken in time is lost.
type Feed struct {
	wake  chan struct{}
	close func()

	mu    sync.Mutex
	fed   Fed
	bytes int
}

// Wake receives when there is something to take, or when an answer has made progress. Events that
// are close together may share one.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Take returns what has happened since the last call.
func (f *Feed) Take() Fed {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.fed
	f.fed, f.bytes = Fed{}, 0
	return out
}

// NewFeed returns a feed. detach is called once, when it is closed.
func NewFeed(detach func(*Feed)) *Feed {
	f := &Feed{wake: make(chan struct{}, 1)}
	f.close = sync.OnceFunc(func() { detach(f) })
	return f
}

// Close ends the feed.
func (f *Feed) Close() { f.close() }

// Poke wakes the reader.
func (f *Feed) Poke() {
	select {
	case f.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// Put adds a change; nil is a change that is not known here.
func (f *Feed) Put(w *Written) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fed.Lost {
		return
	}
	if w != nil {
		f.bytes += w.size()
	}
	if w == nil || len(f.fed.Written) >= maxFed || f.bytes > maxFedBytes && len(f.fed.Written) > 0 {
		f.fed.Written, f.fed.Lost = nil, true
		return
	}
	f.fed.Written = append(f.fed.Written, *w)
}

// AddNote adds a note, unless too many wait already.
func (f *Feed) AddNote(n Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fed.Notes) < maxFedNotes {
		f.fed.Notes = append(f.fed.Notes, n)
	}
}

// size estimates what the change holds on to, in bytes.
func (w *Written) size() int {
	n := 256
	for _, list := range [2][]Message{w.Append, w.Replace} {
		for i := range list {
			m := &list[i]
			n += 512 + len(m.Content) + len(m.Generated) + len(m.Sent) + len(m.Parts) + len(m.ToolCalls)
		}
	}
	return n
}
