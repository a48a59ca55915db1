package tail

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what live tails do.
type Metrics struct {
	readers                 prometheus.Gauge
	made, sent              prometheus.Counter
	reads, dropped, refused *prometheus.CounterVec
}

// NewMetrics returns Metrics that are registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "heardlog_tail_readers", Help: "Live tails that are open."}),
		made: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_tail_events_made_total", Help: "Events of live tails that were encoded, once for all readers of the agent.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_tail_events_sent_total", Help: "Events written to readers of live tails."}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_reads_total", Help: "Reads of the store for live tails: by an agent's hub, after changes made elsewhere, and by readers that were behind.",
		}, []string{"by"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_dropped_total", Help: "Readers of live tails that were dropped, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_refused_total", Help: "Readers of live tails that were refused, by limit: the agent's, the project's or the server's.",
		}, []string{"limit"}),
	}
	reg.MustRegister(m.readers, m.made, m.sent, m.reads, m.dropped, m.refused)
	return m
}
