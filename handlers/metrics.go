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

// Metrics counts requests. Labels are route patterns, methods and statuses, of which there are few.
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
	routes map[string]*routeMetrics // by the patterns, method and status: see request
}

// routeMetrics is what counts the requests of one route, method and status. Looking a metric up by its labels costs more than counting.
type routeMetrics struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// NewMetrics makes and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		routes: map[string]*routeMetrics{},
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
	m.evidence = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_evidence_total", Help: "What platforms' events told of answers: recorded, known already, pending while the answer is made, or of no answer of ours.",
	}, []string{"platform", "result"})
	m.ingest = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_ingest_total", Help: "Notifications of Agora's by event type: filed, known already, ignored, health checks, or refused for their signature.",
	}, []string{"type", "result"})
	m.ingestLeft = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "heardlog_ingest_left_out_total", Help: "Fields of Agora's notifications that were left out of what was filed, or cut, since they could not be kept as they came.",
	})
	reg.MustRegister(m.requests, m.seconds, m.history, m.limited, m.evidence, m.ingest, m.ingestLeft)
	m.tail = tail.NewMetrics(reg)
	return m
}

// request counts one request. The route's pattern is put together from its parts when it is first seen.
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

// maxRoutes bounds what is kept of routes; there are some dozens, each with a few statuses.
const maxRoutes = 4096

func (m *Metrics) route(key, method string, rc *chi.Context, status int) *routeMetrics {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodPatch, http.MethodOptions:
	default:
		method, key = "other", "" // a client may invent methods
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
