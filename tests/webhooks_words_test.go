package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHookWords: what is wrong is named with its whole path, in bodies and in lists' parameters.
func TestHookWords(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	for body, want := range map[string][2]string{
		`{"url":"URL","secrets":[{},{"foo":1}]}`:           {"secrets[1].foo", "is not a field"},
		`{"url":"URL","secrets":[{"secrt":"x"}]}`:          {"secrets[0].secrt", `did you mean "secret"?`},
		`{"url":"URL","evnts":[]}`:                         {"evnts", `did you mean "events"?`},
		`{"url":"URL","Events":[]}`:                        {"Events", `must be written "events"`},
		`{"url":"URL","retries":1}`:                        {"retries", "known here are: agora_signatures, auth, "},
		`{"url":"URL","auth":{"usrname":"a"}}`:             {"auth.usrname", `did you mean "username"?`},
		`{"url":"URL","secrets":[{"secret":7}]}`:           {"secrets[0].secret", "a string, not"},
		`{"url":"URL","secrets":[{"expires_at":"x"}]}`:     {"secrets[0].expires_at", "must be a time"},
		`{"url":"URL","secrets":{}}`:                       {"secrets", "an array, not"},
		`{"url":"URL","headers":{"X-A":1}}`:                {"headers.X-A", "a string, not"},
		`{"url":"URL","events":["agent.left",1]}`:          {"events[1]", "a string, not"},
		`{"url":"URL","retry_schedule":[1,"x"]}`:           {"retry_schedule[1]", "a number, not"},
		`{"url":"URL","client_cert":{"foo":1}}`:            {"client_cert.foo", "is not a field"},
		`{"url":"URL","secrets":[{"kind":"ed25519"}]}`:     {"agora_signatures", "kind hmac"},
		`{"url":"URL","events":"agent.left"}`:              {"events", "an array, not"},
		`{"url":"URL","events":[` + many(40, `"*"`) + `]}`: {"events", "at most 32"},
	} {
		s.post(hooks+"/endpoints", strings.Replace(body, "URL", h.url, 1)).refused(http.StatusBadRequest, "InvalidFieldValue", want[0]+": ", want[1])
	}
	for body, want := range map[string][2]string{
		`{"filter":{"foo":1}}`:                     {"filter.foo", "is not a field"},
		`{"filter":{"agents":"a"}}`:                {"filter.agents", `did you mean "agent"?`},
		`{"filter":{"endpoint":""}}`:               {"filter.endpoint", "is empty"},
		`{"filter":{"agent":""}}`:                  {"filter.agent", "is empty"},
		`{"filter":{"message":""}}`:                {"filter.message", "is empty"},
		`{"filter":{"types":[]}}`:                  {"filter.types", "must not be an empty list"},
		`{"filter":{"states":[]}}`:                 {"filter.states", "must not be an empty list"},
		`{"filter":{"until":1}}`:                   {"filter.until", "a string"},
		`{"filter":{"since":"x"}}`:                 {"filter.since", "2026-11-23T09:00:00Z"},
		`{"filter":{"since":"24h","until":"25h"}}`: {"filter.until", "must not be before filter.since"},
		`{"filter":{"states":["dead",1]}}`:         {"filter.states[1]", "a string, not"},
		`{"filter":{"types":["x"]}}`:               {"filter.types[0]", "must match an event type"},
		`{"filter":[]}`:                            {"filter", "an object"},
		`{"foo":1}`:                                {"foo", "is not a field"},
	} {
		s.post(hooks+"/replays", body).refused(http.StatusBadRequest, "InvalidFieldValue", want[0]+": ", want[1])
	}
	for _, path := range []string{"/deliveries", "/messages", "/endpoints"} {
		s.get(hooks+path+"?form=1").refused(http.StatusBadRequest, "InvalidFieldValue", "form: ", "is not a parameter")
	}
	s.get(hooks+"/deliveries?state=dead&state=pending").refused(http.StatusBadRequest, "InvalidFieldValue", "state: ", "commas")
	s.get(hooks+"/messages?since=1000000000000000").refused(http.StatusBadRequest, "InvalidFieldValue", "since: ", "7d")
}

func many(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

// TestListsOfASpan: the bounds of lists are times, or say how long ago.
func TestListsOfASpan(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	s.hookTo(h, nil)
	s.join("n", nil)
	h.next(t)
	in := func(hours time.Duration) string { return time.Now().UTC().Add(hours * time.Hour).Format(time.RFC3339) }
	for query, want := range map[string]int{
		"since=" + in(-1): 1, "since=" + in(1): 0, "until=" + in(-1): 0, "since=" + in(-1) + "&until=" + in(1): 1, "since=1h": 1, "until=1h": 0, "since=7d": 1,
	} {
		var page deliveryPage
		s.get(hooks + "/deliveries?type=101&" + query).ok(&page)
		if len(page.Deliveries) != want {
			t.Errorf("%s: %d", query, len(page.Deliveries))
		}
		var list struct{ Messages []any }
		s.get(hooks + "/messages?type=101&" + query).ok(&list)
		if len(list.Messages) != want {
			t.Errorf("%s: %d messages", query, len(list.Messages))
		}
	}
}

// TestAgoraNeedsText: Agora's signatures need a text secret, so an endpoint with only a key pair
// does not get them.
func TestAgoraNeedsText(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	pair := []any{map[string]string{"kind": "ed25519"}}
	e := s.hookTo(h, map[string]any{"secrets": pair, "agora_signatures": false})
	path := hooks + "/endpoints/" + e.ID
	s.join("n", nil)
	if got := h.next(t); got.header.Get("Agora-Signature") != "" || !strings.HasPrefix(got.header.Get("Webhook-Signature"), "v1a,") {
		t.Errorf("%v", got.header)
	}
	s.do("PATCH", path, `{"agora_signatures":true}`).refused(http.StatusBadRequest, "InvalidFieldValue", "agora_signatures", "kind hmac")
	var made struct{ Secret signer }
	s.post(path+"/secrets", `{}`).is(http.StatusCreated, &made)
	s.do("PATCH", path, `{"agora_signatures":true}`).ok(nil)
	s.do("DELETE", path+"/secrets/"+made.Secret.ID, nil).refused(http.StatusConflict, "TaskConflict", "agora_signatures", "kind hmac")
}
