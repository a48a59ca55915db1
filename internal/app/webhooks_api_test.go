package app_test

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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	Created  int64  `json:"created_at"`
	NotAfter int64  `json:"not_after"`
	Live     bool   `json:"live"`
}

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
	CreatedAt int64  `json:"created_at"`
	DueAt     int64  `json:"due_at"`
	DoneAt    int64  `json:"done_at"`
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

// hook is a receiver that keeps what it gets, holds it against the description, and answers as it is told.
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

// settled waits until the delivery is no longer pending, and gives it with its attempts.
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

// TestEndpointsThroughTheAPI is the life of an endpoint: its secret is shown once, changes keep what they do not name, and nobody writes over another's change.
func TestEndpointsThroughTheAPI(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{
		"description": "billing", "events": []string{"agent.*", "103"}, "headers": map[string]string{"X-Api-Key": "k3y-of-mine"},
		"auth": map[string]string{"username": "u", "password": "pa55-of-mine"}, "retry_schedule": []float64{1.5, 60}, "timeout": 7, "secrets": []any{map[string]any{}, map[string]any{"kind": "ed25519"}, map[string]any{"secret": "one of our own"}},
	})
	path := hooks + "/endpoints/" + e.ID
	if len(e.Secrets) != 3 || !strings.HasPrefix(e.Secrets[0].Secret, "whsec_") || !strings.HasPrefix(e.Secrets[1].Secret, "whsk_") || !strings.HasPrefix(e.Secrets[1].Public, "whpk_") || e.Secrets[2].Secret != "" {
		t.Fatalf("%+v", e.Secrets)
	}
	if e.Rev != 1 || e.Timeout != 7 || len(e.Retry) != 2 || e.Retry[0] != 1.5 || !e.Agora || e.Payload != "full" || e.MaxBody != 1<<20 {
		t.Errorf("%+v", e)
	}
	patch := s.do("PATCH", path, `{"description":null,"timeout":null,"headers":{"X-Api-Key":"[secret]","X-More":"m0re-of-mine"}}`)
	var now endpoint
	patch.ok(&now)
	if now.Rev != 2 || now.Timeout != 20 || len(now.Headers) != 2 || now.Auth["username"] != "u" || len(now.Events) != 2 {
		t.Errorf("%+v", now)
	}
	s.do("PATCH", path, `{"rev":1,"url":"`+h.url+`/2"}`).refused(http.StatusConflict, "TaskConflict", "rev")
	s.do("PATCH", path, `{"rev":2,"agora_signatures":false}`).ok(&now)
	var one, two endpoint
	put := s.do("PUT", path, map[string]any{"url": h.url, "events": []string{"*"}})
	put.ok(&one)
	if one.Auth != nil || len(one.Headers) != 0 || one.Retry != nil || !one.Agora || len(one.Secrets) != 3 {
		t.Errorf("%+v", one)
	}
	get, list := s.get(path), s.get(hooks+"/endpoints")
	get.ok(&two)
	list.ok(nil)
	if two.Rev != 4 {
		t.Errorf("rev %d after three changes", two.Rev)
	}
	for _, a := range []answer{patch, put, get, list} { // no answer but the first shows a secret
		for _, secret := range []string{e.Secrets[0].Secret, e.Secrets[1].Secret, "one of our own", "k3y-of-mine", "m0re-of-mine", "pa55-of-mine"} {
			if strings.Contains(string(a.body), secret) {
				t.Errorf("%s shows the secret %q", a.call, secret)
			}
		}
	}
	s.do("DELETE", path, nil).is(http.StatusNoContent, nil)
	s.do("DELETE", path, nil).refused(http.StatusNotFound, "TaskNotFound", e.ID)
	s.get(path).refused(http.StatusNotFound, "TaskNotFound", e.ID)
}

// TestEndpointOnce: with an Idempotency-Key a repeated call makes one endpoint, and one secret, and shows it once.
func TestEndpointOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	key := []string{"Idempotency-Key", "k1"}
	e := s.hookTo(h, nil, key...)
	var again endpoint
	s.post(hooks+"/endpoints", map[string]any{"url": h.url}, key...).is(http.StatusOK, &again)
	if again.ID != e.ID || again.Secrets[0].Secret != "" {
		t.Errorf("%+v", again)
	}
	s.post(hooks+"/endpoints", map[string]any{"url": h.url, "payload": "full"}, key...).refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another body")
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 8 { // at once, one makes it
		wg.Go(func() {
			if s.post(hooks+"/endpoints", map[string]any{"url": h.url}, "Idempotency-Key", "k2").status == http.StatusCreated {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	var list struct{ Endpoints []endpoint }
	if s.get(hooks + "/endpoints").ok(&list); len(list.Endpoints) != 2 || made.Load() != 1 {
		t.Errorf("%d endpoints, %d of eight calls made one", len(list.Endpoints), made.Load())
	}
	for i := range 8 { // at once, each with another body: one is right, the others are told
		wg.Go(func() {
			r := s.post(hooks+"/endpoints", map[string]any{"url": h.url, "description": fmt.Sprint(i)}, "Idempotency-Key", "k3")
			if r.status != http.StatusCreated && r.status != http.StatusConflict {
				t.Errorf("status %d", r.status)
			}
		})
	}
	wg.Wait()
	if s.get(hooks + "/endpoints").ok(&list); len(list.Endpoints) != 3 {
		t.Errorf("%d endpoints of one key and several bodies", len(list.Endpoints)-2)
	}
	var first, second struct {
		Secret   signer
		Endpoint endpoint
	}
	s.post(hooks+"/endpoints/"+e.ID+"/secrets", nil, key...).is(http.StatusCreated, &first)
	s.post(hooks+"/endpoints/"+e.ID+"/secrets", nil, key...).is(http.StatusOK, &second)
	if first.Secret.Secret == "" || second.Secret.Secret != "" || second.Secret.ID != first.Secret.ID || len(second.Endpoint.Secrets) != 2 {
		t.Errorf("%+v, then %+v", first, second)
	}
	var a, b delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, key...).is(http.StatusAccepted, &a)
	s.settled(a.ID)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, key...).is(http.StatusAccepted, &b)
	if a.ID != b.ID {
		t.Errorf("two tests: %s and %s", a.ID, b.ID)
	}
	h.next(t)
	h.quiet(t)
}

// TestBadEndpoints: each refusal names the field and says what is allowed; a value that may be a secret is never repeated.
func TestBadEndpoints(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	for body, want := range map[string][]string{
		`{}`:                                {"url"},
		`null`:                              {"null"},
		`[]`:                                {"array"},
		`{"url":5}`:                         {"url", "number", "a string is wanted"},
		`{"url":"ftp://h.example/"}`:        {"url", "http"},
		`{"url":"https://u:pw@h.example/"}`: {"url", "user"},
		`{"url":"http://h.example:25/"}`:    {"url", "port"},
		`{"url":"http://169.254.169.254/latest/meta-data/"}`: {"url", "169.254.169.254", "HEARDLOG_OUTBOUND_ALLOW"},
		`{"url":"http://[::ffff:10.0.0.1]/"}`:                {"url", "10.0.0.1"},
		`{"url":"http://10.1.2.3/"}`:                         {"url", "10.1.2.3"},
		`{"url":"URL","what":1}`:                             {"what", "not a field"},
		`{"url":"URL","events":["agent.gone"]}`:              {"events[0]", "agent.*"},
		`{"url":"URL","events":"agent.left"}`:                {"events", "string"},
		`{"url":"URL","headers":{"webhook-id":"x"}}`:         {"headers.webhook-id", "Heardlog"},
		`{"url":"URL","headers":{"Host":"x"}}`:               {"headers.Host"},
		`{"url":"URL","headers":{"X-A":"a\r\nB: c"}}`:        {"headers.X-A", "printable"},
		`{"url":"URL","headers":{"X-A":"[secret]"}}`:         {"headers.X-A", "stands for"},
		`{"url":"URL","headers":{"X A":"a"}}`:                {"headers", "name"},
		`{"url":"URL","auth":{"bearer":"a","username":"b"}}`: {"auth", "either"},
		`{"url":"URL","auth":{"token":"a"}}`:                 {"auth.token", "not a field"},
		`{"url":"URL","client_cert":{"cert":"x","key":"y"}}`: {"client_cert", "PEM"},
		`{"url":"URL","payload":"slim"}`:                     {"payload", "thin"},
		`{"url":"URL","max_body_bytes":10}`:                  {"max_body_bytes", "1024"},
		`{"url":"URL","max_body_bytes":0}`:                   {"max_body_bytes", "null"},
		`{"url":"URL","retry_schedule":[5,0.5]}`:             {"retry_schedule[1]", "1s"},
		`{"url":"URL","retry_schedule":[1e300]}`:             {"retry_schedule[0]", "604800"},
		`{"url":"URL","timeout":21}`:                         {"timeout", "20"},
		`{"url":"URL","timeout":-1}`:                         {"timeout"},
		`{"url":"URL","timeout":0.0004}`:                     {"timeout", "1s"},
		`{"url":"URL","max_age":0.0001}`:                     {"max_age", "1m"},
		`{"url":"URL","max_in_flight":1.5}`:                  {"max_in_flight", "a whole number is wanted"},
		`{"url":"URL","events":[5]}`:                         {"events", "a string is wanted"},
		`{"url":"URL","max_age":1}`:                          {"max_age", "1m"},
		`{"url":"URL","max_in_flight":101}`:                  {"max_in_flight", "100"},
		`{"url":"URL","rate_limit":0}`:                       {"rate_limit", "null"},
		`{"url":"URL","rate_limit":1e9}`:                     {"rate_limit", "1000"},
		`{"url":"URL","description":"a\u0000b"}`:             {"description", "control"},
		`{"url":"URL","secrets":[{"secret":"v1,whsec_x"}]}`:  {"secrets[0].secret", "v1,"},
		`{"url":"URL","secrets":[{"kind":"rsa"}]}`:           {"secrets[0].kind", "ed25519"},
		`{"url":"URL","secrets":[{"not_after":1}]}`:          {"secrets[0].not_after", "over"},
		`{"url":"URL","secrets":[{"what":1}]}`:               {"secrets", "what"},
	} {
		body = strings.Replace(body, "URL", h.url, 1)
		got := s.post(hooks+"/endpoints", body)
		reason := "InvalidFieldValue"
		switch body {
		case `{}`:
			reason = "MissingRequiredField"
		case `null`, `[]`:
			reason = "InvalidRequestBody"
		}
		got.refused(http.StatusBadRequest, reason, want...)
		if strings.Contains(string(got.body), "pw@") {
			t.Errorf("%s: the answer repeats a password: %s", body, got.body)
		}
		if reason != "InvalidFieldValue" || strings.Contains(body, `"secrets"`) {
			continue
		}
		s.do("PATCH", hooks+"/endpoints/"+e.ID, body).refused(http.StatusBadRequest, reason, want...)
		s.do("PUT", hooks+"/endpoints/"+e.ID, body).refused(http.StatusBadRequest, reason, want...)
	}
	s.do("PATCH", hooks+"/endpoints/"+e.ID, `{"secrets":[]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "secrets", "POST")
	s.post(hooks+"/endpoints/"+e.ID+"/secrets", `{"overlap":-1}`).refused(http.StatusBadRequest, "InvalidFieldValue", "overlap")
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, "Idempotency-Key", "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	for path, want := range map[string]string{
		"/deliveries?limit=501": "limit", "/deliveries?state=lost": "state", "/deliveries?type=agent.gone": "type", "/deliveries?cursor=x": "cursor", "/deliveries?from=9&to=5": "to",
		"/messages?limit=x": "limit", "/messages?cursor=1-x": "cursor", "/messages?from=-1": "from",
	} {
		s.get(hooks+path).refused(http.StatusBadRequest, "InvalidFieldValue", want)
	}
	for body, want := range map[string]string{
		`{"filter":{"states":["lost"]}}`: "filter.states", `{"filter":{"type":"x"}}`: "type", `{"per_second":-1}`: "per_second", `{"per_second":1e-300}`: "0.01 to 1000", `{"filter":{"from":7,"to":5}}`: "to", `{"filter":{"types":["x"]}}`: "filter.types",
	} {
		s.post(hooks+"/replays", body).refused(http.StatusBadRequest, "InvalidFieldValue", want)
	}
}

// TestTestEvent: a test goes the way of every event: signed, with the endpoint's headers, through the guard, and into the log of attempts.
func TestTestEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"headers": map[string]string{"X-Env": "prod"}, "auth": map[string]string{"bearer": "t0ken-of-mine"}, "events": []string{"agent.left"}})
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, &d)
	c := h.next(t)
	if c.EventType != webhook.TypeTest || c.NoticeID != d.MessageID || c.header.Get("X-Env") != "prod" || c.header.Get("Authorization") != "Bearer t0ken-of-mine" {
		t.Errorf("%s with %v", c.body, c.header)
	}
	if err := webhook.VerifyStandard(webhook.Secret(e.Secrets[0].Secret), c.header, c.body, time.Now()); err != nil {
		t.Error(err)
	}
	s.get(hooks + "/messages/" + strings.Replace(d.MessageID, ":", "%3A", 1)).ok(nil) // as encodeURIComponent gives it
	// What a change names with the sign that answers show, it keeps; what it does not name in an object, it drops.
	s.do("PATCH", hooks+"/endpoints/"+e.ID, `{"headers":{"x-env":"[secret]","X-Two":"2"},"auth":{"bearer":"[secret]"}}`).ok(nil)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, nil)
	if kept := h.next(t); kept.header.Get("X-Env") != "prod" || kept.header.Get("X-Two") != "2" || kept.header.Get("Authorization") != "Bearer t0ken-of-mine" {
		t.Errorf("%v", kept.header)
	}
	s.do("PATCH", hooks+"/endpoints/"+e.ID, `{"headers":{"X-Two":"[secret]"},"auth":null}`).ok(nil)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, nil)
	if left := h.next(t); left.header.Get("X-Env") != "" || left.header.Get("X-Two") != "2" || left.header.Get("Authorization") != "" {
		t.Errorf("%v", left.header)
	}
	if got := s.settled(d.ID); got.State != "delivered" || len(got.Attempts) != 1 || got.Attempts[0].Status != 200 || got.DoneAt < c.NotifyMS || len(got.Attempts[0].Headers) == 0 {
		t.Errorf("%+v", got)
	}
	h.status.Store(http.StatusGone)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, &d)
	got := s.settled(d.ID)
	if got.State != "dead" || got.Attempts[0].Response != "<b>no</b>" || !strings.Contains(got.Reason, "410") {
		t.Errorf("%+v", got)
	}
	if raw := s.get(hooks + "/deliveries/" + d.ID).ok(nil); strings.Contains(string(raw.body), "<b>") {
		t.Errorf("what the receiver wrote is not escaped: %s", raw.body)
	}
	var gone, on, off endpoint
	s.get(hooks + "/endpoints/" + e.ID).ok(&gone)
	if !gone.Disabled || !strings.Contains(gone.Reason, "410") {
		t.Errorf("%+v", gone)
	}
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).refused(http.StatusConflict, "TaskConflict", "disabled")
	s.post(hooks+"/endpoints/"+e.ID+"/enable", nil).ok(&on)
	if on.Disabled || on.Reason != "" {
		t.Errorf("%+v", on)
	}
	s.post(hooks+"/endpoints/"+e.ID+"/disable", nil).ok(&off)
	if !off.Disabled || off.Reason == "" {
		t.Errorf("%+v", off)
	}
}

// TestTestIsGuarded: the test goes past no guard. The endpoint's name is allowed when it is saved; where it leads is refused when it is dialled.
func TestTestIsGuarded(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants, "HEARDLOG_ADDR=0.0.0.0:0") // a server for everybody has no leave to call its own machine
	h := newHook(t)
	alice := []string{"Authorization", "Bearer wonder"}
	s.post(hooks+"/endpoints", map[string]any{"url": h.url}, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "url", "127.0.0.1")
	h.url = strings.Replace(h.url, "127.0.0.1", "localhost", 1)
	e := s.hookTo(h, map[string]any{"retry_schedule": []float64{}}, alice...)
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, alice...).is(http.StatusAccepted, &d)
	if got := s.settled(d.ID, alice...); got.State != "dead" || got.Class != "blocked" || !strings.Contains(got.Attempts[0].Error, "HEARDLOG_OUTBOUND_ALLOW") {
		t.Errorf("%+v", got)
	}
	h.quiet(t)
	s.post(hooks+"/endpoints", map[string]any{"url": h.url, "payload": "thin"}, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "payload", "HEARDLOG_PUBLIC_URL")
	s.get(hooks+"/fetch/x").refused(http.StatusNotFound, "TaskNotFound", "HEARDLOG_PUBLIC_URL")
}

// verified tells which of the secrets have signed the call, by their place.
func verified(c call, secrets ...string) string {
	out := ""
	for i, s := range secrets {
		if webhook.VerifyStandard(webhook.Secret(s), c.header, c.body, time.Now()) == nil {
			out += fmt.Sprint(i)
		}
	}
	return out
}

// TestRotation: during the overlap both secrets sign, after a revoke only the new one does.
// TestRotationAgain: a rotation that is repeated tells of the secret that was made, not of another.
func TestRotationAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	rotate := func(status int) (out struct{ Secret signer }) {
		s.post(hooks+"/endpoints/"+e.ID+"/secrets", `{"kind":"ed25519"}`, "Idempotency-Key", "k1").is(status, &out)
		return out
	}
	first, again := rotate(http.StatusCreated), rotate(http.StatusOK)
	for _, other := range []string{`{"kind":"hmac"}`, `{"secret":"mine"}`} {
		s.post(hooks+"/endpoints/"+e.ID+"/secrets", other, "Idempotency-Key", "k1").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another secret")
	}
	if first.Secret.Secret == "" || again.Secret.Secret != "" || again.Secret.ID != first.Secret.ID || again.Secret.Public != first.Secret.Public || again.Secret.Created != first.Secret.Created {
		t.Errorf("first %+v, again %+v", first.Secret, again.Secret)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	path := hooks + "/endpoints/" + e.ID
	test := func() call { s.post(path+"/test", nil).is(http.StatusAccepted, nil); return h.next(t) }
	rotate := func(body any) (out struct {
		Secret   signer
		Endpoint endpoint
	}) {
		s.post(path+"/secrets", body).is(http.StatusCreated, &out)
		return out
	}
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).refused(http.StatusConflict, "TaskConflict", "last")
	before := time.Now()
	second := rotate(nil)
	old := second.Endpoint.Secrets[1]
	if old.ID != e.Secrets[0].ID || old.NotAfter < before.Add(webhook.DefaultOverlap).UnixMilli()-1000 || !old.Live {
		t.Errorf("the old secret: %+v", old)
	}
	if got := verified(test(), e.Secrets[0].Secret, second.Secret.Secret); got != "01" {
		t.Errorf("during the overlap the secrets %q sign", got)
	}
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).ok(nil)
	s.do("DELETE", path+"/secrets/"+e.Secrets[0].ID, nil).refused(http.StatusNotFound, "TaskNotFound", e.Secrets[0].ID)
	if got := verified(test(), e.Secrets[0].Secret, second.Secret.Secret); got != "1" {
		t.Errorf("after the revoke the secrets %q sign", got)
	}
	third := rotate(`{"secret":"whsec_` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + `","overlap":0}`)
	if third.Secret.Secret != "" {
		t.Error("the caller's own secret is shown")
	}
	if got := verified(test(), second.Secret.Secret, hookOwn); got != "1" {
		t.Errorf("without overlap the secrets %q sign", got)
	}
	key := rotate(`{"kind":"ed25519"}`)
	if got := test(); !verifiedBy(t, key.Secret.Public, got) || verified(got, hookOwn) != "0" {
		t.Errorf("%v with %+v", got.header, key)
	}
}

var hookOwn = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))

// TestReplay: each replay sends, once for each call, the same bytes under the same id; a dry run sends nothing; a cancelled one is not sent.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined"}, "retry_schedule": []float64{3600}})
	s.join("n", nil)
	first := h.next(t)
	var page deliveryPage
	s.get(hooks + "/deliveries?endpoint=" + e.ID + "&type=agent.joined").ok(&page)
	if len(page.Deliveries) != 1 {
		t.Fatalf("%+v", page)
	}
	id := s.settled(page.Deliveries[0].ID).ID
	for range 2 {
		var d delivery
		s.post(hooks+"/deliveries/"+id+"/replay", nil).is(http.StatusAccepted, &d)
		again := h.next(t)
		if d.ReplayOf != id || d.MessageID != first.NoticeID || string(again.body) != string(first.body) || again.header.Get(webhook.HeaderAttempt) != "1" {
			t.Errorf("%+v: %s", d, again.body)
		}
		s.settled(d.ID)
	}
	h.status.Store(http.StatusBadGateway)
	for i := range 3 {
		s.join(fmt.Sprint("m", i), nil)
		h.next(t)
	}
	var out struct {
		Count  int
		DryRun bool `json:"dry_run"`
	}
	s.post(hooks+"/replays", `{}`).ok(&out)
	if out.Count != 0 { // nothing is dead
		t.Errorf("%+v", out)
	}
	filter := `{"states":["pending"],"types":["agent.*"],"endpoint":"` + e.ID + `"}`
	s.post(hooks+"/replays", `{"dry_run":true,"filter":`+filter+`}`).ok(&out)
	if out.Count != 3 || !out.DryRun {
		t.Errorf("%+v", out)
	}
	h.quiet(t)
	h.status.Store(0)
	began := time.Now()
	s.post(hooks+"/replays", `{"per_second":5,"filter":`+filter+`}`).ok(&out)
	if out.Count != 3 {
		t.Errorf("%+v", out)
	}
	for range 3 {
		h.next(t)
	}
	if took := time.Since(began); took < 350*time.Millisecond {
		t.Errorf("three deliveries at five a second took %s", took)
	}
	for n := 0; n != 3; { // the results of the replays are stored
		var all deliveryPage
		s.get(hooks + "/deliveries?state=pending").ok(&all)
		n = len(all.Deliveries)
	}
	page = deliveryPage{}
	s.get(hooks + "/deliveries?state=pending&limit=2").ok(&page)
	if len(page.Deliveries) != 2 || page.Next == "" {
		t.Fatalf("%+v", page)
	}
	var last deliveryPage
	s.get(hooks + "/deliveries?state=pending&limit=2&cursor=" + page.Next).ok(&last)
	if len(last.Deliveries) != 1 || last.Next != "" {
		t.Errorf("%+v", last)
	}
	pending := last.Deliveries[0].ID
	var d delivery
	s.post(hooks+"/deliveries/"+pending+"/cancel", nil).ok(&d)
	if d.State != "canceled" {
		t.Errorf("%+v", d)
	}
	s.post(hooks+"/deliveries/"+pending+"/cancel", nil).refused(http.StatusConflict, "TaskConflict")
	h.quiet(t)
	s.do("DELETE", hooks+"/endpoints/"+e.ID, nil).is(http.StatusNoContent, nil)
	s.post(hooks+"/deliveries/"+id+"/replay", nil).refused(http.StatusConflict, "TaskConflict")
	if got := s.settled(page.Deliveries[0].ID); got.State != "dead" || got.Endpoint != e.ID {
		t.Errorf("after its endpoint was deleted: %+v", got)
	}
	var m struct {
		Body json.RawMessage
	}
	s.get(hooks + "/messages/" + first.NoticeID).ok(&m)
	if string(m.Body) != string(first.body) {
		t.Errorf("stored %s, sent %s", m.Body, first.body)
	}
	var list struct {
		Messages []struct{ ID string }
	}
	s.get(hooks + "/messages?type=101&agent=" + first.SID).ok(&list)
	if len(list.Messages) != 1 || list.Messages[0].ID != first.NoticeID {
		t.Errorf("%+v", list)
	}
	var types struct {
		Types []struct{ Name string } `json:"event_types"`
	}
	if s.get(hooks + "/event-types").ok(&types); len(types.Types) < 12 {
		t.Errorf("%+v", types)
	}
}

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

// verifiedBy tells whether a v1a signature of the call is of the key, a whpk_ one.
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

// TestListsOfWebhooks: each filter of the lists lets through what it names and nothing else.
func TestListsOfWebhooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	h, other := newHook(t), newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined", "102"}})
	s.hookTo(other, map[string]any{"events": []string{"agent.left"}})
	ids := []string{s.join("a", nil), s.join("b", nil)}
	for _, id := range ids {
		s.post(agent(id, "/leave"), nil).ok(nil)
	}
	for range 4 {
		h.next(t)
	}
	for range 2 {
		other.next(t)
	}
	count := func(path string) (n int, last deliveryPage) {
		t.Helper()
		s.get(hooks + path).ok(&last)
		return len(last.Deliveries), last
	}
	_, all := count("/deliveries")
	first, last := all.Deliveries[len(all.Deliveries)-1], all.Deliveries[0]
	for query, want := range map[string]int{
		"": 6, "endpoint=" + e.ID: 4, "endpoint=none": 0, "agent=" + ids[0]: 3, "type=agent.joined": 2, "type=101,agent.left": 6, "type=agent.*&endpoint=" + e.ID: 4, "type=103": 0,
		"message=" + last.MessageID: 2, "state=pending,delivered": 6, "state=dead": 0, "from=1": 6, "from=99999999999999": 0,
		"to=" + strconv.FormatInt(first.CreatedAt, 10): 0, "to=" + strconv.FormatInt(first.CreatedAt+1, 10) + "&agent=" + ids[0]: 1, "limit=500": 6,
	} {
		if n, _ := count("/deliveries?" + query); n != want {
			t.Errorf("%q: %d deliveries, want %d", query, n, want)
		}
	}
	seen := map[string]bool{}
	for cursor, pages := "", 0; ; pages++ {
		n, page := count("/deliveries?limit=4&cursor=" + cursor)
		for _, d := range page.Deliveries {
			seen[d.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if n == 0 || pages > 3 {
			t.Fatalf("page %d holds %d and leads on", pages, n)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the pages hold %d deliveries", len(seen))
	}
	for query, want := range map[string]int{"": 4, "type=101": 2, "agent=" + ids[1]: 2, "agent=" + ids[1] + "&type=agent.left": 1, "to=1": 0} {
		var page struct{ Messages []struct{ ID string } }
		if s.get(hooks + "/messages?" + query).ok(&page); len(page.Messages) != want {
			t.Errorf("%q: %d events, want %d", query, len(page.Messages), want)
		}
	}
}
