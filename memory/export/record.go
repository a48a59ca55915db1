// Package export takes what a store holds out of it and puts it into another: as records, in one order that does not depend on the driver, and as lines of
// JSON with a checksum behind them. What one store gives, put into an empty one of any other driver, is given again byte for byte.
//
// What is left out belongs to one process or one database and not to the data: claims of deliveries (they are due again at once), replays that are being made,
// the names of replays, leases and caches.
package export

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// Scope says what is wanted of a store. The zero value is everything.
type Scope struct {
	Project string `json:"project,omitempty"` // "" = all
	Agent   string `json:"agent,omitempty"`   // "" = all of the project
	// Bad, if set, is told of each thing that cannot be read, which is then passed over; without it, the first ends the export.
	Bad func(where string, err error) `json:"-"`
}

// Fail passes an error on, or over.
func (s Scope) Fail(where string, err error) error {
	if s.Bad == nil || err == nil {
		return err
	}
	s.Bad(where, err)
	return nil
}

// Projects gives the projects of the agents that are in a scope of one project: its own, and the one whose agent keeps the items of no other.
func (s Scope) Projects() [2]string { return [2]string{s.Project, memory.OwnProject(s.Project)} }

// Source is a store that gives what it holds.
type Source interface {
	// Export calls each with a Start and then with every record of the scope, all as of one moment, in this order: keys by name (in the whole scope only), endpoints as they were made,
	// agents as they were made and behind each its messages by Seq, items as they came, working memories by agent and key, conversations by project and id, events as they were made,
	// deliveries by id. A record is good until each returns; an error of each ends the export and is given as it is.
	Export(ctx context.Context, s Scope, each func(Record) error) error
}

// Target is a store that takes records.
type Target interface {
	// Import stores records, all or none, and puts mark, which tells how far an import is, in the place of the one before, had; nil is none. It fails with
	// fault.Conflict where the store's mark is another than had, since another import is under way, and where the store holds something in the place of a record
	// already. Endpoints that are there stay as they are.
	Import(ctx context.Context, batch []Record, had, mark []byte) error
	// Clashes tells each of those records that Import would refuse now for what the store holds in their place, and why. It changes nothing.
	Clashes(ctx context.Context, batch []Record, each func(r Record, why string)) error
	// Mark gives the mark of an import that was not finished, nil if there is none.
	Mark(ctx context.Context) ([]byte, error)
	// Reserve keeps n ids of deliveries free and gives the one before the first of them: 0 in a store that never had any.
	Reserve(ctx context.Context, n int64) (int64, error)
}

// Start stands in front of the records.
type Start struct {
	LastDelivery int64 // the highest id of a delivery in the scope, 0 if there is none
}

// Record is one thing that a store holds: exactly one of its fields is set.
type Record struct {
	Start        *Start // what Source gives first; no Target sees it
	Key          *Key
	Endpoint     *webhook.Endpoint
	Agent        *Agent
	Message      *Message
	Item         *Item
	Working      *Working
	Conversation *Conversation
	Event        *Event
	Delivery     *Delivery
}

// Key is one of the store's own keys; a secret.
type Key struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Agent is an agent with what its head holds beside it.
type Agent struct {
	memory.Agent
	HeadRev, NextSeq, LastTurn int64
}

// Message is a message with its agent.
type Message struct {
	Project, AgentID string
	memory.Message
	// Unlike tells that the store notes otherwise than the message itself whether history shows it. Only Verify looks.
	Unlike bool
}

// Item is the place of a message that is found as an item, and how it is found.
type Item struct {
	Project string `json:"project"` // of the agent
	AgentID string `json:"agent"`
	Seq     int64  `json:"seq"`
	Row     memory.ItemRow
}

// Working is an entry of an agent's working memory, whether its end has come or not.
type Working struct {
	Project   string `json:"project"`
	AgentID   string `json:"agent"`
	Key       string `json:"key"`
	Value     Text   `json:"value"`
	UpdatedMS int64  `json:"updated_ms"`
	ExpiresMS int64  `json:"expires_ms"`
	// Noted is the size as the store notes it, 0 where it notes none. Only Verify looks.
	Noted int64 `json:"-"`
}

// Size is how much the entry counts against the agent's limit, in bytes.
func (w *Working) Size() int64 { return int64(len(w.Key) + len(w.Value)) }

// Conversation is a saved conversation.
type Conversation struct {
	Project string `json:"project"`
	ID      string `json:"id"`
	Body    Text   `json:"body"`
}

// Event is an event of the outbox.
type Event struct {
	ID        string `json:"id"`
	Project   string `json:"project"`
	AgentID   string `json:"agent,omitempty"` // "" for one that tells of no agent
	Type      int    `json:"type"`
	CreatedMS int64  `json:"created_ms"`
	Body      Text   `json:"body"`
}

// Delivery is a delivery with its attempts. A claim is not part of it: what was claimed is due again.
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
	FirstMS  int64                 `json:"first_ms,omitempty"` // when its first try was due, where that is not when it was made
	Urgent   bool                  `json:"urgent,omitempty"`
	ReplayOf int64                 `json:"replay_of,omitempty"`
	Attempts []webhook.Attempt     `json:"-"`
}

// Free gives the delivery as it is when whoever has it claimed gives it back: due when its event happened, or earlier, and the try that is under way, of which
// nothing is stored, is not counted.
func (d *Delivery) Free(claimed bool, eventMS int64) {
	if claimed && d.State == webhook.Pending {
		d.DueMS, d.Attempt = min(d.DueMS, eventMS), max(d.Attempt-1, 0)
	}
}

// Text is bytes that are almost always text: a string in JSON, and in base64 behind a mark where they are no valid UTF-8.
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
