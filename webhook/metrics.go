package webhook

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds what a scrape waits for the store.
const scrapeTimeout = 2 * time.Second

// metrics is what the worker counts.
type metrics struct {
	attempts    *prometheus.CounterVec
	duration    prometheus.Histogram
	inFlight    prometheus.Gauge
	storeErrors *prometheus.CounterVec
	dead        prometheus.Counter
}

// newMetrics registers the worker's metrics; an error means that another worker uses the registry.
func newMetrics(reg prometheus.Registerer, q Queue, g *gates, now func() time.Time) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_webhook_attempts_total", Help: "Attempts by outcome: ok, or the class of what went wrong.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_webhook_attempt_duration_seconds", Help: "Time that attempts took.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30},
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "heardlog_webhook_in_flight", Help: "Attempts under way.",
		}),
		storeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_webhook_store_errors_total", Help: "Failed calls of the store by the worker, by call.",
		}, []string{"call"}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_webhook_dead_total", Help: "Deliveries given up.",
		}),
	}
	breakers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "heardlog_webhook_open_breakers", Help: "Endpoints that are held back because their receiver fails again and again.",
	}, func() float64 { return g.opened(now()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.inFlight, m.storeErrors, m.dead, breakers, newBacklog(q, now, m.storeErrors)} {
		if reg != nil {
			errs = append(errs, reg.Register(c))
		}
	}
	return m, errors.Join(errs...)
}

// observe counts an attempt.
func (m *metrics) observe(o Outcome) {
	m.attempts.WithLabelValues(cmp.Or(o.ErrorClass, "ok")).Inc()
	m.duration.Observe(float64(o.DurationMS) / 1000)
}

// backlog queries the store at each scrape, so that the figures are right even if the worker hangs.
// If the store fails too, it repeats the last answer: the age of what is due keeps rising, and that
// is the alarm.
type backlog struct {
	queue                    Queue
	now                      func() time.Time
	errors                   *prometheus.CounterVec
	deliveries, age, pending *prometheus.Desc

	mu   sync.Mutex
	last Backlog
}

func newBacklog(q Queue, now func() time.Time, errs *prometheus.CounterVec) *backlog {
	return &backlog{
		queue: q, now: now, errors: errs,
		deliveries: prometheus.NewDesc("heardlog_webhook_backlog",
			"Deliveries that wait (pending, those of disabled endpoints included) or were given up (dead).", []string{"state"}, nil),
		age: prometheus.NewDesc("heardlog_webhook_oldest_due_age_seconds",
			"How long the earliest pending delivery has been due; nothing is excluded.", nil, nil),
		pending: prometheus.NewDesc("heardlog_webhook_oldest_pending_age_seconds",
			"How long ago the delivery was first due that waits longest, attempts that failed included; nothing is excluded that is due.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	ch <- b.deliveries
	ch <- b.age
	ch <- b.pending
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	v := b.read()
	age := func(ms int64) float64 {
		if ms <= 0 {
			return 0
		}
		return max(0, b.now().Sub(time.UnixMilli(ms)).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(b.deliveries, prometheus.GaugeValue, float64(v.Pending), string(Pending))
	ch <- prometheus.MustNewConstMetric(b.deliveries, prometheus.GaugeValue, float64(v.Dead), string(Dead))
	ch <- prometheus.MustNewConstMetric(b.age, prometheus.GaugeValue, age(v.OldestDue))
	ch <- prometheus.MustNewConstMetric(b.pending, prometheus.GaugeValue, age(v.OldestPending))
}

func (b *backlog) read() Backlog {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	v, err := b.queue.Backlog(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.errors.WithLabelValues("backlog").Inc()
		return b.last
	}
	b.last = v
	return v
}
