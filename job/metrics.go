package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts jobs and their runs, by kind.
type metrics struct {
	runs    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	jobs    *prometheus.Desc
	r       *Runner
}

func newMetrics(reg prometheus.Registerer, r *Runner) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_jobs_total", Help: "Runs of background jobs, by kind and outcome.",
		}, []string{"kind", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "heardlog_job_seconds", Help: "How long background jobs ran, by kind.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"kind"}),
		jobs: prometheus.NewDesc("heardlog_jobs", "Background jobs that this server knows, by kind and state: waiting, running, retrying, failed.", []string{"kind", "state"}, nil),
		r:    r,
	}
	if reg != nil {
		reg.MustRegister(m.runs, m.seconds, m)
	}
	return m
}

func (m *metrics) count(kind, outcome string, took time.Duration) {
	m.runs.WithLabelValues(kind, outcome).Inc()
	m.seconds.WithLabelValues(kind).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- m.jobs }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, q := range m.r.queues {
		n := map[State]int{}
		q.mu.Lock()
		for _, e := range q.jobs {
			n[q.info(e).State]++
		}
		q.mu.Unlock()
		for _, s := range States {
			to <- prometheus.MustNewConstMetric(m.jobs, prometheus.GaugeValue, float64(n[s]), q.kind.Name, string(s))
		}
	}
}
