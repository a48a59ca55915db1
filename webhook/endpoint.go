package webhook

import (
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

// Endpoint is where a project's events go. Zero values mean the defaults; Validate holds the bounds.
type Endpoint struct {
	ID          string // unique in the store
	Project     string
	URL         string
	Description string          // for people
	Events      []string        // the filter, see CheckFilter; empty = the default types
	Secrets     []SigningSecret // every live one signs; none = unsigned
	Agora       bool            // also send Agora-Signature and Agora-Signature-V2

	Headers    []Header   // sent with each attempt
	Auth       Auth       // the Authorization header
	ClientCert ClientCert // shown to receivers that ask for one

	Payload      string // PayloadFull or PayloadThin; "" = full
	MaxBodyBytes int64  // a longer body is sent thin; 0 = DefaultMaxBody

	Retry       []time.Duration // waits between tries; nil = the server's
	MaxAge      time.Duration   // no try after it, counted from the delivery's making; 0 = none beyond the schedule
	Timeout     time.Duration   // of one attempt, whole; 0 = TotalTimeout
	MaxInFlight int             // attempts at a time; 0 = the server's
	RateLimit   float64         // attempts a second; 0 = unlimited

	// Disabled endpoints get no new deliveries and are not claimed; what is pending stays. DisabledWhy says why, DisabledMS since when.
	Disabled    bool
	DisabledWhy string
	// KeepUntilMS: events until then are kept for it while it is disabled, since it was disabled by its failures and not by anybody's wish; 0 = none are.
	KeepUntilMS int64
	DisabledMS  int64

	LastSuccessMS  int64 // of the last 2xx, to within a minute; 0 = none yet
	FirstFailureMS int64 // of the first failed attempt of the present run of them; 0 = the last attempt succeeded
	LastFailureMS  int64 // of the last one, to within an hour; 0 as FirstFailureMS

	CreatedMS, UpdatedMS int64
	Rev                  int64  // grows with each UpdateEndpoint, and when it is disabled
	MadeOf               string // of one that was made with an Idempotency-Key, a hash that tells its request from others; never changes
	Fixed                bool   // comes from the settings: only enabled and disabled at run time
}

// The kinds of payload.
const (
	PayloadFull = "full" // the event's whole body
	PayloadThin = "thin" // a URL from where it can be fetched
)

// DefaultMaxBody is the length of the longest body that is sent whole, in bytes, where the endpoint says nothing.
const DefaultMaxBody = 1 << 20

// SigningSecret is one of an endpoint's secrets: whsec_ and base64 or any text for v1, whsk_ and base64 for v1a signatures.
type SigningSecret struct {
	ID        string // unique in the endpoint
	Value     secret.String
	CreatedMS int64
	NotAfter  time.Time // zero = no end
}

// Header is a header that an endpoint wants sent.
type Header struct {
	Name  string
	Value secret.String
}

// Auth is the Authorization header: a bearer token, or user name and password. The zero value sends none.
type Auth struct {
	Bearer   secret.String
	User     string
	Password secret.String
}

// Zero tells that there is none.
func (a Auth) Zero() bool { return a == Auth{} }

// ClientCert is a certificate with its key, both PEM. The zero value is none.
type ClientCert struct {
	Cert string
	Key  secret.String
}

// Zero tells that there is none.
func (c ClientCert) Zero() bool { return c == ClientCert{} }

// Wants tells whether the endpoint may take events of the type.
func (e *Endpoint) Wants(eventType int) bool {
	return (!e.Disabled || e.KeepUntilMS != 0) && Matches(e.Events, eventType)
}

// Keeps tells whether events of the time are kept for the endpoint: all where it is enabled.
func (e *Endpoint) Keeps(atMS int64) bool { return !e.Disabled || atMS < e.KeepUntilMS }

// InFlight is how many attempts at a time the endpoint allows; def is the server's own number.
func (e *Endpoint) InFlight(def int) int {
	if e.MaxInFlight > 0 {
		return e.MaxInFlight
	}
	return def
}

// Clone gives a copy that shares nothing.
func (e Endpoint) Clone() Endpoint {
	e.Events, e.Secrets = slices.Clone(e.Events), slices.Clone(e.Secrets)
	e.Headers, e.Retry = slices.Clone(e.Headers), slices.Clone(e.Retry)
	return e
}

// Revise gives the value that an update stores: next, with what an update cannot change taken from old. Every driver calls it. An endpoint
// that is enabled again begins anew: its failures until then count for nothing.
func Revise(old, next Endpoint) Endpoint {
	next.ID, next.Project, next.CreatedMS, next.Fixed, next.MadeOf, next.Rev = old.ID, old.Project, old.CreatedMS, old.Fixed, old.MadeOf, old.Rev+1
	next.LastSuccessMS, next.FirstFailureMS, next.LastFailureMS = old.LastSuccessMS, old.FirstFailureMS, old.LastFailureMS
	next.KeepUntilMS = 0
	if next.Disabled && old.Disabled {
		next.KeepUntilMS = old.KeepUntilMS
	}
	if !next.Disabled {
		next.DisabledWhy, next.DisabledMS = "", 0
		if old.Disabled {
			next.FirstFailureMS, next.LastFailureMS = 0, 0
		}
	}
	return next
}
