// Package webhook sends what happened to those who want to know: event bodies, signatures, the queue's contract, the worker
// and the sender.
//
// The promise is at-least-once: an event and its deliveries commit together with what they tell of, a delivery ends only when a
// receiver answered 2xx or when it is dead with a reason, and dead ones are kept. Receivers drop repeats by noticeId. A body is
// built once and is byte-identical on every attempt; signatures are made anew for each (reference/webhooks.md section 1).
package webhook

import (
	"context"
	"time"
)

// The event types that Heardlog sends: up to 999 Agora's (reference/agora-api.md 5.4), from 10001 up our own.
const (
	TypeJoined   = 101
	TypeLeft     = 102
	TypeHistory  = 103
	TypeExpiring = 104
	TypeError    = 110
	TypeMetrics  = 111
	TypeTurns    = 112

	TypeInterrupted = 10001
	TypeMessage     = 10002

	TypeDead     = 10011
	TypeDisabled = 10012
	TypeTest     = 10021
)

// Secret is a signing secret: a whsec_… string or any other text. It prints as "[secret]".
type Secret string

// String hides the value.
func (Secret) String() string { return "[secret]" }

// GoString hides the value.
func (Secret) GoString() string { return "[secret]" }

// MarshalText hides the value from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Reveal gives the value.
func (s Secret) Reveal() string { return string(s) }

// Endpoint is where a project's events go.
type Endpoint struct {
	ID      string // unique in the store
	Project string
	URL     string
	Secrets []SigningSecret // every live one signs; none = unsigned
	Types   []int           // event types wanted; empty = those of Catalogue that are Default
	Agora   bool            // also send Agora-Signature and Agora-Signature-V2
	// Disabled endpoints get no new deliveries and are not claimed; what is pending stays. DisabledWhy says why.
	Disabled    bool
	DisabledWhy string
}

// SigningSecret is one of an endpoint's secrets.
type SigningSecret struct {
	Value    Secret
	NotAfter time.Time // zero = no end
}

// Wants tells whether the endpoint takes events of the type.
func (e Endpoint) Wants(eventType int) bool {
	if e.Disabled {
		return false
	}
	for _, t := range e.Types {
		if t == eventType {
			return true
		}
	}
	return len(e.Types) == 0 && byDefault(eventType)
}

// DeliveryState is where a delivery stands.
type DeliveryState string

// The delivery states.
const (
	Pending   DeliveryState = "pending"   // waits for its due time, or is claimed until then
	Delivered DeliveryState = "delivered" // answered 2xx
	Dead      DeliveryState = "dead"      // given up; Reason says why; kept
)

// Delivery is one event for one endpoint, as claimed by a worker.
type Delivery struct {
	ID        int64
	EventID   string // noticeId, sent as webhook-id
	Type      int
	Project   string
	AgentID   string
	Body      []byte // byte-identical on every attempt
	CreatedMS int64  // the event's time, Unix ms
	Endpoint  Endpoint
	Attempt   int   // number of the attempt this claim is for, from 1
	Fence     int64 // grows with each claim; Finish and Release of an older one are refused
}

// Attempt is the record of one HTTP try.
type Attempt struct {
	N          int
	StartedMS  int64 // Unix ms
	DurationMS int64
	Status     int    // HTTP status; 0 = no answer
	ErrorClass string // see the Class constants; empty on success
	Error      string // for the operator; holds no secret
	Response   []byte // the first MaxResponse bytes of the answer's body
	Truncated  bool   // the answer was longer
}

// MaxResponse is how much of a receiver's answer is kept, in bytes.
const MaxResponse = 16 << 10

// Result is how a claim ends.
type Result struct {
	State  DeliveryState
	DueMS  int64  // for Pending: when the next attempt is due, Unix ms
	Reason string // for Dead
	Try    Attempt
	// DisableEndpoint, if not empty, disables the endpoint in the same transaction, with this reason.
	DisableEndpoint string
}

// Backlog is what waits.
type Backlog struct {
	Pending   int   // deliveries not yet delivered or dead, those of disabled endpoints included
	Dead      int   // deliveries given up
	OldestDue int64 // Unix ms of the earliest due time among pending deliveries; 0 if none. Nothing is excluded
}

// Claim says what a worker takes.
type Claim struct {
	NowMS       int64
	Limit       int           // deliveries at most
	PerEndpoint int           // at most for one endpoint, those in flight (claimed, lease not over) included
	Lease       time.Duration // a claim that is neither finished nor released by then is due again
}

// Queue is what a worker needs of a store. webhooktest.Run is its full contract; methods are safe for concurrent use. The rows come
// from memory.Store: an event and its deliveries commit together with what they tell of.
type Queue interface {
	// PutEndpoint stores an endpoint, replacing the one with its ID; pending deliveries go to its new URL with its new secrets.
	PutEndpoint(ctx context.Context, e Endpoint) error
	// DeleteEndpoint removes an endpoint; its pending deliveries become Dead with a reason. Unknown: fault.NotFound.
	DeleteEndpoint(ctx context.Context, id string) error
	// Endpoints lists all endpoints of a project; "" lists those of every project.
	Endpoints(ctx context.Context, project string) ([]Endpoint, error)
	// Claim takes due deliveries of enabled endpoints: first tries before retries, then the earliest due. It sets due = now + lease, attempt+1, fence+1.
	Claim(ctx context.Context, c Claim) ([]Delivery, error)
	// Finish stores the attempt and the new state; fault.Conflict if another claim has happened since, and nothing is stored.
	Finish(ctx context.Context, d Delivery, r Result) error
	// Release gives a claim back unused: due now, and the attempt is not counted. Fenced as Finish.
	Release(ctx context.Context, d Delivery) error
	// Attempts lists the attempts of the deliveries of one event, by delivery and number.
	Attempts(ctx context.Context, eventID string) ([]Attempt, error)
	// Backlog counts what waits.
	Backlog(ctx context.Context) (Backlog, error)
	// Woken is closed or sent on when new deliveries were committed in this process; a receiver that is slow misses none, it gets at least one.
	Woken() <-chan struct{}
}
