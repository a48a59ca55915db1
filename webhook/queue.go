// Package webhook delivers events to HTTP endpoints, signed and at least once. Events are queued in
// the transaction that caused them (see Queue); a Worker claims their deliveries, and a Sender
// makes the HTTP requests.
//
// A delivery ends when a receiver has answered 2xx, or as dead with a reason; dead deliveries can
// be replayed. Receivers drop repeats by noticeId. A body is built once and is byte-identical on
// every attempt, unless words in it are erased; signatures are made for each attempt.
package webhook

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// DeliveryState is where a delivery stands.
type DeliveryState string

// The delivery states.
const (
	Pending   DeliveryState = "pending"   // waits for its due time, or is claimed until then
	Delivered DeliveryState = "delivered" // answered 2xx
	Dead      DeliveryState = "dead"      // given up; Reason says why; kept as long as any that ended
	Canceled  DeliveryState = "canceled"  // ended by hand
)

// states are the delivery states by the numbers that databases hold; their order is never changed.
var states = []DeliveryState{Pending, Delivered, Dead, Canceled}

// StateNumber returns the number of a state in databases, or fault.Internal for an unknown state.
func StateNumber(s DeliveryState) (int, error) {
	if n := slices.Index(states, s); n >= 0 {
		return n, nil
	}
	return 0, fault.New(fault.Internal, "unknown delivery state %q", string(s))
}

// StateOf returns the state with the number. An unknown number is Dead, which is never sent.
func StateOf(n int) DeliveryState {
	if n < 0 || n >= len(states) {
		return Dead
	}
	return states[n]
}

// Delivery is one event for one endpoint, as claimed by a worker. It is made in the transaction
// that stores the event, and ends when the receiver has answered 2xx, or as dead or canceled.
type Delivery struct {
	ID        int64
	EventID   string // noticeId, sent as webhook-id
	Type      int
	Project   string
	AgentID   string
	Body      []byte // byte-identical on every attempt, unless words in it are erased
	CreatedMS int64  // the event's time, Unix ms
	// when the first attempt was due: the event's time, or that of the replay plus its pace. The
	// delivery's age counts from here
	FirstDueMS int64
	Endpoint   Endpoint
	Attempt    int   // number of the attempt this claim is for, from 1
	Urgent     bool  // taken beside Claim.Limit
	Fence      int64 // grows with each claim; Finish and Release of an older one are refused
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
	Detail     Detail
}

// Detail is what is known of an attempt beyond its result.
type Detail struct {
	// The durations of the steps, in ms: name lookup and connection, TLS handshake, and from the
	// end of the request to the first byte of the answer. 0 if a step was not needed or not
	// reached.
	ConnectMS, TLSMS, FirstByteMS int64
	// Headers of the answer, at most MaxHeaders bytes of names and values, without values that may
	// be secret.
	Headers []HeaderLine
	// Signed are the headers of the request that prove where it came from: the time and the
	// signatures. Nil if the request was not signed.
	Signed []HeaderLine
	// Thin reports that a fetch URL was sent in place of the body.
	Thin bool
}

// HeaderLine is a header of a request or an answer.
type HeaderLine struct{ Name, Value string }

// MaxHeaders is how much of an answer's headers is kept, in bytes.
const MaxHeaders = 4 << 10

// MaxResponse is how much of a receiver's answer is kept, in bytes.
const MaxResponse = 16 << 10

// Result is how a claim ends.
type Result struct {
	State  DeliveryState
	DueMS  int64  // for Pending: when the next attempt is due, Unix ms
	Reason string // for Dead
	// Untried means that no attempt was made: the claim's attempt is not counted, Try is not kept,
	// and the endpoint's health is unchanged. With Pending it wakes the workers.
	Untried bool
	AtMS    int64 // when this was decided, Unix ms
	Try     Attempt
	// DisableEndpoint, if not empty, is the reason for which the endpoint is disabled in the same
	// transaction.
	DisableEndpoint string
	// DisableAfter, if not 0, disables the endpoint if this attempt failed and none has succeeded
	// for that long.
	DisableAfter time.Duration
}

// Backlog is what waits.
type Backlog struct {
	Pending int // deliveries not yet delivered or dead, those of disabled endpoints included
	Dead    int // deliveries given up
	// Unix ms of the earliest due time among all pending deliveries; 0 if there are none
	OldestDue int64
	// OldestPending is when the longest-waiting pending delivery first became due, Unix ms; 0 if
	// there are none. Unlike a due time, it does not move with failed attempts. Deliveries that a
	// paced replay will send later do not count yet.
	OldestPending int64
}

// MaxUrgent is how many tests of one endpoint may go before everything else.
const MaxUrgent = 2

// Look asks a store what waits.
type Look struct {
	NowMS int64
	// how many due deliveries of one endpoint are of use; PerEndpoint as in Claim
	Limit, PerEndpoint int
	Tests              bool // whether Waiting.Tests is of use
	// Held are endpoints that get nothing now, unless they have changed, by ID.
	Held map[string]Version
}

// Reads returns how many due deliveries of an endpoint to read, and whether to read any of it,
// tests included.
func (l Look) Reads(e *Endpoint) (n int, any bool) {
	if e.Disabled {
		return 0, false
	}
	if held, ok := l.Held[e.ID]; ok && held == e.Version() {
		return 0, l.Tests
	}
	n = l.Limit
	if most := e.InFlight(l.PerEndpoint); most > 0 && n > 0 {
		n = min(n, most)
		if l.Tests {
			n += MaxUrgent // which may be among them
		}
	}
	return n, n > 0 || l.Tests
}

// Due is a due delivery that is not claimed.
type Due struct {
	ID, DueMS int64
	Retry     bool // it has been tried
}

// Waiting is what one endpoint could be sent now.
type Waiting struct {
	Endpoint *Endpoint // enabled; only for reading
	Claimed  int       // its claims whose lease runs, those of other servers included
	Due      []Due     // first attempts before retries, then the earliest due
	Tests    []Due     // those that are Urgent; they are among Due too
}

// Take is a delivery to be claimed.
type Take struct {
	Due
	Endpoint *Endpoint // as Waiting returned it
	// Most bounds the claims of the endpoint whose lease runs, this one included, on all servers; 0
	// = no bound.
	Most   int
	Urgent bool
}

// Taking is what a worker claims at a time.
type Taking struct {
	NowMS int64
	Lease time.Duration // a claim that is neither finished nor released by then is due again
	// Bytes bounds the total size of the bodies: those that follow are not taken. The first is
	// taken whatever its size. 0 = no bound.
	Bytes int64
	List  []Take // in the order in which they are taken
}

// Queue is what a worker needs from a store. webhooktest.Run is its full contract; methods are safe
// for concurrent use. The rows come from memory.Store: an event and its deliveries commit together
// with the change that caused them.
type Queue interface {
	// Waiting returns the enabled endpoints that have due deliveries or tests, at most Look.Reads
	// of each. It changes nothing.
	Waiting(ctx context.Context, l Look) ([]Waiting, error)
	// Claim claims deliveries in one transaction: due = now + lease, attempt+1, fence+1. It leaves
	// out those that are no longer due, for example because another server has claimed them, and
	// those beyond Most or Bytes.
	Claim(ctx context.Context, t Taking) ([]Delivery, error)
	// Finish stores the attempt, the new state, and what Conclude derives from them. It fails with
	// fault.Conflict, and stores nothing, if the delivery has been claimed again since.
	Finish(ctx context.Context, d Delivery, r Result) error
	// Backlog counts what waits.
	Backlog(ctx context.Context) (Backlog, error)
	// Woken returns a channel that receives after new deliveries were committed in this process.
	// Signals that arrive close together may be merged; none is lost.
	Woken() <-chan struct{}
}

// Store is everything that webhooks need of a store.
type Store interface {
	Queue
	Endpoints
	Log
}
