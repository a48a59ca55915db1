package webhook_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// TestFault30SwitchedOffAndOn checks that an endpoint without a success for days is disabled. What
// waits is kept, the project's other endpoints that subscribe to it get an event, and once it is
// enabled again everything goes on.
func TestFault30SwitchedOffAndOn(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	ill.Store(true)
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	watch, told := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.endpoint("watch", watch, func(e *webhook.Endpoint) { e.Events = []string{"endpoint.disabled"} })
	began := s.now()
	s.emit(s.event("n"))
	s.work(nil, func(c *webhook.WorkerConfig) { c.Schedule = slices.Repeat(webhook.Schedule{time.Hour}, 30) })
	tries, off := 0, ""
	for off == "" {
		r := s.next()
		if r.Endpoint.ID != "e" || r.State != webhook.Pending {
			t.Fatalf("%+v", r)
		}
		tries++
		e, err := webhook.FindEndpoint(t.Context(), s, siteProject, "e")
		if err != nil {
			t.Fatal(err)
		}
		if off = e.DisabledWhy; off == "" {
			s.pass(10 * time.Hour)
		}
	}
	if after := s.now().Sub(began); after < disableAfter || after > disableAfter+20*time.Hour || !strings.Contains(off, "5 days") {
		t.Errorf("switched off after %s: %s", after, off)
	}
	if h := receiveFrom(t, told, "the event of the switch"); !strings.Contains(h.body, `"eventType":10012`) || !strings.Contains(h.body, `"e"`) {
		t.Errorf("%v", h)
	}
	s.next()
	s.wantBacklog(1, 0)
	s.pass(24 * time.Hour)
	s.emit(s.event("meanwhile")) // kept, though nothing is sent
	s.wantBacklog(2, 0)
	for len(seen) > 0 {
		<-seen
	}
	ill.Store(false)
	if _, err := webhook.UpdateEndpoint(t.Context(), s, siteProject, "e", 0, func(e webhook.Endpoint) (webhook.Endpoint, error) {
		e.Disabled = false
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
	attempts, came := map[string]int{}, map[string]bool{}
	for range 2 {
		r := s.next()
		if r.State != webhook.Delivered {
			t.Errorf("%+v", r)
		}
		attempts[r.EventID] = r.Attempt
		came[receiveFrom(t, seen, "what waited").id()] = true
	}
	if attempts["n"] != tries+1 || attempts["meanwhile"] != 1 || !came["n"] || !came["meanwhile"] || len(seen) != 0 {
		t.Errorf("after %d tries: %v, %v came, and %d more", tries, attempts, came, len(seen))
	}
	s.wantBacklog(0, 0)
}

// TestFault22ReservedHeaders checks that reserved headers are not sent even if a store holds them,
// and that none can add a second line.
func TestFault22ReservedHeaders(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	bad := webhook.Endpoint{URL: url, Headers: []webhook.Header{{Name: "X-A", Value: "a\r\nwebhook-id: evil"}}}
	d := delivery(url)
	d.Endpoint.Headers = bad.Headers
	if o := newSender(t, nil).Send(t.Context(), d); o.OK() {
		if h := receiveFrom(t, seen, "the event"); h.id() != "n:1" {
			t.Errorf("%v", h.header)
		}
	}
	if err := bad.Validate(); err == nil {
		t.Error("a header of two lines is taken")
	}
	s := newSite(t)
	s.endpoint("e", url, func(e *webhook.Endpoint) {
		e.Headers = []webhook.Header{{Name: "X-Mine", Value: "kept"}}
		for _, name := range []string{
			"webhook-id", "Webhook-Signature", "webhook-timestamp", "webhook-attempt", "Agora-Signature", "Agora-Signature-V2", "Host",
			"Content-Length", "Content-Type", "Transfer-Encoding", "User-Agent",
		} {
			e.Headers = append(e.Headers, webhook.Header{Name: name, Value: "7"})
		}
	})
	s.emit(s.event("n"))
	s.work(nil, nil)
	r := s.next()
	if r.State != webhook.Delivered { // refusing to send is as good as leaving them out
		if r.Try.ErrorClass != webhook.ClassEndpoint || len(seen) != 0 {
			t.Errorf("%+v", r.Result)
		}
		return
	}
	h := receiveFrom(t, seen, "the event")
	for name, values := range h.header {
		if name != "X-Mine" && slices.Contains(values, "7") || len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
	if h.id() != "n" || h.header.Get("X-Mine") != "kept" {
		t.Errorf("%v", h.header)
	}
	if err := verifyStandard(whsec, h.header, []byte(h.body), s.now()); err != nil {
		t.Error(err)
	}
}
