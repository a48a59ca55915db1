package summary

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	summaries *prometheus.CounterVec
	calls     prometheus.Counter
	seconds   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, w *Worker) *metrics {
	m := &metrics{
		summaries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_summaries_total", Help: "Summaries of conversations by what came of them. stale is one whose messages were changed while it was made; canceled one whose agent ended, or the server.",
		}, []string{"outcome"}),
		calls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_summary_calls_total", Help: "Calls to LLMs for summaries; a long conversation takes several.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_summary_seconds", Help: "Time that the LLM took for one summary, all its calls together.", Buckets: []float64{.5, 1, 2, 5, 10, 20, 40, 80, 160, 320},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.summaries, m.calls, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "heardlog_summaries_running", Help: "Summaries that are being made.",
		}, func() float64 { return float64(w.running.Load()) }))
	}
	return m
}
