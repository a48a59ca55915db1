package memory

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Head is an agent with what is needed to write its next message. It follows from the agent and its
// last message; see NewHead.
type Head struct {
	Agent   *Agent // shared: a change begins with a copy
	NextSeq int64  // Seq of the next message, from 1
	// Rev grows by one with every change of the agent or of one of its messages. Everything that
	// one Change writes carries the same Rev. Readers compare it to learn whether anything has
	// changed, and it is the ID of live-tail events.
	Rev      int64
	LastTurn int64   // highest turn_id so far, -1 before the first message
	Last     Message // the last message; zero before the first
	// Tally counts the agent's answers. It is immutable; nil is a tally of nothing.
	Tally *Tally
}

// NewHead returns the head of an agent. last is its message with the highest Seq, nil if it has
// none; rev is the highest revision of its messages.
func NewHead(a Agent, last *Message, rev int64) Head {
	h := Head{Agent: &a, NextSeq: 1, Rev: max(a.Rev, rev), LastTurn: -1}
	if last != nil {
		h.advance(*last)
	}
	return h
}

// Apply returns the head after a Change, whose messages carry their Seq and Rev.
func (h Head) Apply(c Change) Head {
	if c.Agent != nil {
		h.Agent = c.Agent
		h.Rev = max(h.Rev, c.Agent.Rev)
	}
	if c.Tally != nil {
		h.Tally = c.Tally
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
	Agent *Agent // the agent's new value; nil = unchanged
	// New messages; the decision sets Seq, Rev and TurnID. A Seq below Head.NextSeq was kept free
	// before.
	Append  []Message
	Replace []Message // new values of stored messages, by Seq; a message's ID never changes
	Events  []Event   // outbox: one delivery for each of the project's endpoints that wants the type
	// Rewritten holds stored events of the agent, by ID, with new bodies. The decision has read
	// them from the store. What receivers have answered to them is deleted, since it may repeat
	// them.
	Rewritten []Event
	// Copies is true if Append only repeats what is already in the memory. It may then exceed the
	// limit of messages by MaxSnapshot.
	Copies bool
	// Account is true if Append is from a platform's own account of the call, which may come after
	// its end.
	Account bool
	// Erases is true if the change takes something away that is kept nowhere else, besides messages
	// that become Removed. Such a change of an agent under hold fails with fault.Held.
	Erases bool
	// Tally is the agent's tally after the change; nil = unchanged. The engine sets it.
	Tally *Tally
}

// Empty reports whether there is nothing to write.
func (c Change) Empty() bool {
	return c.Agent == nil && len(c.Append) == 0 && len(c.Replace) == 0 && len(c.Events) == 0 && len(c.Rewritten) == 0
}

// Removes returns the messages whose words the change takes away.
func (c *Change) Removes() (seqs []int64) {
	for i := range c.Replace {
		if c.Replace[i].State == Removed {
			seqs = append(seqs, c.Replace[i].Seq)
		}
	}
	return seqs
}

// Event is something that happened, ready to be sent. The body is built once, and changes only if
// words in it are erased.
type Event struct {
	ID        string // noticeId; unique
	Type      int    // see package internal/event
	CreatedMS int64
	Body      []byte
}

// AgentView is an agent as a decision sees it: its head and its messages, with every change that
// was decided before. Its methods fail when the store does; a decision returns such an error as it
// is.
type AgentView interface {
	Head() Head
	// Last returns the newest n messages of every role and state, oldest first.
	Last(n int) ([]Message, error)
	// ByIDs returns the stored messages that carry one of the client IDs, by ID.
	ByIDs(ids []string) (map[string]Message, error)
	// Turn returns the messages of one turn in order of Seq. A turn without messages is not an
	// error.
	Turn(turnID int64) ([]Message, error)
	// Seq returns one message, or fault.NotFound.
	Seq(seq int64) (Message, error)
}

// Decision looks at an agent and returns what to write. It must not block. It may run more than
// once for one call, since another process may change the agent meanwhile, so it must set
// what it captures on each run. An error writes nothing and reaches the caller as it is.
type Decision func(view AgentView) (Change, error)

// AgentQuery selects agents of one project in the order of their starts, newest first.
type AgentQuery struct {
	Project     string
	Channel     string            // "" = any
	Name        string            // "" = any
	Users       []string          // any of these user IDs in the agent's scope; empty = any
	Labels      map[string]string // all of these among the agent's labels
	Checks      []string          // the names of checks that have found something in it
	Scores      map[string]string // by name, all with these values; "" is any value. See Score.Parse
	Platform    string            // "" = any; see Agent.Platform
	Interrupted bool              // only agents of which an answer was interrupted
	Failed      bool              // only agents that failed, or of which an answer did
	Ghosts      bool              // only agents with a ghost
	// What tallies say; see Picks. An agent whose tally is not whole has neither a share nor a
	// tool without a result.
	UnheardMin   float64 // only agents of which at least this share of the words was not heard; 0 = any
	FirstWordMS  int64   // only agents whose slowest first token took at least so long; 0 = any
	ToolOpen     bool    // only agents with a call of a tool that has no result
	Order        AgentOrder
	FromMS, ToMS int64      // start time, both inclusive; 0 = open
	Statuses     []Status   // empty = any
	Limit        int        // at least 1
	After        AgentPlace // the page starts after it; zero = at the first agent
	OldestFirst  bool
	NoTotal      bool // leaves Total and Truncated of the page unset
	// Known, if not nil, sets the head of an agent in this version without the last message, if the
	// caller has it. A store may use it instead of reading the agent. The engine sets it.
	Known func(Ref, Version, *Head) bool
}

// AgentPlace is an agent's position in a list, which is ordered by key, which is 0 if the order is
// ByStart, then by start and then by number in the store. The zero value means no position.
type AgentPlace struct{ StartMS, No, Key int64 }

// String returns the place as a cursor, "" for none.
func (p AgentPlace) String() string {
	if p == (AgentPlace{}) {
		return ""
	}
	s := strconv.FormatInt(p.StartMS, 10) + "-" + strconv.FormatInt(p.No, 10)
	if p.Key != 0 {
		s += "-" + strconv.FormatInt(p.Key, 10)
	}
	return s
}

// ParsePlace reads what AgentPlace.String returned. It fails with fault.Invalid.
func ParsePlace(cursor string) (p AgentPlace, err error) {
	if cursor == "" {
		return p, nil
	}
	start, no, _ := strings.Cut(cursor, "-")
	no, key, keyed := strings.Cut(no, "-")
	p.StartMS, err = strconv.ParseInt(start, 10, 64)
	if err == nil {
		p.No, err = strconv.ParseInt(no, 10, 64)
	}
	if err == nil && keyed {
		p.Key, err = strconv.ParseInt(key, 10, 64)
	}
	if err != nil || p.No <= 0 {
		return p, fault.At(fault.Invalid, "cursor", "is not a cursor of this list")
	}
	return p, nil
}

// Compare orders places as a list does: it is negative if p comes before o.
func (p AgentPlace) Compare(o AgentPlace, oldestFirst bool) int {
	order := cmp.Or(cmp.Compare(p.Key, o.Key), cmp.Compare(p.StartMS, o.StartMS), cmp.Compare(p.No, o.No))
	if !oldestFirst {
		order = -order
	}
	return order
}

// AnyStatus returns the statuses that an agent may have, sorted, each once.
func (q *AgentQuery) AnyStatus() []Status {
	list := slices.Clone(q.Statuses)
	if len(list) == 0 {
		for st := range Statuses {
			list = append(list, Status(st))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// MaxCounted is how many agents a list counts at most. A project may have millions, and a reader of
// pages needs to know only that there are many.
const MaxCounted = 10_000

// AgentPage is one page of a list.
type AgentPage struct {
	Heads     []Head       // without their last messages
	Places    []AgentPlace // of each of them
	Next      AgentPlace   // the last of Places; zero on the last page
	Total     int          // all that match, this page or not; at most MaxCounted
	Truncated bool         // more than Total match
	// Compared is how many agents an order other than ByStart has compared, the newest that match;
	// ComparedAll whether these are all, and ComparedFromMS the start of the oldest of them. With
	// such an order, or a filter by tallies, Total is of those that were read, and only set on the
	// first page.
	Compared       int
	ComparedAll    bool
	ComparedFromMS int64
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
	// Bytes, if not 0, ends a page once its messages have that many (Message.Bytes): then fewer
	// than Limit are returned although more follow. One is always returned if there is one.
	Bytes int64
	// HistoryOnly leaves out what Message.InHistory leaves out.
	HistoryOnly bool
	// IDs, if not empty, selects messages that carry one of these client IDs.
	IDs []string
	// Turn, if not nil, selects the messages of one turn.
	Turn *int64
	// Agent is the agent as it was last read. The engine sets it, for an archive below it.
	Agent *Agent
}

// EachPage reads the messages that a query selects, in order of Seq, and calls fn with a page at a
// time. An error of either ends it.
func EachPage(q MessageQuery, read func(MessageQuery) ([]Message, error), fn func([]Message) error) error {
	for {
		page, err := read(q)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := fn(page); err != nil {
			return err
		}
		if q.Bytes == 0 && len(page) < q.Limit {
			return nil
		}
		q.AfterSeq = page[len(page)-1].Seq
	}
}

// Ledger keeps agents and their messages for package agents. Package engine implements it over
// a Store. Package storetest is its contract as tests. Its methods are safe for concurrent use.
//
// What a method acknowledges is on disk, except over stores that are documented not to keep
// anything. Every method fails with fault.Unavailable when the store is full, closed or failing,
// and with the context's cause when ctx ends first. A write may then still happen.
type Ledger interface {
	// Create stores a new agent with its first change, whose Agent must be nil. The agent may have
	// ended already.
	//
	// If an agent of the project has the same JoinKey (not empty), Create writes nothing and
	// returns that agent with created=false. It fails with *NameTakenError if a live agent of the
	// project has the name or, among its Settings.Call.Keys, one of the new agent's; with
	// fault.Quota if limit > 0 and the project has that many live agents, or if it has MaxSessions
	// live agents with the agent's memory model; with fault.Conflict if the ID is in use.
	Create(ctx context.Context, a Agent, limit int, c Change) (stored Agent, created bool, err error)
	// Update runs a decision on the agent and stores its change. Decisions about one agent run one
	// after the other. Changes of many agents share a commit, and one that fails does not fail its
	// neighbours. Update fails with fault.NotFound if the project has no such agent.
	Update(ctx context.Context, project, id string, decide Decision) error
	// UpdateEarly is Update, except that it may return with early=true as soon as the change is
	// decided and certain to be next on its way to the disk. Another goroutine then calls done once
	// with what Update would have returned. Until done(nil) the change is not acknowledged and must
	// not be shown. Reads of the agent that begin meanwhile wait for the outcome.
	// Without early all is as after Update, and done is not called.
	UpdateEarly(ctx context.Context, project, id string, decide Decision, done func(error)) (early bool, err error)
	// Head returns the agent's head, or fault.NotFound. If the agent's messages are in an archive
	// that cannot be read, the head has no last message.
	Head(ctx context.Context, project, id string) (Head, error)
	// Recent returns the head and the newest n messages, oldest first, as of one moment; with
	// historyOnly only those that Message.InHistory shows. It fails with fault.NotFound if the
	// project has no such agent.
	Recent(ctx context.Context, project, id string, n int, historyOnly bool) (Head, []Message, error)
	// Messages pages through the agent's messages. It fails with fault.NotFound if the project has
	// no such agent.
	Messages(ctx context.Context, project, id string, q MessageQuery) ([]Message, error)
	// ByKey returns the ID of the agent that has the key among its Settings.Call.Keys or Shared: a
	// live one, the newest of several, or else the newest ended one. It fails with fault.NotFound
	// if there is none.
	ByKey(ctx context.Context, project, key string) (id string, err error)
	// LastNamed returns the ID of the agent of that name that ended last, or fault.NotFound. The
	// name is not empty.
	LastNamed(ctx context.Context, project, name string) (id string, err error)
	// Agents lists a project's agents.
	Agents(ctx context.Context, q AgentQuery) (AgentPage, error)
	// Tallies is as in Store.
	Tallies(ctx context.Context, project string, fromMS, toMS int64, each func(startMS int64, tally []byte) error) error
	// Live calls each for every live agent of every project, in no order, with its head without the
	// last message. The callback must not
	// call the ledger; its error ends the call and is returned as it is.
	Live(ctx context.Context, each func(Head) error) error
	// Count returns how many agents have each status.
	Count(ctx context.Context) ([Statuses]int, error)
	// Sweep erases at most limit agents that ended before the time, with everything that belongs to
	// them, and returns how many. Agents with pending deliveries stay. Writers never wait for it
	// longer than a few milliseconds at a time.
	Sweep(ctx context.Context, beforeMS int64, limit int) (int, error)
	// Erase erases an agent, live or ended, with everything that belongs to it: messages, keys,
	// events and deliveries, pending ones too. Then its ID, name and keys are free. It fails with
	// fault.NotFound if there is no such agent.
	Erase(ctx context.Context, project, id string) error
	// Ping writes something and reads it back.
	Ping(ctx context.Context) error
	// Close waits for what is under way and releases the data.
	Close() error
}

// NameTakenError is the refusal of a second live agent of one name or key (fault.Conflict).
type NameTakenError struct {
	AgentID string // the agent that has it
	Err     error  // the coded error
}

// Error returns the text.
func (e *NameTakenError) Error() string { return e.Err.Error() }

// Unwrap returns the coded error.
func (e *NameTakenError) Unwrap() error { return e.Err }

// Usage is what a project has stored.
type Usage struct {
	Project  string
	Agents   int64 // live ones
	Messages int64 // of agents live and ended
	// Bytes is how much was written for these messages, as they are encoded, and what the project's
	// records hold. A message that was changed counts again.
	Bytes int64
}
