package memory

import (
	"context"
)

// Head is an agent with what is needed to write its next message. It is a pure function of the agent and its last message
// (see NewHead), so a driver may keep it in memory and can always make it anew.
type Head struct {
	Agent   Agent
	NextSeq int64 // Seq of the next message, from 1
	// Rev grows by one with every change of the agent or of one of its messages; all that one Change writes carries the
	// same Rev. It is what a reader compares to learn whether anything changed, and the id of live-tail events.
	Rev      int64
	LastTurn int64   // highest turn_id so far, -1 before the first message
	Last     Message // the last message; zero before the first
}

// NewHead makes the head of an agent whose message with the highest Seq is last (nil: none), and whose highest message
// revision is rev.
func NewHead(a Agent, last *Message, rev int64) Head {
	h := Head{Agent: a, NextSeq: 1, Rev: max(a.Rev, rev), LastTurn: -1}
	if last != nil {
		h.advance(*last)
	}
	return h
}

// Apply gives the head after a Change; drivers call it to keep a cached head. The change's messages carry their Seq and Rev.
func (h Head) Apply(c Change) Head {
	if c.Agent != nil {
		h.Agent = *c.Agent
		h.Rev = max(h.Rev, c.Agent.Rev)
	}
	for _, m := range c.Append {
		h.Rev = max(h.Rev, m.Rev)
		if m.Seq >= h.Last.Seq {
			h.advance(m)
		}
	}
	for _, m := range c.Replace {
		h.Rev = max(h.Rev, m.Rev)
		h.NextSeq = max(h.NextSeq, m.AnswerSeq+1)
		if m.Seq == h.Last.Seq {
			h.Last = m
		}
	}
	return h
}

func (h *Head) advance(m Message) {
	h.Last = m
	h.NextSeq = max(h.NextSeq, m.Seq+1, m.AnswerSeq+1)
	h.LastTurn = max(h.LastTurn, m.TurnID)
}

// Change is what one decision writes, all or none.
type Change struct {
	Agent   *Agent    // the agent's new value; nil = unchanged
	Append  []Message // new messages; Seq, Rev and TurnID set by the decision. A Seq below Head.NextSeq is one that was kept free
	Replace []Message // new values of stored messages, by Seq; a message's ID never changes
	Events  []Event   // outbox: one delivery for each of the project's endpoints that wants the type
	// copies tells that Append holds nothing but what the memory holds already: it may go beyond the limit of a ledger, by MaxSnapshot.
	copies bool
}

// Empty tells that there is nothing to write.
func (c Change) Empty() bool {
	return c.Agent == nil && len(c.Append) == 0 && len(c.Replace) == 0 && len(c.Events) == 0
}

// Event is something that happened, ready to be sent: the body is built once and never changes.
type Event struct {
	ID        string // noticeId; unique
	Type      int    // 101, 102, … (reference/agora-api.md 5.4)
	CreatedMS int64
	Body      []byte
}

// Tx is what a decision may read: the agent's state inside the transaction that will write the Change.
type Tx interface {
	Head() Head
	// Last gives the newest n messages of every role and state, oldest first.
	Last(n int) ([]Message, error)
	// ByIDs gives the stored messages that carry one of the client ids, by id.
	ByIDs(ids []string) (map[string]Message, error)
	// Turn gives the messages of one turn in order of Seq; none is not an error.
	Turn(turnID int64) ([]Message, error)
	// Seq gives one message; fault.NotFound if there is none.
	Seq(seq int64) (Message, error)
}

// Decide looks at an agent and says what to write; it must not block and may be run more than once for one call, since a
// driver repeats it when the transaction has to be tried again: what it captures must be set anew on each run. An error
// writes nothing and reaches the caller as it is.
type Decide func(tx Tx) (Change, error)

// AgentQuery selects agents of one project, newest first.
type AgentQuery struct {
	Project      string
	Channel      string   // "" = any
	Name         string   // "" = any
	FromMS, ToMS int64    // start time, both inclusive; 0 = open
	Statuses     []Status // empty = any
	Limit        int      // at least 1
	Cursor       string   // agent id at which the page starts; "" = the newest
}

// MaxCounted is how many agents a list counts: a project may have millions, and whoever turns pages wants to know no more than that there are many.
const MaxCounted = 10_000

// AgentPage is one page of a list.
type AgentPage struct {
	Agents    []Agent
	Next      string // agent id at which the next page starts; "" on the last page
	Total     int    // all that match, this page or not; at most MaxCounted
	Truncated bool   // more than Total match
}

// Count notes how many agents match; a store need not count more than one above MaxCounted.
func (p *AgentPage) Count(n int) {
	p.Total, p.Truncated = min(n, MaxCounted), n > MaxCounted
}

// MessageQuery selects messages of one agent in order of Seq.
type MessageQuery struct {
	AfterSeq int64
	AfterRev int64 // only messages changed since that revision
	Limit    int   // at least 1
	// HistoryOnly leaves out what Message.InHistory leaves out.
	HistoryOnly bool
}

// Store keeps agents and their messages. memorytest.Run is its full contract; methods are safe for concurrent use.
// What a method acknowledges is on disk, except in drivers that say otherwise. Every method fails with fault.Unavailable
// when the store is full, closed or failing, and with the context's cause when ctx ends first (a write may then still happen).
type Store interface {
	// Create stores a new agent with its first change (whose Agent must be nil); one that is filed from elsewhere may have ended already. It fails with *NameTakenError when a
	// live agent of the project has the name or, among its Settings.Call.Keys, one of the new agent's, with fault.Quota when limit > 0 and that many of its agents are live. If a stored agent
	// has the same project and JoinKey (not empty), that agent is returned with created=false and nothing is written.
	Create(ctx context.Context, a Agent, limit int, c Change) (stored Agent, created bool, err error)
	// ByKey gives the id of the agent of which Settings.Call.Keys or Shared hold the key: a live one, of several the one made last, else
	// the ended one made last. fault.NotFound if the project has none.
	ByKey(ctx context.Context, project, key string) (id string, err error)
	// LastNamed gives the id of the agent of that name which ended last; fault.NotFound if the project has none. name is not empty.
	LastNamed(ctx context.Context, project, name string) (id string, err error)
	// Update runs decide on the agent and writes its change. Calls for one agent happen one after the other; those of many
	// agents share a commit, and one that fails does not fail its neighbours. It fails with fault.NotFound if the project has no such agent.
	Update(ctx context.Context, project, id string, decide Decide) error
	// Head gives the agent's head; fault.NotFound if the project has no such agent.
	Head(ctx context.Context, project, id string) (Head, error)
	// Recent gives the head and the newest n messages, oldest first, as of one moment; with historyOnly those that Message.InHistory shows.
	Recent(ctx context.Context, project, id string, n int, historyOnly bool) (Head, []Message, error)
	// Messages pages through the ledger; fault.NotFound if the project has no such agent.
	Messages(ctx context.Context, project, id string, q MessageQuery) ([]Message, error)
	// Agents lists a project's agents.
	Agents(ctx context.Context, q AgentQuery) (AgentPage, error)
	// Live calls each for every live agent of every project, in no order; each must not call the store.
	Live(ctx context.Context, each func(Head) error) error
	// Count gives how many agents have each status.
	Count(ctx context.Context) ([Statuses]int, error)
	// Sweep erases at most limit agents that ended before the time, with all that belongs to them, and gives how many it erased. It does not
	// make writers wait longer than for a few ms at a time. Agents with deliveries still pending stay.
	Sweep(ctx context.Context, beforeMS int64, limit int) (int, error)
	// Erase takes an agent away, live or ended, with all that belongs to it: ledger, keys, events and deliveries, those still pending too. Once it returns
	// nothing of it is found or sent any more, and its id, name and keys are free. fault.NotFound if the project has no such agent.
	Erase(ctx context.Context, project, id string) error
	// Ping writes something and reads it back.
	Ping(ctx context.Context) error
	// Close flushes what was acknowledged and gives the data back.
	Close() error
}

// EarlyStore is a Store that can let a caller go on while what he wrote is on its way to the disk.
type EarlyStore interface {
	Store
	// UpdateEarly is Update, except that it may return as soon as the decision stands in a transaction that only has to be committed; it tells so by
	// early. kept is then called once, with what Update would have given, by another goroutine; it may take its time, but for a Close that waits for it.
	// Until then the change is not acknowledged: whoever gives it away before kept(nil) breaks the Store's word. decide does not run again. Reads of
	// the agent that begin meanwhile wait for the outcome. Without early, all is as after Update, and kept is not called.
	UpdateEarly(ctx context.Context, project, id string, decide Decide, kept func(error)) (early bool, err error)
}

// NameTakenError is the refusal of a second live agent of one name or key (fault.Conflict).
type NameTakenError struct {
	AgentID string // the agent that has it
	Err     error  // the coded error
}

// Error gives the text.
func (e *NameTakenError) Error() string { return e.Err.Error() }

// Unwrap gives the coded error.
func (e *NameTakenError) Unwrap() error { return e.Err }
