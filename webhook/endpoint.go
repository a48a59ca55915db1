package webhook

import (
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

// Endpoint is an HTTP receiver of a project's events, such as a business server that wants the
// whole memory of each call. It says which events it wants, with which secrets they are signed and
// how failed attempts are repeated. An endpoint that keeps failing is disabled. Zero values mean
// the defaults; Validate checks the bounds. Its JSON is the part that stores keep in clear (see
// EncodeEndpoint).
type Endpoint struct {
	ID          string          `json:"-"` // unique in the store
	Project     string          `json:"-"`
	URL         string          `json:"url"`
	Description string          `json:"description,omitempty"` // for people
	Events      []string        `json:"events,omitempty"`      // the filter, see CheckFilter; empty = the default types
	Secrets     []SigningSecret `json:"-"`                     // every live one signs; none = unsigned
	Agora       bool            `json:"agora,omitempty"`       // also send Agora-Signature and Agora-Signature-V2

	Headers    []Header   `json:"-"` // sent with each attempt
	Auth       Auth       `json:"-"` // the Authorization header
	ClientCert ClientCert `json:"-"` // shown to receivers that ask for one

	Payload      string `json:"payload,omitempty"`  // PayloadFull or PayloadThin; "" = full
	MaxBodyBytes int64  `json:"max_body,omitempty"` // a longer body is sent thin; 0 = DefaultMaxBody

	Retry []time.Duration `json:"retry,omitzero"` // waits between tries; nil = the server's, empty = one try
	// No attempt after it, counted from the creation of the delivery; 0 = the schedule alone
	// decides.
	MaxAge      time.Duration `json:"max_age,omitempty"`
	Timeout     time.Duration `json:"timeout,omitempty"`       // of one attempt, whole; 0 = TotalTimeout
	MaxInFlight int           `json:"max_in_flight,omitempty"` // attempts at a time; 0 = the server's
	RateLimit   float64       `json:"rate_limit,omitempty"`    // attempts a second; 0 = unlimited

	// Disabled endpoints get no new deliveries, and none is claimed for them; pending ones stay.
	// DisabledWhy holds the reason, DisabledMS the time.
	Disabled    bool   `json:"disabled,omitempty"`
	DisabledWhy string `json:"disabled_why,omitempty"`
	// KeepUntilMS is set if the endpoint was disabled by its failures: events up to that time are
	// kept for it while it is disabled. 0 = none are kept.
	KeepUntilMS int64 `json:"keep_until_ms,omitempty"`
	DisabledMS  int64 `json:"disabled_ms,omitempty"`

	LastSuccessMS int64 `json:"-"` // of the last 2xx, to within a minute; 0 = none yet
	// Time of the first failed attempt in the current run; 0 = the last attempt succeeded.
	FirstFailureMS int64 `json:"-"`
	LastFailureMS  int64 `json:"-"` // of the last one, to within an hour; 0 as FirstFailureMS

	CreatedMS int64 `json:"created_ms,omitempty"`
	UpdatedMS int64 `json:"updated_ms,omitempty"`
	Rev       int64 `json:"rev,omitempty"` // grows with each UpdateEndpoint, and when it is disabled
	// Hash of the creating request, if it had an Idempotency-Key; never changes.
	MadeOf string `json:"made_of,omitempty"`
	Fixed  bool   `json:"fixed,omitempty"` // comes from the settings: only enabled and disabled at run time
}

// The kinds of payload.
const (
	PayloadFull = "full" // the event's whole body
	PayloadThin = "thin" // a URL from where it can be fetched
)

// DefaultMaxBody is the size in bytes of the largest body that is sent whole, unless the endpoint
// sets another.
const DefaultMaxBody = 1 << 20

// SigningSecret is one of an endpoint's secrets: whsec_ and base64, or any text, for v1 signatures;
// whsk_ and base64 for v1a signatures.
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

// Auth is the Authorization header of an endpoint: a bearer token, or a user name and a password.
// The zero value sends none.
type Auth struct {
	Bearer   secret.String
	User     string
	Password secret.String
}

// Zero reports whether no Authorization header is sent.
func (a Auth) Zero() bool { return a == Auth{} }

// ClientCert is a certificate with its key, both PEM. The zero value is none.
type ClientCert struct {
	Cert string
	Key  secret.String
}

// Zero reports whether there is no certificate.
func (c ClientCert) Zero() bool { return c == ClientCert{} }

// Wants reports whether the endpoint accepts events of the type.
func (e *Endpoint) Wants(eventType int) bool {
	return (!e.Disabled || e.KeepUntilMS != 0) && Matches(e.Events, eventType)
}

// Keeps reports whether events of that time are kept for the endpoint. An enabled endpoint keeps
// all.
func (e *Endpoint) Keeps(atMS int64) bool { return !e.Disabled || atMS < e.KeepUntilMS }

// InFlight is how many attempts at a time the endpoint allows; def is the server's own number.
func (e *Endpoint) InFlight(def int) int {
	if e.MaxInFlight > 0 {
		return e.MaxInFlight
	}
	return def
}

// Clone returns a deep copy.
func (e Endpoint) Clone() Endpoint {
	e.Events, e.Secrets = slices.Clone(e.Events), slices.Clone(e.Secrets)
	e.Headers, e.Retry = slices.Clone(e.Headers), slices.Clone(e.Retry)
	return e
}

// revise returns the value that an update stores: next, with the fields that an update cannot
// change taken from old. Every driver calls it. When an endpoint is enabled again, its earlier
// failures no longer count.
func revise(old, next Endpoint) Endpoint {
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
