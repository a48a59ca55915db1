package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		reg := prometheus.NewPedanticRegistry()
		want := func(text string, names ...string) {
			t.Helper()
			if err := testutil.GatherAndCompare(reg, strings.NewReader(text), names...); err != nil {
				t.Error(err)
			}
		}
		q.add("a", 3)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			switch d.ID {
			case 1:
				return taken(d)
			case 2:
				return webhook.Outcome{Attempt: webhook.Attempt{ErrorClass: webhook.ClassBroken, DurationMS: 30}}
			}
			return failed(d)
		}, func(c *webhook.WorkerConfig) { c.Registerer = reg })
		synctest.Wait()
		want(`
			# HELP heardlog_webhook_attempts_total Attempts by outcome: ok, or the class of what went wrong.
			# TYPE heardlog_webhook_attempts_total counter
			heardlog_webhook_attempts_total{outcome="broken"} 1
			heardlog_webhook_attempts_total{outcome="ok"} 1
			heardlog_webhook_attempts_total{outcome="status_5xx"} 1
			# HELP heardlog_webhook_backlog Deliveries that wait (pending, those of disabled endpoints included) or were given up (dead).
			# TYPE heardlog_webhook_backlog gauge
			heardlog_webhook_backlog{state="dead"} 1
			heardlog_webhook_backlog{state="pending"} 1
			# HELP heardlog_webhook_in_flight Attempts under way.
			# TYPE heardlog_webhook_in_flight gauge
			heardlog_webhook_in_flight 0
			# HELP heardlog_webhook_oldest_due_age_seconds How long the earliest pending delivery has been due; nothing is excluded.
			# TYPE heardlog_webhook_oldest_due_age_seconds gauge
			heardlog_webhook_oldest_due_age_seconds 0
		`, "heardlog_webhook_attempts_total", "heardlog_webhook_backlog", "heardlog_webhook_in_flight", "heardlog_webhook_oldest_due_age_seconds")
		if n, err := testutil.GatherAndCount(reg, "heardlog_webhook_attempt_duration_seconds"); n != 1 || err != nil {
			t.Errorf("duration: %d, %v", n, err)
		}
		stop()
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// TestMetricsAgeRises checks that the ages grow whatever stops the deliveries: worker stopped,
// endpoint disabled, store failing, receiver failing.
func TestMetricsAgeRises(t *testing.T) {
	t.Parallel()
	age := func(t *testing.T, reg *prometheus.Registry, name string) float64 {
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
		t.Fatal("no such metric")
		return 0
	}
	const (
		due, pending = "heardlog_webhook_oldest_due_age_seconds", "heardlog_webhook_oldest_pending_age_seconds"
		// Each attempt sets a new due time, so the age of the backlog shows it.
		failing = "receiver fails"
	)
	for name, stall := range map[string]func(t *testing.T, q *fakeQueue, stop func() time.Duration){
		failing:          func(*testing.T, *fakeQueue, func() time.Duration) {},
		"worker stopped": func(_ *testing.T, _ *fakeQueue, stop func() time.Duration) { stop() },
		"endpoint off": func(t *testing.T, q *fakeQueue, _ func() time.Duration) {
			if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", Disabled: true}); err != nil {
				t.Error(err)
			}
		},
		"claims fail": func(_ *testing.T, q *fakeQueue, _ func() time.Duration) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.onClaim = func(context.Context) error { return errors.New("down") }
		},
		"store down": func(_ *testing.T, q *fakeQueue, _ func() time.Duration) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.onClaim = func(context.Context) error { return errors.New("down") }
			q.onBacklog = func() error { return errors.New("down") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, reg := newQueue(), prometheus.NewRegistry()
				q.add("a", 1)
				stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return failed(d) },
					func(c *webhook.WorkerConfig) { c.Registerer = reg })
				synctest.Wait()
				age(t, reg, due) // the last scrape before it stands still
				stall(t, q, stop)
				time.Sleep(time.Hour)
				if got := age(t, reg, due); got < 3500 && name != failing {
					t.Errorf("%v s after an hour", got)
				}
				if got := age(t, reg, pending); got < 3500 {
					t.Errorf("the oldest has waited for %v s after an hour", got)
				}
			})
		})
	}
}

func TestNewWorkerRefuses(t *testing.T) {
	t.Parallel()
	if _, err := webhook.NewWorker(webhook.WorkerConfig{}); fault.CodeOf(err) != fault.Missing {
		t.Errorf("no queue: %v", err)
	}
	c := webhook.WorkerConfig{Queue: newQueue(), Sender: fakeSender{}, Registerer: prometheus.NewRegistry()}
	if _, err := webhook.NewWorker(c); err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.NewWorker(c); err == nil {
		t.Error("two workers share one registry")
	}
}

// TestWorkerLog checks that neither the URL's query nor a secret gets into the log, at any level.
func TestWorkerLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 4)
		if err := q.PutEndpoint(t.Context(), webhook.Endpoint{
			ID: "a", URL: "https://bob:hunter2@h.test/hook?token=hunter2", Secrets: []webhook.SigningSecret{{Value: "hunter2"}},
		}); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			switch d.ID {
			case 1:
				return taken(d)
			case 2:
				o := failed(d)
				o.Status = 410
				return o
			case 3:
				o := failed(d)
				o.Response = []byte("hunter2")
				return o
			}
			panic("mistake")
		}, func(c *webhook.WorkerConfig) { c.Log = zerolog.New(&syncWriter{w: &log}).Level(zerolog.TraceLevel) })
		synctest.Wait()
		stop()
		if strings.Contains(log.String(), "hunter2") || strings.Contains(log.String(), "token") {
			t.Errorf("the log holds a secret:\n%s", log.String())
		}
		for _, want := range []string{`"url":"https://h.test/hook"`, `"level":"debug"`, `"level":"warn"`, `"level":"error"`, `"next":`, `"endpoint_disabled":`, "panicked"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log.String())
			}
		}
	})
}
