package handlers

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

// endpointJSON is an endpoint in answers. Durations are seconds; null is the
// server's default.
type endpointJSON struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description"`
	Events         []string          `json:"events"`
	Secrets        []secretJSON      `json:"secrets"`
	Headers        map[string]string `json:"headers"`
	Auth           *authJSON         `json:"auth"`
	ClientCert     *certRequest      `json:"client_cert"`
	Agora          bool              `json:"agora_signatures"`
	Payload        string            `json:"payload"`
	MaxBodyBytes   int64             `json:"max_body_bytes"`
	Retry          []float64         `json:"retry_schedule"`
	MaxAge         *float64          `json:"max_age"`
	Timeout        float64           `json:"timeout"`
	MaxInFlight    *int              `json:"max_in_flight"`
	RateLimit      *float64          `json:"rate_limit"`
	Disabled       bool              `json:"disabled"`
	DisabledReason string            `json:"disabled_reason,omitempty"`
	DisabledAt     timeMS            `json:"disabled_at,omitempty"`
	KeptUntil      timeMS            `json:"kept_until,omitempty"`
	LastSuccessAt  timeMS            `json:"last_success_at,omitempty"`
	FirstFailureAt timeMS            `json:"first_failure_at,omitempty"`
	CreatedAt      timeMS            `json:"created_at,omitempty"`
	UpdatedAt      timeMS            `json:"updated_at,omitempty"`
	Rev            int64             `json:"rev"`
	Fixed          bool              `json:"fixed"`
}

// secretJSON is a signing secret. Secret is set only in the answer that creates it.
type secretJSON struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Secret    string `json:"secret,omitempty"`
	PublicKey string `json:"public_key,omitempty"`
	CreatedAt timeMS `json:"created_at,omitempty"`
	ExpiresAt timeMS `json:"expires_at,omitempty"`
	Live      bool   `json:"live"`
}

type authJSON struct {
	Bearer   string `json:"bearer,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

func newSecretJSON(s webhook.SigningSecret, now time.Time) secretJSON {
	out := secretJSON{ID: s.ID, Kind: webhook.KindHMAC, CreatedAt: timeMS(s.CreatedMS), Live: true}
	if webhook.Asymmetric(s.Value) {
		out.Kind = webhook.KindEd25519
		out.PublicKey, _ = webhook.PublicKey(s.Value)
	}
	if !s.NotAfter.IsZero() {
		out.ExpiresAt, out.Live = timeMS(s.NotAfter.UnixMilli()), now.Before(s.NotAfter)
	}
	return out
}

func (a webhookAPI) show(e *webhook.Endpoint) endpointJSON {
	now := a.now()
	out := endpointJSON{
		ID: e.ID, URL: secret.MaskURL(e.URL), Description: e.Description, Events: append([]string{}, e.Events...), Secrets: []secretJSON{}, Headers: map[string]string{},
		Agora: e.Agora, Payload: e.Payload, MaxBodyBytes: e.MaxBodyBytes, MaxAge: secondsOf(e.MaxAge), Timeout: e.Timeout.Seconds(),
		Disabled: e.Disabled, DisabledReason: e.DisabledWhy, DisabledAt: timeMS(e.DisabledMS), KeptUntil: timeMS(e.KeepUntilMS), LastSuccessAt: timeMS(e.LastSuccessMS), FirstFailureAt: timeMS(e.FirstFailureMS),
		CreatedAt: timeMS(e.CreatedMS), UpdatedAt: timeMS(e.UpdatedMS), Rev: e.Rev, Fixed: e.Fixed,
	}
	for _, s := range e.Secrets {
		out.Secrets = append(out.Secrets, newSecretJSON(s, now))
	}
	for _, h := range e.Headers {
		out.Headers[h.Name] = secret.Mask
	}
	if !e.Auth.Zero() {
		out.Auth = &authJSON{Bearer: hide(e.Auth.Bearer), Username: e.Auth.User, Password: hide(e.Auth.Password)}
	}
	if !e.ClientCert.Zero() {
		out.ClientCert = &certRequest{Cert: e.ClientCert.Cert, Key: secret.Mask}
	}
	if e.Payload == "" {
		out.Payload = webhook.PayloadFull
	}
	if e.MaxBodyBytes == 0 {
		out.MaxBodyBytes = webhook.DefaultMaxBody
	}
	if e.Timeout == 0 {
		out.Timeout = webhook.TotalTimeout.Seconds()
	}
	if e.MaxInFlight != 0 {
		out.MaxInFlight = &e.MaxInFlight
	}
	if e.RateLimit != 0 {
		out.RateLimit = &e.RateLimit
	}
	if e.Retry != nil {
		out.Retry = []float64{}
		for _, d := range e.Retry {
			out.Retry = append(out.Retry, d.Seconds())
		}
	}
	return out
}

// secondsOf returns a duration in seconds, nil for none.
func secondsOf(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func hide(s secret.String) string {
	if s == "" {
		return ""
	}
	return secret.Mask
}

// deliveryJSON is a delivery. Lists leave out Attempts.
type deliveryJSON struct {
	ID         string        `json:"id"`
	MessageID  string        `json:"message_id"`
	Type       int           `json:"type"`
	Event      string        `json:"event"`
	EndpointID string        `json:"endpoint_id"`
	AgentID    string        `json:"agent_id,omitempty"`
	State      string        `json:"state"`
	InFlight   bool          `json:"in_flight"`
	Attempt    int           `json:"attempt"`
	EventAt    timeMS        `json:"event_at"`
	CreatedAt  timeMS        `json:"created_at,omitempty"`
	DueAt      timeMS        `json:"due_at,omitempty"`
	DoneAt     timeMS        `json:"done_at,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	ReplayOf   string        `json:"replay_of,omitempty"`
	Bytes      int           `json:"bytes"`
	LastStatus int           `json:"last_status,omitempty"`
	LastClass  string        `json:"last_error_class,omitempty"`
	Attempts   []attemptJSON `json:"attempts,omitempty"`
}

// attemptJSON is one try. Response is valid UTF-8, whatever the receiver sent.
type attemptJSON struct {
	N           int          `json:"n"`
	StartedAt   timeMS       `json:"started_at"`
	MS          int64        `json:"ms"`
	ConnectMS   int64        `json:"connect_ms"`
	TLSMS       int64        `json:"tls_ms"`
	FirstByteMS int64        `json:"first_byte_ms"`
	Status      int          `json:"status,omitempty"`
	ErrorClass  string       `json:"error_class,omitempty"`
	Error       string       `json:"error,omitempty"`
	Signed      []headerJSON `json:"signature_headers"`
	Headers     []headerJSON `json:"response_headers"`
	Response    string       `json:"response"`
	Truncated   bool         `json:"response_truncated"`
	Thin        bool         `json:"thin"`
}

type headerJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func deliveryID(id int64) string { return strconv.FormatInt(id, 10) }

func newDeliveryJSON(r *webhook.Record) deliveryJSON {
	out := deliveryJSON{
		ID: deliveryID(r.ID), MessageID: r.EventID, Type: r.Type, Event: event.Name(r.Type), EndpointID: r.EndpointID, AgentID: r.AgentID,
		State: string(r.State), InFlight: r.Claimed, Attempt: r.Attempt, EventAt: timeMS(r.EventMS), CreatedAt: timeMS(r.CreatedMS), DoneAt: timeMS(r.DoneMS),
		Reason: r.Reason, Bytes: r.Size, LastStatus: r.LastStatus, LastClass: r.LastClass,
	}
	if r.State == webhook.Pending && !r.Claimed {
		out.DueAt = timeMS(r.DueMS)
	}
	if r.ReplayOf != 0 {
		out.ReplayOf = deliveryID(r.ReplayOf)
	}
	return out
}

func newAttemptJSON(t *webhook.Attempt) attemptJSON {
	out := attemptJSON{
		N: t.N, StartedAt: timeMS(t.StartedMS), MS: t.DurationMS, ConnectMS: t.Detail.ConnectMS, TLSMS: t.Detail.TLSMS, FirstByteMS: t.Detail.FirstByteMS,
		Status: t.Status, ErrorClass: t.ErrorClass, Error: t.Error, Signed: []headerJSON{}, Headers: []headerJSON{},
		Response: strings.ToValidUTF8(string(t.Response), "\uFFFD"), Truncated: t.Truncated, Thin: t.Detail.Thin,
	}
	for _, h := range t.Detail.Signed {
		out.Signed = append(out.Signed, headerJSON(h))
	}
	for _, h := range t.Detail.Headers {
		out.Headers = append(out.Headers, headerJSON{h.Name, strings.ToValidUTF8(h.Value, "\uFFFD")})
	}
	return out
}

// messageJSON is a stored event. Lists leave out Body.
type messageJSON struct {
	ID        string          `json:"id"`
	Type      int             `json:"type"`
	Event     string          `json:"event"`
	AgentID   string          `json:"agent_id,omitempty"`
	CreatedAt timeMS          `json:"created_at"`
	Bytes     int             `json:"bytes"`
	Body      json.RawMessage `json:"body,omitempty"`
}
