package webhook

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// FetchPath is where the full body of a thin event is fetched; the token stands behind it.
const FetchPath = "/v1/webhooks/fetch/"

// thinFor is how long a fetch URL is valid at least. It is longer than the default schedule, so
// that the URL of the last attempt still works.
const thinFor = 7 * 24 * time.Hour

// Thin makes thin events, which replace large bodies, and the signed fetch URLs in them. It is safe
// for concurrent use.
type Thin struct {
	key  []byte
	base string
}

// NewThin returns a Thin. key is secret, at least 32 bytes, and must outlive the process (see
// Log.ServerKey), because URLs are opened long after they were made. base is the server's address
// as receivers reach it, such as https://heardlog.example; a path in it stays in front of
// FetchPath.
func NewThin(key []byte, base string) (*Thin, error) {
	if len(key) < sha256.Size {
		return nil, fault.New(fault.Invalid, "the key of fetch URLs must have at least %d bytes, not %d", sha256.Size, len(key))
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.New(fault.Invalid, "the base of fetch URLs must be an http or https URL with a host and without user name or query")
	}
	return &Thin{key: key, base: strings.TrimRight(base, "/")}, nil
}

// Wanted reports whether the delivery's endpoint gets a thin event: because it always wants one, or
// because the body is over its limit.
func (t *Thin) Wanted(d Delivery) bool {
	limit := d.Endpoint.MaxBodyBytes
	if limit <= 0 {
		limit = DefaultMaxBody
	}
	return d.Endpoint.Payload == PayloadThin || int64(len(d.Body)) > limit
}

// Body returns the thin event of a delivery: the same envelope, with a payload that says where the
// full body is. It returns the same bytes on each attempt as long as the endpoint's schedule stays
// the same and its URL is valid for another half day; a replay gets a fresh URL. It fails with
// fault.Invalid if the body is not an event.
func (t *Thin) Body(d Delivery, now time.Time) ([]byte, error) {
	e, err := Decode(d.Body)
	if err != nil {
		return nil, err
	}
	var about struct {
		AgentID  string `json:"agent_id"`
		Sequence *int64 `json:"sequence"`
	}
	if err := json.Unmarshal(e.Payload, &about); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the event's payload cannot be read")
	}
	sum, expires := sha256.Sum256(d.Body), expiry(d, now)
	p := thinPayload{
		kind: e.EventType, Thin: true, URL: t.base + FetchPath + t.Token(d.EventID, d.Endpoint.ID, time.UnixMilli(expires)), ExpiresMS: expires,
		Bytes: len(d.Body), Sum: hex.EncodeToString(sum[:]), AgentID: about.AgentID, Sequence: about.Sequence,
	}
	return Encode(Notice{SID: e.SID, ID: e.NoticeID, AtMS: e.NotifyMS, Payload: p})
}

// expiry returns when a delivery's fetch URL expires, Unix ms: a day after the last attempt that
// the schedule allows. It depends on nothing that differs between two attempts, unless they are
// further apart than the schedule, because the endpoint was disabled or the receiver sent
// Retry-After. Such a late attempt gets a URL that lasts as long again.
func expiry(d Delivery, now time.Time) int64 {
	lasts := time.Duration(0)
	for _, w := range d.Endpoint.Retry {
		lasts += w + w/5 // the jitter
	}
	made := cmp.Or(d.FirstDueMS, d.CreatedMS)
	life := max(thinFor, max(lasts, d.Endpoint.MaxAge)+24*time.Hour).Milliseconds()
	end := made + life
	if late := now.Add(12*time.Hour).UnixMilli() - end; late > 0 {
		end += (late/life + 1) * life
	}
	return end
}

// Token signs the right to fetch one event's body as one endpoint until a time.
func (t *Thin) Token(eventID, endpointID string, expires time.Time) string {
	var b []byte
	b = binary.AppendVarint(b, expires.UnixMilli())
	b = binary.AppendUvarint(b, uint64(len(eventID)))
	b = append(b, eventID...)
	b = append(b, endpointID...)
	return base64.RawURLEncoding.EncodeToString(append(t.sum(b), b...))
}

// maxToken bounds a token before anything is computed over it, in bytes.
const maxToken = 1024

// Open checks a token and returns what it is for and when it ends. It fails with fault.NotFound for
// a token that this server has not signed, and with fault.Stopped for an expired one.
func (t *Thin) Open(token string, now time.Time) (eventID, endpointID string, ends time.Time, err error) {
	unknown := fault.New(fault.NotFound, "this server did not make the fetch URL; was it copied completely?")
	// The decoder would skip line breaks.
	if len(token) > maxToken || strings.ContainsAny(token, "\r\n") {
		return "", "", ends, unknown
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < sha256.Size || !hmac.Equal(b[:sha256.Size], t.sum(b[sha256.Size:])) {
		return "", "", ends, unknown
	}
	b = b[sha256.Size:] // ours from here on
	expires, n := binary.Varint(b)
	if n <= 0 {
		return "", "", ends, unknown
	}
	size, m := binary.Uvarint(b[n:])
	rest := b[n+max(m, 0):]
	if m <= 0 || size > uint64(len(rest)) {
		return "", "", ends, unknown
	}
	if now.UnixMilli() >= expires {
		return "", "", ends, fault.New(fault.Stopped, "the fetch URL ended at %s; replay the delivery to get a fresh one", time.UnixMilli(expires).UTC().Format(time.RFC3339))
	}
	return string(rest[:size]), string(rest[size:]), time.UnixMilli(expires), nil
}

func (t *Thin) sum(b []byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte("heardlog fetch 1\n")) // separates this use of the key from any other
	mac.Write(b)
	return mac.Sum(nil)
}

// thinPayload replaces an event's own payload.
type thinPayload struct {
	kind      int
	Thin      bool   `json:"thin"`
	URL       string `json:"fetch_url"`
	ExpiresMS int64  `json:"expires_at"`
	Bytes     int    `json:"bytes"`
	Sum       string `json:"sha256"`
	AgentID   string `json:"agent_id,omitempty"`
	Sequence  *int64 `json:"sequence,omitempty"`
}

// EventType is that of the event whose place it takes.
func (p thinPayload) EventType() int { return p.kind }

func (p thinPayload) encode(b *builder) { b.fields(p) }
