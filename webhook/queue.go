// Package webhook sends what happened to those who want to know: event bodies, signatures, the queue's contract, the worker
// and the sender.
//
// The promise is at-least-once: an event and its deliveries commit together with what they tell of, a delivery ends only when a
// receiver answered 2xx or when it is dead with a reason, and dead ones can be sent again. Receivers drop repeats by noticeId. A body is
// built once and is byte-identical on every attempt; signatures are made anew for each (reference/webhooks.md section 1).
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

// StateNumber gives the number of a state in databases; fault.Internal for what is none.
func StateNumber(s DeliveryState) (int, error) {
	if n := slices.Index(states, s); n >= 0 {
		return n, nil
	}
	return 0, fault.New(fault.Internal, "unknown delivery state %q", string(s))
}

// StateOf gives the state of a number; what is none is Dead, which nobody sends.
func StateOf(n int) DeliveryState {
	if n < 0 || n >= len(states) {
		return Dead
	}
	return states[n]
}

// Delivery is one event for one endpoint, as claimed by a worker.
type Delivery struct {
	ID         int64
	EventID    string // noticeId, sent as webhook-id
	Type       int
	Project    string
	AgentID    string
	Body       []byte // byte-identical on every attempt
	CreatedMS  int64  // the event's time, Unix ms
	FirstDueMS int64  // when its first try was due: the event's time, or that of the replay and what its pace adds. Its age counts from here
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
	// How long the steps took, in ms: name lookup and connection, TLS handshake, and from the end of the request to the answer's first byte.
	// 0 where a step was not needed or not reached.
	ConnectMS, TLSMS, FirstByteMS int64
	// Headers of the answer, at most MaxHeaders bytes of names and values. Those that may hold a secret are given without it.
	Headers []HeaderLine
	// Thin tells that a fetch URL was sent in place of the body.
	Thin bool
}

// HeaderLine is a header of an answer.
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
	// Untried tells that no attempt was made: the claim's is not counted, Try is not kept, and nothing is said about the endpoint.
	Untried bool
	AtMS    int64 // when this was decided, Unix ms
	Try     Attempt
	// DisableEndpoint, if not empty, disables the endpoint in the same transaction, with this reason.
	DisableEndpoint string
	// DisableAfter, if not 0, disables the endpoint when this attempt failed and none has succeeded for so long.
	DisableAfter time.Duration
}

// Backlog is what waits.
type Backlog struct {
	Pending   int   // deliveries not yet delivered or dead, those of disabled endpoints included
	Dead      int   // deliveries given up
	OldestDue int64 // Unix ms of the earliest due time among pending deliveries; 0 if none. Nothing is excluded
	// OldestPending is when the pending delivery was first due that waits longest, Unix ms; 0 if none. Attempts that fail do not move it, as they
	// move a due time; what a replay at a pace will send later does not wait yet.
	OldestPending int64
}

// MaxUrgent is how many tests of one endpoint may go before everything else.
const MaxUrgent = 2

// Claim says what a worker takes.
type Claim struct {
	NowMS       int64
	Limit       int           // deliveries at most
	PerEndpoint int           // at most for one endpoint that has no number of its own, those in flight (claimed, lease not over) included; 0 = no bound
	Lease       time.Duration // a claim that is neither finished nor released by then is due again
	// Bytes is how long the bodies taken at a time may be together; the first is taken however long it is. 0 = no bound.
	Bytes int64
	// Urgent is how many tests (event.Test) may be taken beside Limit, before anything else: their first tries, for enabled endpoints, whatever PerEndpoint and
	// Room say. Of one endpoint MaxUrgent may wait like that; more of them are like other deliveries.
	Urgent int
	// Room, if set, says how many deliveries the endpoint may get now, beside the other bounds. It is called inside the transaction, perhaps
	// more than once, and must be quick and change nothing.
	Room func(e *Endpoint) int
	// Ended, if set, says how many of the endpoint's claims do not count against PerEndpoint: their attempts have ended, and only their results are still to be
	// stored. Called as Room is.
	Ended func(e *Endpoint) int
	// Busy, if set, says how many attempts the endpoint's project and the endpoint have under way, which Fair goes by. Called as Room is.
	Busy func(e *Endpoint) (project, endpoint int)
}

// Queue is what a worker needs of a store. webhooktest.Run is its full contract; methods are safe for concurrent use. The rows come
// from memory.Ledger: an event and its deliveries commit together with what they tell of.
type Queue interface {
	// Claim takes due deliveries of enabled endpoints: first tries before retries, then as Fair has it, then the earliest due. It sets due = now + lease, attempt+1, fence+1.
	Claim(ctx context.Context, c Claim) ([]Delivery, error)
	// Finish stores the attempt and the new state, and what Conclude makes of them; fault.Conflict if another claim has happened since, and nothing is stored.
	Finish(ctx context.Context, d Delivery, r Result) error
	// Release gives a claim back unused: due now, and the attempt is not counted. Fenced as Finish.
	Release(ctx context.Context, d Delivery) error
	// Backlog counts what waits.
	Backlog(ctx context.Context) (Backlog, error)
	// Woken is closed or sent on when new deliveries were committed in this process; a receiver that is slow misses none, it gets at least one.
	Woken() <-chan struct{}
}

// Store is everything that webhooks need of a store.
type Store interface {
	Queue
	Endpoints
	Log
}
