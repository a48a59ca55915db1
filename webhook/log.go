package webhook

import (
	"context"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Bounds of the log's calls.
const (
	MaxPage   = 500     // rows of a page
	MaxScan   = 20_000  // rows that one list call looks at: with a rare filter a page may be short, or empty, and still have a next one
	MaxReplay = 100_000 // deliveries that one replay makes
)

// CanceledReason is the reason of deliveries that were canceled.
const CanceledReason = "canceled by hand"

// Event is an event as it is stored: made once, never changed.
type Event struct {
	ID        string // noticeId
	Type      int
	Project   string
	AgentID   string // "" for events that tell of no agent
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

// Replay says which deliveries are made again.
type Replay struct {
	Filter    DeliveryQuery // Limit and Cursor are not looked at
	NowMS     int64
	PerSecond float64 // the pace at which they become due; 0 = all at once
	DryRun    bool    // count only
	Name      string  // see Log.ReplayAll; "" = none. A dry run has none
}

// Replayed is what a replay did.
type Replayed struct {
	Count int  // deliveries made, or that would be
	More  bool // there are more than MaxReplay; go on with an earlier ToMS
	ToMS  int64
}

// Endpoints is where endpoints are kept. webhooktest.Run is its full contract.
type Endpoints interface {
	// CreateEndpoint stores a new endpoint; fault.Conflict where there is one with its ID, fault.Quota where the project has limit already (0 = no limit).
	CreateEndpoint(ctx context.Context, e Endpoint, limit int) error
	// PutEndpoint stores an endpoint as it is given, replacing the one with its ID; pending deliveries go to its new URL with its new secrets.
	PutEndpoint(ctx context.Context, e Endpoint) error
	// Endpoint gives one endpoint of a project; "" is any project. Unknown: fault.NotFound.
	Endpoint(ctx context.Context, project, id string) (Endpoint, error)
	// Endpoints lists all endpoints of a project in order of their making; "" lists those of every project.
	Endpoints(ctx context.Context, project string) ([]Endpoint, error)
	// UpdateEndpoint stores what decide makes of the endpoint, as Revise has it, and gives the result. rev, if not 0, must be the stored Rev:
	// fault.Conflict. An error of decide stores nothing and is given as it is; decide may run more than once.
	UpdateEndpoint(ctx context.Context, project, id string, rev int64, decide func(Endpoint) (Endpoint, error)) (Endpoint, error)
	// DeleteEndpoint removes an endpoint; its pending deliveries become Dead with a reason. Unknown: fault.NotFound.
	DeleteEndpoint(ctx context.Context, project, id string) error
}

// Log is what was and is to be sent. webhooktest.Run is its full contract. A project sees its own only: everything else is fault.NotFound.
type Log interface {
	// Events lists events; a Cursor that is none of its own is fault.Invalid.
	Events(ctx context.Context, q EventQuery) (EventPage, error)
	// Event gives one event with its body; project "" is any.
	Event(ctx context.Context, project, id string) (Event, error)
	// Deliveries lists deliveries; a Cursor that is none of its own is fault.Invalid.
	Deliveries(ctx context.Context, q DeliveryQuery) (DeliveryPage, error)
	// Delivery gives one delivery with its attempts, in order.
	Delivery(ctx context.Context, project string, id int64) (Record, []Attempt, error)
	// Replay makes a new delivery, due at nowMS, of the same event for the same endpoint, whatever became of the old one. It fails with
	// fault.Conflict where the endpoint is deleted; for a disabled one it waits. A name, if not empty, makes the call one that can be repeated: the project's
	// next call of the name gives what the first one made, and fault.Conflict where the name is that of another request.
	Replay(ctx context.Context, project string, id, nowMS int64, name string) (Record, error)
	// ReplayAll does so for all that the filter selects, newest first, once for each event and endpoint; those of deleted endpoints are passed over.
	// It is done in slices between other calls; one that a crash has cut short is finished when the store is opened again, or by the next call of its name.
	// Names are as those of Replay, and forgotten with what was done at their time (ForgetDone).
	ReplayAll(ctx context.Context, r Replay) (Replayed, error)
	// Cancel ends a pending delivery; fault.Conflict where it is not pending. An attempt under way is not called back, but its result is dropped.
	Cancel(ctx context.Context, project string, id, nowMS int64) (Record, error)
	// Send stores an event for one endpoint, whatever its filter, due at its own time; fault.Conflict where the endpoint is disabled or
	// there is an event of that ID.
	Send(ctx context.Context, m Event, endpointID string) (Record, error)
	// ForgetDone erases what was delivered, canceled or given up before the time, and events that nothing refers to any more, in slices
	// between other calls. It gives the number of deliveries erased.
	// With agentless only of events that tell of no agent, which no agent's end of retention takes along.
	ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (int, error)
	// ServerKey gives 32 random bytes that belong to the store and the name; they are made on first use and kept.
	ServerKey(ctx context.Context, name string) ([]byte, error)
}

// Cursor is a place in a list: after the row with this time and number, which goes downwards.
type Cursor struct{ MS, ID int64 }

// String gives the form that callers see.
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
		return Cursor{}, fault.At(fault.Invalid, "cursor", "is none that this list gave")
	}
	return Cursor{a, b}, nil
}
