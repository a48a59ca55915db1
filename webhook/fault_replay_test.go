package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// send stores a test event for the endpoint.
func (s *site) send(id, endpoint string) webhook.Record {
	s.t.Helper()
	r, err := s.Send(s.t.Context(), webhook.Event{
		ID: id, Type: event.Test, Project: siteProject, CreatedMS: s.now().UnixMilli(), Body: fmt.Appendf(nil, `{"noticeId":%q}`, id),
	}, endpoint)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// TestFault24TestEvent checks that a test event goes through the same worker, signatures, headers,
// guard and log as all others.
func TestFault24TestEvent(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, func(e *webhook.Endpoint) { e.Events = []string{"agent.message"} })
	s.endpoint("within", "http://169.254.169.254/latest/meta-data/", nil)
	g := guard.New(guard.Options{AllowLoopback: true})
	s.work(func(c *webhook.SenderConfig) { c.Dial = g.DialContext }, nil)
	s.send("t1", "e")
	h := receiveFrom(t, seen, "the test event")
	if h.id() != "t1" || h.header.Get("Webhook-Attempt") != "1" {
		t.Errorf("%v", h)
	}
	if err := verifyStandard(whsec, h.header, []byte(h.body), s.now()); err != nil {
		t.Error(err)
	}
	if err := webhook.VerifyAgora(whsec, h.header, []byte(h.body)); err != nil {
		t.Error(err)
	}
	if r := s.next(); r.State != webhook.Delivered {
		t.Errorf("%+v", r.Result)
	}
	within := s.send("t2", "within")
	if r := s.next(); r.State == webhook.Delivered || r.Try.ErrorClass != webhook.ClassBlocked {
		t.Errorf("%+v", r.Result)
	}
	got, tries, err := s.Delivery(t.Context(), siteProject, within.ID)
	if err != nil || len(tries) != 1 || got.LastClass != webhook.ClassBlocked || !strings.Contains(tries[0].Error, guard.Setting) {
		t.Errorf("%+v, %+v, %v", got, tries, err)
	}
}

// TestFault31Replay checks that a delivery that is delivered, dead or waiting can be sent again any
// number of times, with the same ID and bytes and attempts counted from 1.
func TestFault31Replay(t *testing.T) {
	t.Parallel()
	var answer atomic.Int32
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) })
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.work(nil, nil)
	replay := func(id int64) {
		t.Helper()
		if _, err := s.Replay(t.Context(), siteProject, id, s.now().UnixMilli(), ""); err != nil {
			t.Fatal(err)
		}
		s.emit() // wakes the worker
	}
	for what, status := range map[string]int32{"delivered": 200, "dead": 413, "pending": 500} {
		answer.Store(status)
		s.emit(s.event(what))
		first := receiveFrom(t, seen, what)
		old := s.next()
		answer.Store(200)
		for range 2 { // twice in a row sends twice
			replay(old.ID)
			h := receiveFrom(t, seen, what+" again")
			if h.id() != what || h.body != first.body || h.header.Get("Webhook-Attempt") != "1" {
				t.Errorf("%s: %v after %v", what, h, first)
			}
			if err := verifyStandard(whsec, h.header, []byte(h.body), s.now()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if r := s.next(); r.State != webhook.Delivered || r.ID == old.ID {
				t.Errorf("%s: %+v", what, r)
			}
		}
		now, tries, err := s.Delivery(t.Context(), siteProject, old.ID)
		if err != nil || now.State != old.State || len(tries) != 1 {
			t.Errorf("%s: the first delivery is now %+v, %v", what, now, err)
		}
	}
	// The waiting one is still tried when it is due.
	s.pass(2 * time.Hour)
	if h, r := receiveFrom(t, seen, "the retry"), s.next(); h.id() != "pending" || h.header.Get("Webhook-Attempt") != "2" || r.State != webhook.Delivered {
		t.Errorf("%v, %+v", h, r)
	}
}

// TestFault31ReplayByFilter checks that a replay by filter sends what its dry run counted, at its
// pace, and nothing else.
func TestFault31ReplayByFilter(t *testing.T) {
	t.Parallel()
	const n = 40
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.endpoint("f", url, nil)
	var list []memory.Event
	for i := range n {
		e := s.event(fmt.Sprint("n", i))
		if i%2 == 0 {
			e.Type = event.Joined
		}
		list = append(list, e)
	}
	s.emit(list...)
	stop := s.work(nil, nil)
	for range 2 * n {
		s.next()
		<-seen
	}
	stop()
	again := webhook.Replay{
		Filter: webhook.DeliveryQuery{Project: siteProject, Endpoint: "f", Types: []int{event.Joined}, States: []webhook.DeliveryState{webhook.Delivered}},
		NowMS:  s.now().UnixMilli(), PerSecond: 1.0 / 3600, DryRun: true,
	}
	count := func() int {
		t.Helper()
		got, err := s.ReplayAll(t.Context(), again)
		if err != nil || got.More {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Count
	}
	dry := count()
	s.wantBacklog(0, 0)
	again.DryRun = false
	if made := count(); dry != n/2 || made != dry {
		t.Errorf("%d counted, %d made, want %d", dry, made, n/2)
	}
	s.work(nil, nil)
	for sent := 1; sent <= n/2; sent++ {
		if r := s.next(); r.Endpoint.ID != "f" || r.Type != event.Joined || r.State != webhook.Delivered {
			t.Errorf("%+v", r)
		}
		h := receiveFrom(t, seen, "a replay")
		if h.id()[0] != 'n' {
			t.Errorf("%v", h)
		}
		s.wantBacklog(n/2-sent, 0) // the next is not due before its hour
		s.pass(time.Hour)
	}
}

// TestFault31Cancel checks that a canceled delivery is not tried again, but can be replayed.
func TestFault31Cancel(t *testing.T) {
	t.Parallel()
	var answer atomic.Int32
	answer.Store(500)
	url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) })
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	s.work(nil, nil)
	old := s.next()
	<-seen
	if _, err := s.Cancel(t.Context(), siteProject, old.ID, s.now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	s.pass(100 * time.Hour)
	answer.Store(200)
	s.emit(s.event("later"))
	if r := s.next(); r.EventID != "later" {
		t.Errorf("%+v", r)
	}
	s.wantBacklog(0, 0)
	if _, err := s.Replay(t.Context(), siteProject, old.ID, s.now().UnixMilli(), ""); err != nil {
		t.Fatal(err)
	}
	if r := s.next(); r.EventID != "n" || r.State != webhook.Delivered || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
}
