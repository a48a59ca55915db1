package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestEndpointsThroughTheAPI: an endpoint's secret is shown once, changes keep fields that they do
// not name, and no change overwrites a concurrent one.
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
	s.do("DELETE", path, nil).is(http.StatusNoContent, nil) // also when it is gone
	s.get(path).refused(http.StatusNotFound, "TaskNotFound", e.ID)
}

// TestEndpointOnce: repeated calls with an Idempotency-Key create one endpoint and one secret,
// which is shown once.
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

// TestBadEndpoints: each refusal names the field and what is allowed, and never repeats a value
// that may be a secret.
func TestBadEndpoints(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, nil)
	for body, want := range map[string][]string{
		`{}`:                                {"url"},
		`null`:                              {"null"},
		`[]`:                                {"array"},
		`{"url":5}`:                         {"url", "number", "a string, not"},
		`{"url":"ftp://h.example/"}`:        {"url", "http"},
		`{"url":"https://u:pw@h.example/"}`: {"url", "user"},
		`{"url":"http://h.example:25/"}`:    {"url", "port"},
		`{"url":"http://169.254.169.254/latest/meta-data/"}`:              {"url", "169.254.169.254", "HEARDLOG_OUTBOUND_ALLOW"},
		`{"url":"http://[::ffff:10.0.0.1]/"}`:                             {"url", "10.0.0.1"},
		`{"url":"http://10.1.2.3/"}`:                                      {"url", "10.1.2.3"},
		`{"url":"URL","what":1}`:                                          {"what", "not a field"},
		`{"url":"URL","events":["agent.gone"]}`:                           {"events[0]", "agent.*"},
		`{"url":"URL","events":"agent.left"}`:                             {"events", "string"},
		`{"url":"URL","headers":{"webhook-id":"x"}}`:                      {"headers.webhook-id", "Heardlog"},
		`{"url":"URL","headers":{"Host":"x"}}`:                            {"headers.Host"},
		`{"url":"URL","headers":{"X-A":"a\r\nB: c"}}`:                     {"headers.X-A", "printable"},
		`{"url":"URL","headers":{"X-A":"[secret]"}}`:                      {"headers.X-A", "stands for"},
		`{"url":"URL","headers":{"X A":"a"}}`:                             {"headers", "name"},
		`{"url":"URL","auth":{"bearer":"a","username":"b"}}`:              {"auth", "either"},
		`{"url":"URL","auth":{"token":"a"}}`:                              {"auth.token", "not a field"},
		`{"url":"URL","client_cert":{"cert":"x","key":"y"}}`:              {"client_cert", "PEM"},
		`{"url":"URL","payload":"slim"}`:                                  {"payload", "thin"},
		`{"url":"URL","max_body_bytes":10}`:                               {"max_body_bytes", "1024"},
		`{"url":"URL","max_body_bytes":0}`:                                {"max_body_bytes", "null"},
		`{"url":"URL","retry_schedule":[5,0.5]}`:                          {"retry_schedule[1]", "1 to 604800"},
		`{"url":"URL","retry_schedule":[1e300]}`:                          {"retry_schedule[0]", "604800"},
		`{"url":"URL","timeout":21}`:                                      {"timeout", "1 to 20 seconds"},
		`{"url":"URL","timeout":-1}`:                                      {"timeout"},
		`{"url":"URL","timeout":0.0004}`:                                  {"timeout", "1 to 20 seconds"},
		`{"url":"URL","max_age":0.0001}`:                                  {"max_age", "60 to 2592000 seconds"},
		`{"url":"URL","max_in_flight":1.5}`:                               {"max_in_flight", "a whole number, not"},
		`{"url":"URL","events":[5]}`:                                      {"events", "a string, not"},
		`{"url":"URL","max_age":1}`:                                       {"max_age", "60 to"},
		`{"url":"URL","max_in_flight":101}`:                               {"max_in_flight", "100"},
		`{"url":"URL","rate_limit":0}`:                                    {"rate_limit", "null"},
		`{"url":"URL","rate_limit":1e9}`:                                  {"rate_limit", "1000"},
		`{"url":"URL","description":"a\u0000b"}`:                          {"description", "control"},
		`{"url":"URL","secrets":[{"secret":"v1,whsec_x"}]}`:               {"secrets[0].secret", "v1,"},
		`{"url":"URL","secrets":[{"kind":"rsa"}]}`:                        {"secrets[0].kind", "ed25519"},
		`{"url":"URL","secrets":[{"expires_at":"2020-01-01T00:00:00Z"}]}`: {"secrets[0].expires_at", "in the future"},
		`{"url":"URL","secrets":[{"what":1}]}`:                            {"secrets", "what"},
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
		"/deliveries?limit=501": "limit", "/deliveries?state=lost": "state", "/deliveries?type=agent.gone": "type", "/deliveries?cursor=x": "cursor", "/deliveries?since=1h&until=2h": "until",
		"/messages?limit=x": "limit", "/messages?cursor=1-x": "cursor", "/messages?since=-1": "since",
	} {
		s.get(hooks+path).refused(http.StatusBadRequest, "InvalidFieldValue", want)
	}
	for body, want := range map[string]string{
		`{"filter":{"states":["lost"]}}`: "filter.states", `{"filter":{"type":"x"}}`: "type", `{"per_second":-1}`: "per_second", `{"per_second":1e-300}`: "0.01 to 1000", `{"filter":{"since":"1h","until":"2h"}}`: "filter.until", `{"filter":{"types":["x"]}}`: "filter.types",
	} {
		s.post(hooks+"/replays", body).refused(http.StatusBadRequest, "InvalidFieldValue", want)
	}
}
