package memory

import (
	"context"
	"errors"
)

// ErrStale is a store's answer to a write that was decided on a version that the agent no longer
// has, or on an agent that is gone. Nothing of the write is stored. The engine then loads the agent
// and decides again.
var ErrStale = errors.New("the agent has changed since the write was decided")

// ErrUnchanged is a store's answer to Load if the agent still has the version that the caller
// knows.
var ErrUnchanged = errors.New("the agent has the version that the caller knows")

// Ref names an agent. Two projects may have an agent of the same ID, if clients choose the IDs.
type Ref struct{ Project, ID string }

// Version is what an agent is at a moment. The zero value means no version.
type Version struct {
	// No is the store's own number of the agent, at least 1. No other agent ever gets it, not even
	// a later one of the same ID.
	No int64
	// Rev is the Rev of the agent's Head. Every change of the agent or of a message raises it.
	Rev int64
	// Ver is the store's own count of the agent's changes, for stores that others change in ways
	// that Rev does not show, such as an import. It is 1 for a new agent and grows by one with each
	// Write. 0 if the store does not count; such a store compares Rev.
	Ver int64
}

// Stored is an agent as of one moment.
type Stored struct {
	No   int64
	Ver  int64 // see Version
	Head Head
	Tail []Message // the newest messages, oldest first
}

// Write is one change of one agent, decided and encoded. A store writes it and decides nothing.
type Write struct {
	Ref
	// Version is what the change was decided on. It is zero for an agent that is to be created.
	Version
	// Before is the status of the agent before the change.
	Before Status
	// Change holds what to store. Every message of Append has a Seq of at least 1, and no Seq or ID
	// occurs twice in it.
	Change Change
	// Head is the agent's head after the change. For an agent that is to be created, Head.Agent is
	// that agent. A store does not change it.
	Head *Head
	// Bodies are the encoded messages: those of Change.Append, then those of Change.Replace.
	Bodies []string
	// Retagged is set if Head.Tags may differ from those before the change.
	Retagged bool
	// Lost holds the users and labels among the tags that the change takes away.
	Lost []Tag
	// Private is the encoding of the agent's settings and properties (package codec), which the
	// store seals. It is nil if the change leaves them as they are.
	Private []byte
	// Epoch is what the engine's Epoch option returned when the change was decided; see
	// Store.Apply.
	Epoch int64
}

// Bytes returns the length of the encoded messages.
func (w *Write) Bytes() (n int64) {
	for _, b := range w.Bodies {
		n += int64(len(b))
	}
	return n
}

// Store keeps agents and their messages. It compares and sets; it decides nothing, caches nothing
// that it would have to keep up to date, and never retries a write on another version. Its methods
// are safe for concurrent use, except that the engine has at most one Apply under way for an agent.
//
// Every method fails with fault.Unavailable when the store is full, closed or failing, and with the
// context's cause when ctx ends first.
type Store interface {
	// Load returns an agent's head and its newest n messages of every role and state, all as of one
	// moment. It fails with fault.NotFound if the project has no such agent. If the agent's version
	// is known, Load may skip reading it and returns ErrUnchanged. A store that no other process
	// writes to is always called with the zero Version.
	Load(ctx context.Context, project, id string, n int, known Version) (Stored, error)
	// Page returns messages of the agent with that number, in order of Seq; none if there is no
	// such agent.
	Page(ctx context.Context, no int64, q MessageQuery) ([]Message, error)
	// Create stores a new agent, w.Head.Agent, with w.Change (whose Agent is nil), and returns its
	// number.
	//
	// If an agent of the project has the same JoinKey (not empty), Create writes nothing and
	// returns that agent's ID as existing. It fails with *NameTakenError if a live agent of the
	// project has the name or, among its Settings.Call.Keys, one of the new agent's; with
	// fault.Quota if limit > 0 and the project has that many live agents; with fault.Conflict if
	// the ID is in use. A new agent that has ended already takes no name, key or place.
	Create(ctx context.Context, w Write, limit int) (no int64, existing string, err error)
	// Apply stores writes in one transaction, in their order, and returns an error for each, nil
	// for those that are on disk. Each write is stored whole or not at all, and one that fails
	// leaves its neighbours as they are.
	//
	// A write fails with ErrStale if the agent does not have w.Version, or is gone. A batch may
	// hold several writes of one agent, each decided on what the one before it makes; if one of
	// them fails, those behind it fail with ErrStale. A write fails with fault.Conflict if a Seq,
	// client ID or event ID is in use, and with fault.Internal if it replaces a message that is not
	// there under its ID. It fails with fault.Held if it erases something that is under hold (see
	// Change.Removes and Change.Erases), or takes away a label or user that is.
	//
	// Each of w.Change.Events is stored with one delivery for each endpoint of the project that
	// wants its type, in the same transaction; an event that no endpoint wants is not stored. If
	// endpoints have changed since w.Epoch in a way that this process did not know of, every write
	// of the batch fails with ErrStale.
	//
	// The second error is that of the whole batch. Then the outcome is unknown to the caller, who
	// answers all with it.
	Apply(ctx context.Context, batch []Write) ([]error, error)
	// Find returns the ID of an agent by something else than its ID, or fault.NotFound.
	Find(ctx context.Context, project string, by Lookup) (id string, err error)
	// List lists a project's agents.
	List(ctx context.Context, q AgentQuery) (AgentPage, error)
	// Tallies calls each with the start and the encoded tally of every agent of a project that
	// started in the time, both ends included, in no order. The tally is valid until each returns.
	// An error of each ends the call and is returned as it is.
	Tallies(ctx context.Context, project string, fromMS, toMS int64, each func(startMS int64, tally []byte) error) error
	// Count returns how many agents have each status.
	Count(ctx context.Context) ([Statuses]int, error)
	// Scan calls each for every live agent of every project, in no order, with its head without the
	// last message. The callback's error ends the call and is returned as it is.
	Scan(ctx context.Context, each func(Head) error) error
	// Erase erases agents with everything that belongs to them and returns which. Erased agents are
	// gone at once for every method; their rows may follow in slices, so that writers never wait
	// longer than a few milliseconds. What is under hold is refused with fault.Held, or left out
	// where it was not named; see package memory/hold.
	Erase(ctx context.Context, e Erasure) ([]Ref, error)
	// Ping writes something and reads it back.
	Ping(ctx context.Context) error
	// Close releases the data. The engine has no call under way then.
	Close() error
}

// Lookup is how an agent is found. Exactly one field is set.
type Lookup struct {
	// Key is one of the agent's Settings.Call.Keys or Shared. A live agent is found before an ended
	// one, a newer before an older one.
	Key string
	// Ended is the name of an ended agent. The one that ended last is found.
	Ended string
}

// Erasure selects what to erase.
type Erasure struct {
	// Ref, if not zero, erases one agent, live or ended, and its deliveries, pending ones too.
	// fault.NotFound if there is no such agent.
	Ref
	// BeforeMS erases at most Limit agents that ended before that time and have no pending
	// deliveries.
	BeforeMS int64
	Limit    int
}
