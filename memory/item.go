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

// Item is what a message has beside its other fields as an item of the view under /v1/memories (reference/memory-semantics.md 003-4, 003-5). nil on a message
// that came in another way and was not changed in this one.
type Item struct {
	ID        string          `json:"id,omitempty"`         // 32 hex digits; "" = the one that is made of its place, see ItemRow. Several may share one (003-2)
	AgentID   string          `json:"agent_id,omitempty"`   // as it was given, whether there is such an agent or not
	Extra     json.RawMessage `json:"extra,omitempty"`      // object; never matched
	UpdatedMS int64           `json:"updated_ms,omitempty"` // of the last change of status, Unix ms; 0 = never
	IsError   bool            `json:"is_error,omitempty"`   // of a tool's result
}

// scopeOr gives a message that has no scope that of its agent.
func (m *Message) scopeOr(agents Scope) {
	if agents != (Scope{}) && m.Scope() == (Scope{}) {
		m.Amend(func(r *Rare) { r.Scope = agents })
	}
}

// ItemRow is how an item is found: drivers keep one for each message that has one, in the order in which the messages were appended.
type ItemRow struct {
	Project string // of its items, which is not that of the ledger where no agent keeps them: see ItemProject
	ID      string
	Scope
	AgentID string
}

// ItemRow gives what finds a message of the ledger of an agent; false for one that is no item: those that nobody gave a scope, and what clearing left.
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

// ownProject stands in front of a project's name in that of the project whose one agent keeps the items of no other agent. No project is named so, so that nobody
// finds that agent, and none of the project's limits, endpoints and lists are concerned.
const ownProject = "~"

// ItemProject gives the project whose items stand in the ledgers of a project.
func ItemProject(project string) string { return strings.TrimPrefix(project, ownProject) }

// OwnProject gives the project whose one agent keeps the items of a project that no other agent's ledger holds.
func OwnProject(project string) string { return ownProject + project }

// ItemQuery selects items of a project by whose they are, newest first.
type ItemQuery struct {
	Scope          // an id that is empty is any
	AgentID string // "" = any
	Before  int64  // StoredItem.No at which the page before ended; 0 = the newest
	Limit   int    // how many rows are looked at, at least 1
}

// StoredItem is a message with its place.
type StoredItem struct {
	No      int64  // grows in the order in which messages were appended, over all of a project's ledgers
	Project string // of the ledger
	AgentID string // of the ledger
	Message Message
	Row     ItemRow
}

// ItemStore finds messages of all of a project's ledgers by whose they are. The drivers of Store are such, and keep what is needed up to date with each Change.
// memorytest.RunItems is its contract; it fails as Store does.
type ItemStore interface {
	// Items gives those of the next Limit items, of one of the ids asked for or of all, that have all the ids, newest first, and the place at which the next page
	// starts; 0 if there is none. A page may be empty and still have a next one.
	Items(ctx context.Context, project string, q ItemQuery) (list []StoredItem, next int64, err error)
	// Item gives the item of that id, of several the one that came first; fault.NotFound if there is none.
	Item(ctx context.Context, project, id string) (StoredItem, error)
}

// ErrNoItem is the refusal of an id that no item has.
func ErrNoItem(id string) error { return fault.New(fault.NotFound, "there is no memory %q", id) }

// tombstone gives what clearing leaves of the message: its place, its id and its part in the order of things, without anything that was said.
func (m *Message) tombstone(rev int64) Message {
	return Message{
		Seq: m.Seq, Rev: rev, ID: m.ID, Role: m.Role, TurnID: m.TurnID, Timestamp: m.Timestamp, Source: m.Source, State: Removed,
		AnswerSeq: m.AnswerSeq, TurnHasUser: m.TurnHasUser, Opens: m.Opens, Method: m.Method,
	}
}
