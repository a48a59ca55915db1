package webhook

import (
	"context"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Bounds of the log's calls.
const (
	MaxPage = 500 // rows of a page
	// Rows that one list call examines. With a rare filter a page may be short or empty and still
	// have a next page.
	MaxScan   = 20_000
	MaxReplay = 100_000 // deliveries that one replay makes
)

// Reasons of deliveries that a store ends.
const (
	CanceledReason = "canceled by hand"
	DeletedReason  = "endpoint deleted" // of dead ones
)

// Event is something that happened and that receivers want to know, as it is stored: an agent
// joined, an answer was interrupted, a memory is complete. Its body is built once, and changes only
// if words in it are erased.
type Event struct {
	ID        string // noticeId
	Type      int
	Project   string
	AgentID   string // "" for events that belong to no agent
	CreatedMS int64
	Size      int    // of the body, in bytes
	Body      []byte // nil in lists
}

// EventQuery selects events of one project, newest first.
type EventQuery struct {
	Project      string
	Types        []int  // empty = any
	AgentID      string // "" = any
	FromMS, ToMS int64  // time of the event, from inclusive and to exclusive; 0 = open
	Limit        int    // 1 to MaxPage
	Cursor       string // of the page before
}

// EventPage is one page of events.
type EventPage struct {
	Events []Event
	Next   string // "" on the last page
}

// Record is a delivery as the log shows it.
type Record struct {
	ID         int64
	EventID    string
	Type       int
	Project    string
	AgentID    string
	EndpointID string // also where that is deleted
	State      DeliveryState
	Claimed    bool // an attempt is under way, or its worker is gone and the lease not over
	Attempt    int  // attempts begun
	EventMS    int64
	CreatedMS  int64  // when the delivery was made: the event's time, or that of the replay
	DueMS      int64  // for Pending
	DoneMS     int64  // 0 for Pending
	Reason     string // for Dead and Canceled
	ReplayOf   int64  // the delivery that this one repeats; 0 = none
	Size       int    // of the body, in bytes
	LastStatus int    // of the last attempt; 0 = none, or no answer
	LastClass  string // of the last attempt; "" = none, or it succeeded
}

// DeliveryQuery selects deliveries of one project, those made last first.
type DeliveryQuery struct {
	Project      string
	Endpoint     string          // "" = any, deleted ones included
	States       []DeliveryState // empty = any
	Types        []int           // empty = any
	AgentID      string          // "" = any
	EventID      string          // "" = any
	FromMS, ToMS int64           // Record.CreatedMS, from inclusive and to exclusive; 0 = open
	Limit        int             // 1 to MaxPage
	Cursor       string
}

// DeliveryPage is one page of deliveries.
type DeliveryPage struct {
	Deliveries []Record
	Next       string // "" on the last page
}

// Replay selects the deliveries to make again. Filter and PerSecond are what is stored of it.
type Replay struct {
	Filter    DeliveryQuery `json:"filter"` // Limit and Cursor are ignored
	NowMS     int64         `json:"-"`
	PerSecond float64       `json:"per_second,omitempty"` // the pace at which they become due; 0 = all at once
	DryRun    bool          `json:"-"`                    // count only
	Name      string        `json:"-"`                    // see Log.ReplayAll; "" = none. A dry run has none
}

// Replayed is what a replay did.
type Replayed struct {
	Count int  // deliveries made, or that would be
	More  bool // there are more than MaxReplay; go on with an earlier ToMS
	ToMS  int64
}

// Log keeps events, deliveries and attempts. webhooktest.Run is its full contract. A project sees
// only its own rows; for anything else the methods return fault.NotFound.
type Log interface {
	// Events lists events. It returns fault.Invalid if q.Cursor was not returned by Events.
	Events(ctx context.Context, q EventQuery) (EventPage, error)
	// Event returns one event with its body; project "" means any project.
	Event(ctx context.Context, project, id string) (Event, error)
	// AgentEvents calls each with every event of an agent, with its body, in order. each must not
	// call the store. Its error ends the call and is returned as it is. An unknown agent has no
	// events.
	AgentEvents(ctx context.Context, project, agentID string, each func(Event) error) error
	// Deliveries lists deliveries; it returns fault.Invalid if the Cursor was not returned by
	// Deliveries.
	Deliveries(ctx context.Context, q DeliveryQuery) (DeliveryPage, error)
	// Delivery returns one delivery with its attempts, in order.
	Delivery(ctx context.Context, project string, id int64) (Record, []Attempt, error)
	// Replay creates a new delivery of the same event to the same endpoint, due at nowMS, whatever
	// the state of the old one. It fails with fault.Conflict if the endpoint is deleted; for a
	// disabled endpoint the delivery waits. A non-empty name makes the call idempotent: the
	// project's next call with that name returns the first result, or fault.Conflict if the request
	// differs.
	Replay(ctx context.Context, project string, id, nowMS int64, name string) (Record, error)
	// ReplayAll does the same for every delivery that the filter selects, newest first, once for
	// each event and endpoint; deleted endpoints are skipped. It works in slices between other
	// calls. If a crash interrupts it, it is finished when the store is opened again, or by the
	// next call with its name. Names work as in Replay and are dropped by ForgetDone.
	ReplayAll(ctx context.Context, r Replay) (Replayed, error)
	// Cancel ends a pending delivery. It fails with fault.Conflict if the delivery is not pending.
	// An attempt in progress is not aborted, but its result is dropped.
	Cancel(ctx context.Context, project string, id, nowMS int64) (Record, error)
	// Send stores an event for one endpoint, whatever its filter, due at the event's own time. It
	// fails with fault.Conflict if the endpoint is disabled or an event with that ID exists.
	Send(ctx context.Context, m Event, endpointID string) (Record, error)
	// ForgetDone erases deliveries that were delivered, canceled or dead before the time, and
	// events that nothing refers to any more. It works in slices between other calls and returns
	// the number of deliveries erased. With agentless it erases only those of events without an
	// agent, which no retention of an agent covers.
	ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (int, error)
	// ServerKey returns 32 random bytes that belong to the store and the name. They are created on
	// first use and kept.
	ServerKey(ctx context.Context, name string) ([]byte, error)
}

// Cursor is a place in a list: after the row with this time and number, which goes downwards.
type Cursor struct{ MS, ID int64 }

// String returns the cursor in the form that callers see.
func (c Cursor) String() string {
	return strconv.FormatInt(c.MS, 10) + "-" + strconv.FormatInt(c.ID, 10)
}

// ParseCursor reads what String wrote; "" is the beginning. It fails with fault.Invalid.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{MS: 1<<63 - 1, ID: 1<<63 - 1}, nil
	}
	ms, id, _ := strings.Cut(s, "-")
	a, err := strconv.ParseInt(ms, 10, 64)
	b, err2 := strconv.ParseInt(id, 10, 64)
	if err != nil || err2 != nil || a < 0 || b < 0 {
		return Cursor{}, fault.At(fault.Invalid, "cursor", "is not a cursor of this list")
	}
	return Cursor{a, b}, nil
}
