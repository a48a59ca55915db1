package tests

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// hookCalls lists every call about webhooks that needs credentials, with a valid body. {e} is an
// endpoint, {s} its secret, {d} a delivery and {m} a message.
var hookCalls = []struct {
	method, path string
	body         any
}{
	{"GET", "/event-types", nil},
	{"POST", "/endpoints", `{"url":"https://hooks.example.com/"}`},
	{"GET", "/endpoints", nil},
	{"GET", "/endpoints/{e}", nil},
	{"PATCH", "/endpoints/{e}", `{"description":"x"}`},
	{"PUT", "/endpoints/{e}", `{"url":"https://hooks.example.com/"}`},
	{"POST", "/endpoints/{e}/secrets", `{}`},
	{"DELETE", "/endpoints/{e}/secrets/{s}", nil},
	{"POST", "/endpoints/{e}/enable", nil},
	{"POST", "/endpoints/{e}/disable", nil},
	{"POST", "/endpoints/{e}/test", nil},
	{"GET", "/messages", nil},
	{"GET", "/messages/{m}", nil},
	{"GET", "/deliveries", nil},
	{"GET", "/deliveries/{d}", nil},
	{"POST", "/deliveries/{d}/replay", nil},
	{"POST", "/deliveries/{d}/cancel", nil},
	{"POST", "/replays", `{"dry_run":true}`},
	{"DELETE", "/endpoints/{e}", nil},
}

// TestWebhooksOfAnother: another project's endpoints and deliveries are answered like missing ones
// and are in no list.
func TestWebhooksOfAnother(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	h := newHook(t)
	alice, bob := []string{"Authorization", "Bearer wonder"}, []string{"Authorization", "Bearer builder"}
	e := s.hookTo(h, nil, alice...)
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, alice...).is(http.StatusAccepted, &d)
	s.settled(d.ID, alice...)
	h.next(t)
	mine := strings.NewReplacer("{e}", e.ID, "{s}", e.Secrets[0].ID, "{d}", d.ID, "{m}", d.MessageID)
	none := strings.NewReplacer("{e}", "x"+e.ID[1:], "{s}", e.Secrets[0].ID, "{d}", "999", "{m}", "x"+d.MessageID[1:])
	for _, c := range hookCalls {
		s.do(c.method, hooks+mine.Replace(c.path), c.body).refused(http.StatusUnauthorized, "InvalidPermission")
		if !strings.Contains(c.path, "{") {
			continue
		}
		foreign, missing := s.do(c.method, hooks+mine.Replace(c.path), c.body, bob...), s.do(c.method, hooks+none.Replace(c.path), c.body, bob...)
		if c.method == "DELETE" { // which does not show whether there was anything
			foreign.is(http.StatusNoContent, nil)
			missing.is(http.StatusNoContent, nil)
			var kept endpoint
			if s.get(hooks+"/endpoints/"+e.ID, alice...).ok(&kept); len(kept.Secrets) != len(e.Secrets) {
				t.Errorf("%s %s of another project: the endpoint has %d secrets", c.method, c.path, len(kept.Secrets))
			}
			continue
		}
		foreign.refused(http.StatusNotFound, "TaskNotFound")
		missing.refused(http.StatusNotFound, "TaskNotFound")
		words := func(a answer, r ...string) string {
			return strings.NewReplacer(append(r, "999", "D")...).Replace(string(a.body))
		}
		if a, b := words(foreign, e.ID, "E", d.MessageID, "M", `"`+d.ID+`\"`, `D"`), words(missing, "x"+e.ID[1:], "E", "x"+d.MessageID[1:], "M"); len(a) != len(b) && a != b {
			t.Errorf("%s %s: another's is answered %s, what there is not %s", c.method, c.path, a, b)
		}
	}
	for _, path := range []string{"/endpoints", "/messages", "/deliveries", "/deliveries?endpoint=" + e.ID, "/messages?type=*"} {
		if got := s.get(hooks+path, bob...).ok(nil); strings.Contains(string(got.body), e.ID) || strings.Contains(string(got.body), d.MessageID) {
			t.Errorf("%s shows another's: %s", path, got.body)
		}
	}
	var n struct{ Count int }
	s.post(hooks+"/replays", `{"dry_run":true,"filter":{"states":["delivered","dead","pending","canceled"]}}`, bob...).ok(&n)
	if n.Count != 0 {
		t.Errorf("bob would replay %d of alice's", n.Count)
	}
	h.quiet(t)
	open, limited := start(t), start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, c := range hookCalls {
		open.do(c.method, hooks+mine.Replace(c.path), c.body, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission", "evil.example")
		for limited.do(c.method, hooks+mine.Replace(c.path), c.body).status != http.StatusTooManyRequests {
		}
	}
	open.get(hooks+"/fetch/x", "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission", "evil.example")
}

// TestEndpointBounds: a project has so many endpoints, and bodies are so long.
func TestEndpointBounds(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=2000")
	h := newHook(t)
	e := s.hookTo(h, nil)
	for i := range webhook.MaxEndpoints - 1 {
		s.hookTo(h, map[string]any{"description": fmt.Sprint(i)})
	}
	s.post(hooks+"/endpoints", map[string]any{"url": h.url}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", fmt.Sprint(webhook.MaxEndpoints))
	long := `{"url":"` + strings.Repeat("x", 2000) + `"}`
	for _, c := range [][2]string{{"POST", "/endpoints"}, {"PATCH", "/endpoints/" + e.ID}, {"PUT", "/endpoints/" + e.ID}, {"POST", "/endpoints/" + e.ID + "/secrets"}, {"POST", "/replays"}} {
		s.do(c[0], hooks+c[1], long).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "2000")
	}
}

// TestFixedEndpoint: the endpoint of the settings can be read, tested and disabled, but only the
// settings change it.
func TestFixedEndpoint(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	s := start(t, "HEARDLOG_WEBHOOK_URL="+h.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	var list struct{ Endpoints []endpoint }
	got := s.get(hooks + "/endpoints").ok(&list)
	if len(list.Endpoints) != 1 || !list.Endpoints[0].Fixed || strings.Contains(string(got.body), hookSecret) {
		t.Fatalf("%s", got.body)
	}
	path := hooks + "/endpoints/" + list.Endpoints[0].ID
	for _, c := range []struct{ method, path, body string }{
		{"PATCH", "", `{"url":"https://hooks.example.com/"}`}, {"PUT", "", `{"url":"https://hooks.example.com/"}`}, {"DELETE", "", ""}, {"POST", "/secrets", `{}`},
		{"DELETE", "/secrets/" + list.Endpoints[0].Secrets[0].ID, ""},
	} {
		s.do(c.method, path+c.path, c.body).refused(http.StatusConflict, "TaskConflict", "settings")
	}
	s.post(path+"/disable", nil).ok(nil)
	s.post(path+"/enable", nil).ok(nil)
	s.post(path+"/test", nil).is(http.StatusAccepted, nil)
	if c := h.next(t); verified(c, hookSecret) != "0" {
		t.Errorf("%v", c.header)
	}
}

// TestThinEvents: an endpoint for thin events gets a URL to the exact bytes of the event. The URL
// ends with the endpoint and after its time, and opens nothing else.
func TestThinEvents(t *testing.T) {
	t.Parallel()
	needsFile(t)
	s := start(t)
	thin, whole := newHook(t), newHook(t)
	e := s.hookTo(thin, map[string]any{"payload": "thin", "events": []string{"agent.joined"}})
	s.hookTo(whole, map[string]any{"events": []string{"agent.joined"}})
	long := s.hookTo(thin, map[string]any{"max_body_bytes": 1024, "events": []string{"agent.joined"}})
	id := s.join("n", map[string]any{"labels": map[string]string{"long": strings.Repeat("x", 1000)}})
	full := whole.next(t)
	for range 2 { // one endpoint wants all thin, the other takes no more than a KiB
		c := thin.next(t)
		p := thinOf(t, c)
		if !p.Thin || p.Bytes != len(full.body) || p.SHA256 != sum(full.body) || p.AgentID != id || c.NoticeID != full.NoticeID || len(c.body) > 1024 {
			t.Errorf("%s", c.body)
		}
		if got := s.fetch(p.URL).ok(nil); string(got.body) != string(full.body) {
			t.Errorf("fetched %s, the event is %s", got.body, full.body)
		}
		if err := verifyStandard(secret.String(e.Secrets[0].Secret), c.header, c.body, time.Now()); err != nil &&
			verifyStandard(secret.String(long.Secrets[0].Secret), c.header, c.body, time.Now()) != nil {
			t.Error(err)
		}
	}
	var page deliveryPage
	s.get(hooks + "/deliveries?endpoint=" + e.ID).ok(&page)
	if d := s.settled(page.Deliveries[0].ID); !d.Attempts[0].Thin {
		t.Errorf("%+v", d)
	}
	s.post(hooks+"/deliveries/"+page.Deliveries[0].ID+"/replay", nil).is(http.StatusAccepted, nil)
	u := thinOf(t, thin.next(t)).URL
	for _, bad := range []string{u[:len(u)-1], u + "A", u[:len(u)-60] + "AAAA" + u[len(u)-56:], s.url + webhook.FetchPath + "x", s.url + webhook.FetchPath + strings.Repeat("A", 5000)} {
		s.fetch(bad).refused(http.StatusNotFound, "TaskNotFound")
	}
	s.do("DELETE", hooks+"/endpoints/"+e.ID, nil).is(http.StatusNoContent, nil)
	s.fetch(u).refused(http.StatusNotFound, "TaskNotFound", e.ID)

	if token := strings.TrimPrefix(u, s.url+webhook.FetchPath); strings.Contains(s.log.String(), token[20:40]) || !strings.Contains(s.log.String(), `"path":"`+webhook.FetchPath+`{token}"`) {
		t.Error("the log shows the token of a fetch URL")
	}

	s.stop() // a URL of last week, made with the server's own key
	path := strings.TrimPrefix(s.env[1], "HEARDLOG_STORE=sqlite:")
	old := expired(t, path, full.NoticeID, long.ID)
	s = s.again()
	s.get(webhook.FetchPath+old).refused(http.StatusGone, "TaskNotFound", "ended at", "replay")
}

// TestFetchOnce: a fetch URL may be used again while its delivery is pending, and once in all after
// that, on any server. A replay has a fresh one.
func TestFetchOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	s.hookTo(h, map[string]any{"payload": "thin", "events": []string{"agent.joined"}})
	s.join("late", nil)
	c := h.next(t)
	u := thinOf(t, c).URL
	var page deliveryPage
	s.get(hooks + "/deliveries").ok(&page)
	s.settled(page.Deliveries[0].ID)
	s.do(http.MethodHead, strings.TrimPrefix(u, s.url), nil).ok(nil) // does not count as a use
	s.fetch(u).ok(nil)                                               // a receiver may answer first and fetch later
	s.fetch(u).refused(http.StatusGone, "TaskNotFound", "used already", "replay")
	s.do(http.MethodHead, strings.TrimPrefix(u, s.url), nil).is(http.StatusGone, nil)
	s = s.again()
	s.get(u[strings.Index(u, webhook.FetchPath):]).refused(http.StatusGone, "TaskNotFound", "used already")
	s.post(hooks+"/deliveries/"+page.Deliveries[0].ID+"/replay", nil).is(http.StatusAccepted, nil)
	fresh := thinOf(t, h.next(t)).URL
	s.fetch(fresh).ok(nil)
}

// TestFetchWhilePending: a receiver that fails after it has fetched gets the same event again, and
// can fetch its body again.
func TestFetchWhilePending(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	h.status.Store(http.StatusServiceUnavailable)
	e := s.hookTo(h, map[string]any{"payload": "thin", "events": []string{"agent.joined"}, "retry_schedule": []int{1, 3600}})
	s.join("n", nil)
	first := thinOf(t, h.next(t)).URL
	body := s.fetch(first).ok(nil).body
	for range 2 {
		if got := s.fetch(first).ok(nil); string(got.body) != string(body) {
			t.Errorf("%s", got.body)
		}
	}
	h.status.Store(0)
	if second := thinOf(t, h.next(t)).URL; second != first {
		t.Error("the second attempt has another URL")
	}
	var page deliveryPage
	s.get(hooks + "/deliveries?endpoint=" + e.ID).ok(&page)
	s.settled(page.Deliveries[0].ID)
	s.fetch(first).refused(http.StatusGone, "TaskNotFound", "used already")
}

// expired signs a fetch token that has ended, with the key of the store.
func expired(t *testing.T, path, event, endpoint string) string {
	t.Helper()
	st, err := sqlite.Open(context.Background(), sqlite.Options{Path: filepath.Clean(path)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	key, err := st.ServerKey(t.Context(), "fetch")
	if err != nil {
		t.Fatal(err)
	}
	thin, err := webhook.NewThin(key, "https://heardlog.example")
	if err != nil {
		t.Fatal(err)
	}
	return thin.Token(event, endpoint, time.Now().Add(-time.Second))
}
