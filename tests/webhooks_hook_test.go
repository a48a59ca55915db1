package tests

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

const hooks = "/v1/webhooks"

// endpoint is an endpoint as the API shows it.
type endpoint struct {
	ID       string         `json:"id"`
	URL      string         `json:"url"`
	Events   []string       `json:"events"`
	Secrets  []signer       `json:"secrets"`
	Headers  map[string]any `json:"headers"`
	Auth     map[string]any `json:"auth"`
	Payload  string         `json:"payload"`
	Retry    []float64      `json:"retry_schedule"`
	Timeout  float64        `json:"timeout"`
	MaxBody  int64          `json:"max_body_bytes"`
	Agora    bool           `json:"agora_signatures"`
	Disabled bool           `json:"disabled"`
	Reason   string         `json:"disabled_reason"`
	Rev      int64          `json:"rev"`
	Fixed    bool           `json:"fixed"`
}

type signer struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Secret   string `json:"secret"`
	Public   string `json:"public_key"`
	Created  unixMS `json:"created_at"`
	NotAfter unixMS `json:"expires_at"`
	Live     bool   `json:"live"`
}

// unixMS is a time of the API in Unix ms.
type unixMS int64

// UnmarshalJSON implements json.Unmarshaler.
func (t *unixMS) UnmarshalJSON(b []byte) error {
	var at time.Time
	err := json.Unmarshal(b, &at)
	*t = unixMS(at.UnixMilli())
	return err
}

// String returns the time as a request may have it.
func (t unixMS) String() string { return time.UnixMilli(int64(t)).UTC().Format(time.RFC3339Nano) }

// delivery is a delivery as the API shows it.
type delivery struct {
	ID        string `json:"id"`
	MessageID string `json:"message_id"`
	Type      int    `json:"type"`
	Endpoint  string `json:"endpoint_id"`
	State     string `json:"state"`
	Attempt   int    `json:"attempt"`
	Reason    string `json:"reason"`
	ReplayOf  string `json:"replay_of"`
	Class     string `json:"last_error_class"`
	CreatedAt unixMS `json:"created_at"`
	DueAt     unixMS `json:"due_at"`
	DoneAt    unixMS `json:"done_at"`
	Attempts  []struct {
		Status     int    `json:"status"`
		ErrorClass string `json:"error_class"`
		Error      string `json:"error"`
		Response   string `json:"response"`
		Truncated  bool   `json:"response_truncated"`
		Thin       bool   `json:"thin"`
		Headers    []struct {
			Name, Value string
		} `json:"response_headers"`
		Signed []struct {
			Name, Value string
		} `json:"signature_headers"`
	} `json:"attempts"`
}

type deliveryPage struct {
	Deliveries []delivery `json:"deliveries"`
	Next       string     `json:"next_cursor"`
}

// is demands a status and reads the body into v, unless v is nil.
func (a answer) is(status int, v any) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.call, a.status, status, a.body)
	}
	if v != nil {
		if err := json.Unmarshal(a.body, v); err != nil {
			a.t.Fatalf("%s: %v: %s", a.call, err, a.body)
		}
	}
	return a
}

// hook is a receiver that records its requests, checks them against the description, and answers as
// configured.
type hook struct {
	url    string
	status atomic.Int32 // 0 = 200
	got    chan call
}

type call struct {
	webhook.Envelope
	header http.Header
	body   []byte
}

func newHook(t *testing.T) *hook {
	t.Helper()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{got: make(chan call, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := sp.Event(r, body); err != nil {
			t.Errorf("a webhook is not as openapi.yaml has it: %v\n%s", err, body)
		}
		e, err := webhook.Decode(body)
		if err != nil {
			t.Error(err)
		}
		h.got <- call{e, r.Header.Clone(), body}
		if s := h.status.Load(); s != 0 {
			w.WriteHeader(int(s))
			_, _ = io.WriteString(w, "<b>no</b>")
		}
	}))
	t.Cleanup(srv.Close)
	h.url = srv.URL + "/hook"
	return h
}

// next waits for one call.
func (h *hook) next(t *testing.T) call {
	t.Helper()
	select {
	case c := <-h.got:
		return c
	case <-time.After(patience):
		t.Fatal("no webhook came")
		return call{}
	}
}

// quiet demands that nothing more came.
func (h *hook) quiet(t *testing.T) {
	t.Helper()
	select {
	case c := <-h.got:
		t.Errorf("one webhook too many: %s", c.body)
	default:
	}
}

// hookTo makes an endpoint for the receiver with these fields.
func (s *server) hookTo(h *hook, fields map[string]any, headers ...string) endpoint {
	s.t.Helper()
	body := map[string]any{"url": h.url}
	for k, v := range fields {
		body[k] = v
	}
	var e endpoint
	s.post(hooks+"/endpoints", body, headers...).is(http.StatusCreated, &e)
	return e
}

// settled waits until the delivery is no longer pending and returns it with its attempts.
func (s *server) settled(id string, headers ...string) delivery {
	s.t.Helper()
	return s.until(id, func(d delivery) bool { return d.State != "pending" }, headers...)
}

// until reads the delivery again and again until it is as wanted.
func (s *server) until(id string, want func(delivery) bool, headers ...string) delivery {
	s.t.Helper()
	var d delivery
	for end := time.Now().Add(patience); time.Now().Before(end); {
		d = delivery{}
		s.get(hooks+"/deliveries/"+id, headers...).ok(&d)
		if want(d) {
			return d
		}
	}
	s.t.Fatalf("delivery %s stays %+v", id, d)
	return d
}

// verified returns the indexes of the secrets that signed the call.
func verified(c call, secrets ...string) string {
	out := ""
	for i, s := range secrets {
		if verifyStandard(secret.String(s), c.header, c.body, time.Now()) == nil {
			out += fmt.Sprint(i)
		}
	}
	return out
}

var hookOwn = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))

type thinPayload struct {
	Thin    bool   `json:"thin"`
	URL     string `json:"fetch_url"`
	Expires int64  `json:"expires_at"`
	Bytes   int    `json:"bytes"`
	SHA256  string `json:"sha256"`
	AgentID string `json:"agent_id"`
}

func thinOf(t *testing.T, c call) (p thinPayload) {
	t.Helper()
	if err := json.Unmarshal(c.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// fetch follows the URL of a thin event, without credentials.
func (s *server) fetch(u string) answer {
	s.t.Helper()
	return s.get(strings.TrimPrefix(u, s.url))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// verifiedBy reports whether the call has a v1a signature of the whpk_ key.
func verifiedBy(t *testing.T, public string, c call) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	if err != nil || len(key) != ed25519.PublicKeySize {
		t.Fatalf("public key %q: %v", public, err)
	}
	signed := c.header.Get(webhook.HeaderID) + "." + c.header.Get(webhook.HeaderTimestamp) + "." + string(c.body)
	for s := range strings.FieldsSeq(c.header.Get(webhook.HeaderSignature)) {
		sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1a,"))
		if strings.HasPrefix(s, "v1a,") && err == nil && ed25519.Verify(key, []byte(signed), sig) {
			return true
		}
	}
	return false
}
