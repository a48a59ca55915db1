package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fixed returns the endpoint of the settings.
func (s *server) fixed() endpoint {
	s.t.Helper()
	var list struct{ Endpoints []endpoint }
	s.get(hooks + "/endpoints").ok(&list)
	if len(list.Endpoints) != 1 {
		s.t.Fatalf("%d endpoints", len(list.Endpoints))
	}
	return list.Endpoints[0]
}

// TestFixedEndpointStaysDisabled: a receiver that answered 410 gets nothing more, also after a
// restart, until the settings change or the endpoint is enabled.
func TestFixedEndpointStaysDisabled(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	h.status.Store(http.StatusGone)
	s := start(t, "HEARDLOG_WEBHOOK_URL="+h.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	path := hooks + "/endpoints/" + s.fixed().ID
	test := func() {
		t.Helper()
		var d delivery
		s.post(path+"/test", nil).is(http.StatusAccepted, &d)
		if d := s.settled(d.ID); d.State != "dead" || !strings.Contains(d.Reason, "410") {
			t.Errorf("%+v", d)
		}
	}
	want := func(disabled bool, when string) {
		t.Helper()
		e := s.fixed()
		// A delivery is seen as dead a moment before its endpoint is seen as disabled.
		for end := time.Now().Add(patience); e.Disabled != disabled && time.Now().Before(end); e = s.fixed() {
		}
		if e.Disabled != disabled || disabled != strings.Contains(e.Reason, "410") {
			t.Errorf("%s: disabled %v (%s)", when, e.Disabled, e.Reason)
		}
	}
	test()
	want(true, "after 410")
	s = s.again()
	want(true, "after a restart")
	s.post(path+"/enable", nil).ok(nil)
	s = s.again()
	want(false, "enabled, and restarted")
	test()
	want(true, "after another 410")
	s.env = append(s.env, "HEARDLOG_WEBHOOK_SECRET=another")
	s = s.again()
	want(false, "with another secret")
	test()
	s.env = append(s.env, "HEARDLOG_WEBHOOK_URL="+h.url+"/other")
	s = s.again()
	want(false, "with another URL")
}

// TestOthersAreTold: changes of one endpoint's state are events for the other endpoints that want
// them.
func TestOthersAreTold(t *testing.T) {
	t.Parallel()
	gone, watch, plain := newHook(t), newHook(t), newHook(t)
	gone.status.Store(http.StatusGone)
	s := start(t)
	e := s.hookTo(gone, map[string]any{"events": []string{"agent.joined", "delivery.*", "endpoint.*"}, "description": "the one that goes"})
	s.hookTo(watch, map[string]any{"events": []string{"delivery.dead", "10012"}})
	s.hookTo(plain, map[string]any{"events": []string{"agent.left"}})
	id := s.join("told", nil)
	got := map[int]call{}
	for range 2 {
		c := watch.next(t)
		got[c.EventType] = c
	}
	if text := string(got[10012].body); !strings.Contains(text, `"endpoint_id":"`+e.ID+`"`) || !strings.Contains(text, "410 Gone") || !strings.Contains(text, "the one that goes") {
		t.Errorf("endpoint.disabled: %s", text)
	}
	if text := string(got[10011].body); !strings.Contains(text, `"endpoint_id":"`+e.ID+`"`) || !strings.Contains(text, `"agent_id":"`+id+`"`) || !strings.Contains(text, `"event_type":101`) {
		t.Errorf("delivery.dead: %s", text)
	}
	s.stop()
	watch.quiet(t)
	plain.quiet(t)
	if n := len(gone.got); n != 1 {
		t.Errorf("the endpoint that is gone got %d", n)
	}
}

// TestWebhookRetention: what has ended is forgotten with its event after its time, what waits is
// not.
func TestWebhookRetention(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"its own": {"HEARDLOG_WEBHOOK_RETENTION=1ms"}, "that of agents, for what tells of none": {"HEARDLOG_WEBHOOK_RETENTION=0", "HEARDLOG_RETENTION=1ms"},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); webhookRetention(t, settings...) })
	}
}

func webhookRetention(t *testing.T, settings ...string) {
	t.Helper()
	well, ill := newHook(t), newHook(t)
	ill.status.Store(http.StatusInternalServerError)
	s := start(t, settings...)
	a, b := s.hookTo(well, nil), s.hookTo(ill, nil)
	var one, two delivery
	s.post(hooks+"/endpoints/"+a.ID+"/test", nil).is(http.StatusAccepted, &one)
	s.post(hooks+"/endpoints/"+b.ID+"/test", nil).is(http.StatusAccepted, &two)
	s.settled(one.ID)
	s.until(two.ID, func(d delivery) bool { return len(d.Attempts) > 0 })
	s = s.again() // a sweep is what it begins with
	for end := time.Now().Add(patience); s.get(hooks+"/deliveries/"+one.ID).status != http.StatusNotFound; {
		if time.Now().After(end) {
			t.Fatal("a delivery that was done is kept")
		}
	}
	s.get(hooks+"/messages/"+one.MessageID).is(http.StatusNotFound, nil)
	var d delivery
	if s.get(hooks + "/deliveries/" + two.ID).ok(&d); d.State != "pending" {
		t.Errorf("what waits is %+v", d)
	}
}

// TestWebhookProxy: with a proxy in the settings, every webhook goes through it, and its password
// is not shown.
func TestWebhookProxy(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Proxy-Authorization"))
	}))
	t.Cleanup(proxy.Close)
	s := start(t, "HEARDLOG_WEBHOOK_PROXY=http://me:proxy-password@"+strings.TrimPrefix(proxy.URL, "http://"))
	var e endpoint
	s.post(hooks+"/endpoints", map[string]any{"url": "http://receiver.invalid/hook"}).is(http.StatusCreated, &e)
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, &d)
	if d := s.settled(d.ID); d.State != "delivered" {
		t.Errorf("%+v", d)
	}
	if got := <-asked; got != "POST http://receiver.invalid/hook Basic bWU6cHJveHktcGFzc3dvcmQ=" {
		t.Errorf("the proxy was asked %q", got)
	}
	s.stop()
	if strings.Contains(s.log.String(), "proxy-password") {
		t.Error("the log shows the proxy's password")
	}
}
