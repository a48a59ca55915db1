package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// TestFault34Age checks that the age of the oldest waiting delivery grows with the clock, whatever
// stops the deliveries and whatever is tried meanwhile.
func TestFault34Age(t *testing.T) {
	t.Parallel()
	answers := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, tt := range map[string]struct {
		url      string // of the endpoint; "" is a receiver that answer answers
		answer   http.HandlerFunc
		endpoint func(*webhook.Endpoint)
		tries    int  // attempts to wait for before the clock goes on
		stop     bool // the worker
		events   int  // 0 is one
	}{
		"failing":         {answer: answers(500), tries: 1},
		"throttling":      {answer: answers(429), tries: 1},
		"refusing":        {url: dead, tries: 1},
		"not allowed":     {url: "http://10.0.0.1/", tries: 1},
		"silent":          {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, tries: 1},
		"breaker open":    {answer: answers(503), tries: webhook.DefaultBreakAfter, events: 3 * webhook.DefaultBreakAfter},
		"rate limit":      {endpoint: func(e *webhook.Endpoint) { e.RateLimit = webhook.MinRateLimit }, tries: 1, events: 20},
		"switched off":    {answer: answers(500), tries: 1, endpoint: func(e *webhook.Endpoint) { e.Disabled = true }},
		"worker gone":     {answer: answers(500), tries: 1, stop: true},
		"nothing claimed": {stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := hits(t, tt.answer)
			if tt.url != "" {
				url = tt.url
			}
			s := newSite(t)
			s.endpoint("e", url, tt.endpoint)
			if name == "switched off" {
				s.endpoint("e", url, nil)
			}
			for i := range max(tt.events, 1) {
				s.emit(s.event(fmt.Sprint("n", i)))
			}
			reg := prometheus.NewRegistry()
			g := guard.New(guard.Options{AllowLoopback: true})
			if tt.tries > 0 || !tt.stop {
				stop := s.work(func(c *webhook.SenderConfig) { c.Dial, c.Total = g.DialContext, 300*time.Millisecond },
					func(c *webhook.WorkerConfig) { c.Registerer = reg })
				for range tt.tries {
					s.next()
				}
				if tt.stop {
					stop()
				}
			} else if _, err := webhook.NewWorker(webhook.WorkerConfig{Queue: s, Sender: newSender(t, nil), Now: s.now, Registerer: reg}); err != nil {
				t.Fatal(err)
			}
			if name == "switched off" {
				s.endpoint("e", url, tt.endpoint)
			}
			for hours := 1; hours <= 3; hours++ {
				s.pass(time.Hour)
				if got := gauge(t, reg, "heardlog_webhook_oldest_pending_age_seconds"); got < float64(hours)*3600 || got > float64(hours)*3600+600 {
					t.Errorf("%v s after %d hours", got, hours)
				}
			}
		})
	}
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestMaxAgeBeforeTry checks that no attempt starts after an endpoint's max_age, even if the
// delivery was never tried. It ends as dead, and says nothing about the receiver.
func TestMaxAgeBeforeTry(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	limit := func(e *webhook.Endpoint) { e.MaxAge = time.Hour }
	s.endpoint("e", url, limit)
	s.emit(s.event("old"))
	s.endpoint("e", url, func(e *webhook.Endpoint) { limit(e); e.Disabled = true })
	s.pass(2 * time.Hour)
	s.work(nil, nil)
	s.endpoint("e", url, limit)
	r := s.next()
	if r.State != webhook.Dead || !r.Untried || !strings.Contains(r.Reason, "after 0 attempts") || !strings.Contains(r.Reason, "max_age of 1h0m0s") {
		t.Errorf("%+v", r.Result)
	}
	s.emit(s.event("fresh"))
	if h := receiveFrom(t, seen, "the next event"); h.id() != "fresh" {
		t.Errorf("%v was sent", h)
	}
	if r := s.next(); r.State != webhook.Delivered {
		t.Errorf("%+v", r.Result)
	}
	got, tries, err := s.Delivery(t.Context(), siteProject, r.ID)
	if err != nil || got.Attempt != 0 || len(tries) != 0 {
		t.Errorf("%+v, %+v, %v", got, tries, err)
	}
}

// TestMaxAgeOfPacedReplay checks that a paced replay is not too old when its turn comes.
func TestMaxAgeOfPacedReplay(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, func(e *webhook.Endpoint) { e.MaxAge = time.Minute })
	s.emit(s.event("n0"), s.event("n1"), s.event("n2"))
	stop := s.work(nil, nil)
	for range 3 {
		s.next()
		<-seen
	}
	stop()
	s.pass(time.Hour)
	if _, err := s.ReplayAll(t.Context(), webhook.Replay{Filter: webhook.DeliveryQuery{Project: siteProject}, NowMS: s.now().UnixMilli(), PerSecond: 1.0 / 3600}); err != nil {
		t.Fatal(err)
	}
	s.work(nil, nil)
	for range 3 {
		if r := s.next(); r.State != webhook.Delivered {
			t.Errorf("%+v", r.Result)
		}
		s.pass(time.Hour)
	}
}

// TestTestGoesAtOnce checks that a test event is sent at once: before the backlog of its endpoint,
// despite its open breaker, and beside attempts that hang.
func TestTestGoesAtOnce(t *testing.T) {
	t.Parallel()
	var hold sync.WaitGroup
	hold.Add(1)
	url, seen := hits(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Webhook-Id"), "test") {
			hold.Wait()
		}
	})
	down, refused := hits(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	s := newSite(t)
	s.endpoint("down", down, nil)
	stop := s.work(nil, func(c *webhook.WorkerConfig) { c.BreakAfter = 1 })
	s.emit(s.event("fails"))
	receiveFrom(t, refused, "a failure")
	s.next()
	for i := range 9 { // more than all attempts of a project at a time, and as many again behind each
		s.endpoint(fmt.Sprint("e", i), url, nil)
	}
	var list []memory.Event
	for i := range 20 {
		list = append(list, s.event(fmt.Sprint("n", i)))
	}
	s.emit(list...)
	for range webhook.DefaultInFlight / 2 {
		receiveFrom(t, seen, "an attempt that hangs")
	}
	s.send("test1", "e0")
	if h := receiveFrom(t, seen, "the test"); h.id() != "test1" {
		t.Errorf("%v came before the test", h)
	}
	if r := s.next(); r.EventID != "test1" || r.State != webhook.Delivered {
		t.Errorf("%+v", r)
	}
	s.send("test2", "down")
	if h := receiveFrom(t, refused, "the test of an endpoint that is held back"); h.id() != "test2" {
		t.Errorf("%v came before the test", h)
	}
	hold.Done()
	stop()
}
