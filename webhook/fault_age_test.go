package webhook_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/webhook"
)

// In every way of standing still, by the whole way, the age of what waits longest rises with the clock, whatever tries are made meanwhile.
func TestFault34Age(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
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
		"refusing":        {url: "http://" + closed.Addr().String(), tries: 1},
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

// gauge gives the value of a metric without labels.
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
