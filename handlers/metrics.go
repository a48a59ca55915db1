package handlers

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/tail"
)

// Metrics counts requests. Its labels have few values: route patterns, methods, statuses.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	history  prometheus.Counter
	limited  prometheus.Counter
	evidence *prometheus.CounterVec
	ingest   *prometheus.CounterVec
	tail     *tail.Metrics

	ingestLeft prometheus.Counter

	mu     sync.RWMutex
	routes map[string]*routeMetrics // by status, method and patterns
}

// routeMetrics counts the requests of one route, method and status. It saves a lookup by labels,
// which costs more than counting.
type routeMetrics struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// NewMetrics returns Metrics that are registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		routes: map[string]*routeMetrics{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_http_requests_total", Help: "Requests by route pattern, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "heardlog_http_request_seconds", Help: "Time from a request's arrival to the end of its answer.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10}, // few, since every route has its own
		}, []string{"route"}),
		history: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_history_bytes_total", Help: "Bytes of history answered."}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_rate_limited_total", Help: "Requests refused by the rate limit."}),
	}
	m.evidence = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_evidence_total", Help: "Evidence in platforms' events, by platform and result: recorded, known, pending until the answer is stored, or unmatched.",
	}, []string{"platform", "result"})
	m.ingest = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_ingest_total", Help: "Agora's notifications by event type and result: filed, known, ignored, check (health checks) or refused (wrong signature).",
	}, []string{"type", "result"})
	m.ingestLeft = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "heardlog_ingest_left_out_total", Help: "Fields of Agora's notifications that were left out or shortened.",
	})
	reg.MustRegister(m.requests, m.seconds, m.history, m.limited, m.evidence, m.ingest, m.ingestLeft)
	m.tail = tail.NewMetrics(reg)
	return m
}

// request counts one request.
func (m *Metrics) request(method string, rc *chi.Context, status int, took time.Duration) {
	var buf [256]byte
	key := append(strconv.AppendInt(buf[:0], int64(status), 10), method...)
	if rc != nil {
		for _, part := range rc.RoutePatterns {
			key = append(append(key, ' '), part...)
		}
	}
	m.mu.RLock()
	r := m.routes[string(key)]
	m.mu.RUnlock()
	if r == nil {
		r = m.route(string(key), method, rc, status)
	}
	r.requests.Inc()
	r.seconds.Observe(took.Seconds())
}

// maxRoutes bounds the routeMetrics that are kept. There are some dozens of routes.
const maxRoutes = 4096

func (m *Metrics) route(key, method string, rc *chi.Context, status int) *routeMetrics {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodPatch, http.MethodOptions:
	default:
		method, key = "other", "" // clients may send any method
	}
	route := "none"
	if rc != nil && rc.RoutePattern() != "" {
		route = rc.RoutePattern()
	}
	r := &routeMetrics{requests: m.requests.WithLabelValues(route, method, strconv.Itoa(status)), seconds: m.seconds.WithLabelValues(route)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if key != "" && len(m.routes) < maxRoutes {
		m.routes[key] = r
	}
	return r
}
