package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests. Labels are route patterns, methods and statuses, of which there are few.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	history  prometheus.Counter
	limited  prometheus.Counter
}

// NewMetrics makes and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_http_requests_total", Help: "Requests by route pattern, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "heardlog_http_request_seconds", Help: "Time from a request's arrival to the end of its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
		history: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_history_bytes_total", Help: "Bytes of history answered."}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_rate_limited_total", Help: "Requests refused by the rate limit."}),
	}
	reg.MustRegister(m.requests, m.seconds, m.history, m.limited)
	return m
}

func (m *Metrics) request(method, route string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodPatch, http.MethodOptions:
	default:
		method = "other" // a client may invent methods
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
