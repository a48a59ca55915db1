// Package export moves the contents of a store: out of it as records, in one order that does not
// depend on the driver, and as lines of JSON with a checksum at the end. An export that is imported
// into an empty store of any driver comes out of that store again byte for byte.
//
// An export leaves out what belongs to one process or one database: claims of deliveries (they are
// due again at once), replays under way, the names of replays, leases and caches.
package export

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// Scope selects a part of a store. The zero value is everything.
type Scope struct {
	Project string `json:"project,omitempty"` // "" = all
	Agent   string `json:"agent,omitempty"`   // "" = all of the project
	// Bad, if set, is called for each thing that cannot be read, which is then skipped. Without it,
	// the first such thing ends the export.
	Bad func(where string, err error) `json:"-"`
}

// Fail calls Bad and returns nil, or returns err if there is no Bad.
func (s Scope) Fail(where string, err error) error {
	if s.Bad == nil || err == nil {
		return err
	}
	s.Bad(where, err)
	return nil
}

// Projects returns the projects of the agents in a scope of one project: its own, and the one whose
// agent keeps the items that belong to no other agent.
func (s Scope) Projects() [2]string { return [2]string{s.Project, memories.OwnProject(s.Project)} }

// Source is a store that can be exported.
type Source interface {
	// Export calls each with a Start and then with every record of the scope, all as of one moment,
	// in this order: keys by name (only if the scope is everything), endpoints in the order of
	// their creation, agents in the order of their creation and behind each its messages by Seq,
	// items in the order of their arrival, working memories by agent and key, conversations by
	// project and ID, values by project, space, user and ID, events in the order of their creation,
	// deliveries by ID. A record is valid until each returns. An error of each ends the export and
	// is returned as it is.
	Export(ctx context.Context, s Scope, each func(Record) error) error
}

// Target is a store that can be imported into.
type Target interface {
	// Import stores records, all or none, and replaces the mark had, which says how far the import
	// is, by mark; nil means no mark. It fails with fault.Conflict if the store has another mark
	// than had, because another import is under way, and if the store already holds something in
	// the place of a record. Endpoints that exist stay as they are.
	Import(ctx context.Context, batch []Record, had, mark []byte) error
	// Clashes calls each for those records that Import would refuse now because of what the store
	// holds in their place, with the reason. It changes nothing.
	Clashes(ctx context.Context, batch []Record, each func(r Record, why string)) error
	// Mark returns the mark of an unfinished import, nil if there is none.
	Mark(ctx context.Context) ([]byte, error)
	// Reserve sets n IDs of deliveries aside and returns the one before the first of them: 0 in a
	// store that never had a delivery.
	Reserve(ctx context.Context, n int64) (int64, error)
}

// Start comes before the records.
type Start struct {
	LastDelivery int64 // the highest ID of a delivery in the scope, 0 if there is none
}

// Record is one thing that a store holds. Exactly one of its fields is set.
type Record struct {
	Start        *Start // comes first out of a Source; no Target sees it
	Key          *Key
	Endpoint     *webhook.Endpoint
	Agent        *Agent
	Message      *Message
	Item         *Item
	Working      *Working
	Conversation *Conversation
	Value        *Value
	Event        *Event
	Delivery     *Delivery
}

// Key is one of the store's own keys, a secret.
type Key struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Agent is an agent with the fields of its head.
type Agent struct {
	memory.Agent
	HeadRev, NextSeq, LastTurn int64
	Tally                      *memory.Tally
}

// Message is a message with its agent.
type Message struct {
	Project, AgentID string
	memory.Message
	// Unlike is set if the store notes whether history shows the message, and the message itself
	// says otherwise. Only Verify reads it.
	Unlike bool
}

// Item is the place of a message that can be found as an item, and by what it is found.
type Item struct {
	Project string `json:"project"` // of the agent
	AgentID string `json:"agent"`
	Seq     int64  `json:"seq"`
	Row     memories.Row
}

// Working is an entry of an agent's working memory, expired or not.
type Working struct {
	Project   string `json:"project"`
	AgentID   string `json:"agent"`
	Key       string `json:"key"`
	Value     Text   `json:"value"`
	UpdatedMS int64  `json:"updated_ms"`
	ExpiresMS int64  `json:"expires_ms"`
	Pinned    bool   `json:"pinned,omitempty"`
	// Noted is the size that the store notes, 0 if it notes none. Only Verify reads it.
	Noted int64 `json:"-"`
}

// Size returns how much the entry counts against the agent's limit, in bytes.
func (w *Working) Size() int64 { return int64(len(w.Key) + len(w.Value)) }

// Conversation is a saved conversation, or an entry of a namespace.
type Conversation struct {
	Project   string `json:"project"`
	ID        string `json:"id"`
	Body      Text   `json:"body"`
	Namespace string `json:"namespace,omitempty"`
	UpdatedMS int64  `json:"updated_ms,omitempty"` // 0 = not known
	ExpiresMS int64  `json:"expires_ms,omitempty"` // 0 = never
	Pinned    bool   `json:"pinned,omitempty"`     // of an entry of a namespace
}

// Value is a record of package record that is not deleted. Deletions are not exported: readers by
// revision read a whole space again after an import.
type Value struct {
	Project   string `json:"project"`
	Name      string `json:"name"` // of the space
	User      Text   `json:"user,omitempty"`
	ID        Text   `json:"id"`
	Rev       int64  `json:"rev"`
	UpdatedMS int64  `json:"updated_ms"`
	Body      Text   `json:"body"`
	SpaceRev  int64  `json:"space_rev"` // of the space at the time of the export
	// Noted is the size that the store notes, 0 if it notes none. Only Verify reads it.
	Noted int64 `json:"-"`
}

// Space returns where the record is.
func (v *Value) Space() record.Space {
	return record.Space{Project: v.Project, Name: v.Name, User: string(v.User)}
}

// Size returns how much the record counts, in bytes.
func (v *Value) Size() int64 { return int64(len(v.ID) + len(v.Body)) }

// check returns an error if no store holds such a record.
func (v *Value) check() error {
	if v.Rev < 1 || v.Rev > v.SpaceRev {
		return fault.At(fault.Invalid, "rev", "%d is not from 1 to space_rev, %d", v.Rev, v.SpaceRev)
	}
	return record.Check(v.Space(), []record.Change{{ID: string(v.ID), Body: v.Body}})
}

// Place returns the state of a space that takes an imported record. In an empty store the space
// keeps the revision that it was exported with. Readers of a space that was there already notice
// the import and read all of it again.
func (v *Value) Place(before record.State) record.State {
	after := before
	// Otherwise the same import has stored the records before this one.
	if before.Count == 0 || before.Rev != v.SpaceRev || before.CompactedRev != v.SpaceRev {
		after.Rev = max(before.Rev+1, v.SpaceRev)
	}
	after.CompactedRev = after.Rev
	after.Count++
	after.Bytes += v.Size()
	return after
}

// ErrTaken returns the error of something that cannot be imported because the store holds something
// in its place. err is the store's own, or nil.
func ErrTaken(err error, what string) error {
	return fault.Wrap(fault.Conflict, err, what+" cannot be imported: the store holds something in its place already")
}

// ErrThere returns the error of a record that a store holds already.
func ErrThere(v *Value) error {
	return ErrTaken(nil, fmt.Sprintf("record %s of %s of project %s", v.ID, v.Name, v.Project))
}

// Event is an event of the outbox.
type Event struct {
	ID        string `json:"id"`
	Project   string `json:"project"`
	AgentID   string `json:"agent,omitempty"` // "" for an event of no agent
	Type      int    `json:"type"`
	CreatedMS int64  `json:"created_ms"`
	Body      Text   `json:"body"`
}

// Delivery is a delivery with its attempts, without its claim: a claimed delivery is due again.
type Delivery struct {
	ID       int64                 `json:"id"`
	Event    string                `json:"event"`
	Project  string                `json:"project"`
	Endpoint string                `json:"endpoint"`
	Gone     bool                  `json:"endpoint_gone,omitempty"` // the endpoint was deleted
	State    webhook.DeliveryState `json:"state"`
	Attempt  int                   `json:"attempt,omitempty"`
	DueMS    int64                 `json:"due_ms"`
	Fence    int64                 `json:"fence,omitempty"`
	Reason   Text                  `json:"reason,omitempty"`
	Created  int64                 `json:"created_ms"`
	DoneMS   int64                 `json:"done_ms,omitempty"`
	// When its first try was due, if not when it was made.
	FirstMS  int64             `json:"first_ms,omitempty"`
	Urgent   bool              `json:"urgent,omitempty"`
	ReplayOf int64             `json:"replay_of,omitempty"`
	Attempts []webhook.Attempt `json:"-"`
}

// Free sets a claimed delivery to the state in which its worker would release it: due when its
// event happened or earlier, and without the attempt under way, of which nothing is stored.
func (d *Delivery) Free(claimed bool, eventMS int64) {
	if claimed && d.State == webhook.Pending {
		d.DueMS, d.Attempt = min(d.DueMS, eventMS), max(d.Attempt-1, 0)
	}
}

// Text is bytes that are almost always text. In JSON it is a string, or base64 behind a mark if the
// bytes are not valid UTF-8.
type Text []byte

const odd = "\x01b64:"

// MarshalJSON writes a string.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.Valid(t) && (len(t) == 0 || t[0] != odd[0]) {
		return plainJSON(string(t))
	}
	b, err := json.Marshal([]byte(t))
	if err != nil {
		return nil, err
	}
	return append([]byte(`"\u0001b64:`), b[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if len(s) < len(odd) || s[:len(odd)] != odd {
		*t = Text(s)
		return nil
	}
	return json.Unmarshal([]byte(`"`+s[len(odd):]+`"`), (*[]byte)(t))
}
