// Package memories serves single messages as memories of their own (the API's /v1/memories): found
// by their scope over all ledgers of a project, added without an agent, searched and cleared.
// Service has the rules. Store is what a driver keeps for it.
package memories

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Row is how an item is found. Drivers keep one for each item, in the order in which the messages
// were appended.
type Row struct {
	// Of its items, which is not that of the ledger where no agent keeps them: see ProjectOf.
	Project string
	ID      string
	// Its AgentID is the one that was given, or else that of the ledger.
	memory.Scope
}

// RowOf returns the row of a message in an agent's ledger; false if it is not an item: without a
// scope, or cleared.
func RowOf(m *memory.Message, project, agentID string) (Row, bool) {
	item, scope := m.Filed().Item, m.Filed().Scope
	if item == nil && scope == (memory.Scope{}) || m.State == memory.Removed {
		return Row{}, false
	}
	r := Row{Project: ProjectOf(project), Scope: scope}
	r.AgentID = agentID
	if item != nil {
		r.ID, r.AgentID = item.ID, item.AgentID
	}
	if r.ID == "" {
		r.ID = placeID(project, agentID, m.Seq)
	}
	return r, true
}

// The ID that is derived from a message's place: if the agent's is a UUID, the first digits of that
// and the number of the message, so that the ID says where the message is.
const agentDigits, seqDigits = 24, 8

func placeID(project, agentID string, seq int64) string {
	if saysPlace(agentID, seq) {
		return fmt.Sprintf("%s%0*x", strings.ReplaceAll(agentID, "-", "")[:agentDigits], seqDigits, seq)
	}
	sum := sha256.Sum256([]byte(project + "\x00" + agentID + "\x00" + strconv.FormatInt(seq, 10)))
	return hex.EncodeToString(sum[:16])
}

// saysPlace reports whether a derived ID says where its message is.
func saysPlace(agentID string, seq int64) bool {
	return isUUID(agentID) && seq > 0 && seq <= math.MaxUint32
}

// isUUID reports whether an ID is a UUID in lower case.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// PlaceOf returns the place that a derived ID says: IDs of agents begin with prefix, and seq is the
// number of the message. It reports false if the ID is none of those.
func PlaceOf(id string) (prefix string, seq int64, ok bool) {
	if len(id) != agentDigits+seqDigits {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(id[agentDigits:], 16, 64)
	prefix = id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:24]
	return prefix, seq, err == nil && seq > 0 && isUUID(prefix+"00000000")
}

// here is how a stored row names the agent in whose ledger the message is. Other IDs that begin
// with it get a second one in front.
const here = "="

// Stored returns the columns id and agent_id of the row of a message in an agent's ledger. They are
// short where they follow from its place, which most do; see Restore.
func (r *Row) Stored(project, agentID string, seq int64) (id, agent string) {
	id, agent = r.ID, r.AgentID
	if saysPlace(agentID, seq) && id == placeID(project, agentID, seq) {
		id = ""
	}
	if agent == agentID {
		return id, here
	}
	return id, StoredAgent(agent)
}

// Restore sets ID and AgentID, which hold the stored columns, to what they stand for.
func (r *Row) Restore(project, agentID string, seq int64) {
	if r.ID == "" {
		r.ID = placeID(project, agentID, seq)
	}
	r.AgentID = AgentOf(r.AgentID, agentID)
}

// AgentOf returns what a stored column agent_id stands for in the ledger of an agent.
func AgentOf(stored, agentID string) string {
	if stored == here {
		return agentID
	}
	return strings.TrimPrefix(stored, here)
}

// StoredAgent returns the column agent_id of another agent than that of the ledger.
func StoredAgent(id string) string {
	if strings.HasPrefix(id, here) {
		return here + id
	}
	return id
}

// ownProject precedes a project's name in the name of the project whose one agent keeps the items
// of no other agent. No real project has such a name, so that agent is never found, and no limits,
// endpoints or lists include it.
const ownProject = "~"

// ProjectOf returns the project whose items are in the ledgers of a project.
func ProjectOf(project string) string { return strings.TrimPrefix(project, ownProject) }

// OwnProject returns the project whose one agent keeps a project's items that are in no other
// agent's ledger.
func OwnProject(project string) string { return ownProject + project }

// Query selects items of a project by whose they are, newest first.
type Query struct {
	memory.Scope       // an ID that is empty is any
	Before       int64 // Item.No at which the page before ended; 0 = the newest
	Limit        int   // how many rows to read, at least 1
}

// Item is a message with its place.
type Item struct {
	// Grows in the order in which messages were appended, over all of a project's ledgers.
	No      int64
	Project string // of the ledger
	AgentID string // of the ledger
	Message memory.Message
	Row     Row
	// Cold is set by a driver if the message is in an archive. Message has only its Seq then.
	Cold bool
}

// Store finds messages in all of a project's ledgers by their scope. Every driver of a memory.Store
// is one, and updates it with each Change. storetest.RunItems is its contract; it fails as
// memory.Store does.
type Store interface {
	// Items returns those of the next Limit items, newest first, that have all the IDs asked for,
	// and the place of the next page, or 0. A page may be empty and still have a next one.
	Items(ctx context.Context, project string, q Query) (list []Item, next int64, err error)
	// Item returns the item with the ID, the first of several, or fault.NotFound.
	Item(ctx context.Context, project, id string) (Item, error)
	// AgentsOf returns the agents whose ledgers hold messages with a user in their scope, in any
	// order, with the versions that they have at that moment. The user is not empty. The agent that
	// keeps the project's own items is not among them.
	AgentsOf(ctx context.Context, project, user string) ([]AgentVersion, error)
	// Users returns the users that items of the project have, in the order of their bytes after the
	// given one ("" = from the beginning), at most limit.
	Users(ctx context.Context, project, after string, limit int) ([]string, error)
}

// AgentVersion is an agent at a moment.
type AgentVersion struct {
	ID string
	memory.Version
}

// AgentsOf returns the agents whose ledgers hold messages with one of a caller's names in their
// scope, oldest first.
func AgentsOf(ctx context.Context, s Store, project string, names []string) ([]AgentVersion, error) {
	var out []AgentVersion
	for _, n := range names {
		list, err := s.AgentsOf(ctx, project, n)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b AgentVersion) int { return cmp.Compare(a.No, b.No) })
	return slices.CompactFunc(out, func(a, b AgentVersion) bool { return a.No == b.No }), nil
}

// ErrNotFound is the refusal of an id that no item has.
func ErrNotFound(id string) error { return fault.New(fault.NotFound, "there is no memory %q", id) }
