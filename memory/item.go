package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Item has the fields of a message that exist only as an item under /v1/memories. It is nil on a
// message that came in another way and was not changed there.
type Item struct {
	// 32 hex digits; "" is the one derived from its place, see ItemRow. Several items may share one
	ID string `json:"id,omitempty"`
	// As it was given, whether there is such an agent or not.
	AgentID string          `json:"agent_id,omitempty"`
	Extra   json.RawMessage `json:"extra,omitempty"` // object; never matched
	// Of the last change of status, Unix ms; 0 = never.
	UpdatedMS int64 `json:"updated_ms,omitempty"`
	IsError   bool  `json:"is_error,omitempty"` // of a tool's result
}

// scopeOr sets the scope of a message that has none to its agent's.
func (m *Message) scopeOr(agents Scope) {
	if agents != (Scope{}) && m.Scope() == (Scope{}) {
		m.Amend(func(r *Rare) { r.Scope = agents })
	}
}

// ItemRow is how an item is found. Drivers keep one for each item, in the order in which the
// messages were appended.
type ItemRow struct {
	// Of its items, which is not that of the ledger where no agent keeps them: see ItemProject.
	Project string
	ID      string
	Scope
	AgentID string
}

// ItemRow returns the row of a message in an agent's ledger; false if it is not an item: without a
// scope, or cleared.
func (m *Message) ItemRow(project, agentID string) (ItemRow, bool) {
	item, scope := m.Item(), m.Scope()
	if item == nil && scope == (Scope{}) || m.State == Removed {
		return ItemRow{}, false
	}
	r := ItemRow{Project: ItemProject(project), Scope: scope, AgentID: agentID}
	if item != nil {
		r.ID, r.AgentID = item.ID, item.AgentID
	}
	if r.ID == "" {
		sum := sha256.Sum256([]byte(project + "\x00" + agentID + "\x00" + strconv.FormatInt(m.Seq, 10)))
		r.ID = hex.EncodeToString(sum[:16])
	}
	return r, true
}

// ownProject precedes a project's name in the name of the project whose one agent keeps the items
// of no other agent. No real project has such a name, so that agent is never found, and no limits,
// endpoints or lists include it.
const ownProject = "~"

// ItemProject returns the project whose items are in the ledgers of a project.
func ItemProject(project string) string { return strings.TrimPrefix(project, ownProject) }

// OwnProject returns the project whose one agent keeps a project's items that are in no other
// agent's ledger.
func OwnProject(project string) string { return ownProject + project }

// ItemQuery selects items of a project by whose they are, newest first.
type ItemQuery struct {
	Scope          // an id that is empty is any
	AgentID string // "" = any
	Before  int64  // StoredItem.No at which the page before ended; 0 = the newest
	Limit   int    // how many rows to read, at least 1
}

// StoredItem is a message with its place.
type StoredItem struct {
	// Grows in the order in which messages were appended, over all of a project's ledgers.
	No      int64
	Project string // of the ledger
	AgentID string // of the ledger
	Message Message
	Row     ItemRow
}

// ItemStore finds messages in all of a project's ledgers by their scope. Every driver of a Store is
// one, and updates it with each Change. memorytest.RunItems is its contract; it fails as Store
// does.
type ItemStore interface {
	// Items returns those of the next Limit items, newest first, that have all the IDs asked for,
	// and the place of the next page, or 0. A page may be empty and still have a next one.
	Items(ctx context.Context, project string, q ItemQuery) (list []StoredItem, next int64, err error)
	// Item returns the item with the ID, the first of several, or fault.NotFound.
	Item(ctx context.Context, project, id string) (StoredItem, error)
}

// ErrNoItem is the refusal of an id that no item has.
func ErrNoItem(id string) error { return fault.New(fault.NotFound, "there is no memory %q", id) }

// tombstone returns what clearing leaves of the message: its place, its ID and its order, without
// content.
func (m *Message) tombstone(rev int64) Message {
	return Message{
		Seq: m.Seq, Rev: rev, ID: m.ID, Role: m.Role, TurnID: m.TurnID, Timestamp: m.Timestamp, Source: m.Source, State: Removed,
		AnswerSeq: m.AnswerSeq, TurnHasUser: m.TurnHasUser, Opens: m.Opens, Method: m.Method,
	}
}
