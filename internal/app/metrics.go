package app

import (
	"context"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// metrics holds the metrics of the domain and the store.
type metrics struct {
	appended  prometheus.Counter
	interrupt *prometheus.CounterVec
	ghosts    prometheus.Counter
	unheard   prometheus.Counter
	batch     prometheus.Histogram
	seconds   prometheus.Histogram
	failed    prometheus.Counter
	facts     *prometheus.CounterVec
}

var _ agents.Observer = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		appended: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_messages_appended_total", Help: "Messages stored."}),
		interrupt: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_interruptions_total", Help: "Answers that were interrupted, by cause.",
		}, []string{"caused_by"}),
		ghosts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_superseded_answers_total", Help: "Answers replaced by a later one to the same user turn.",
		}),
		unheard: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_unheard_tokens_total", Help: "Tokens of answers that were generated and not heard. Counted when an answer is stored, and when later evidence shows that less was heard.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_commit_batch_size", Help: "Writes that shared one commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_commit_seconds", Help: "Time of one commit.", Buckets: prometheus.ExponentialBuckets(.0001, 2.5, 11),
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_commit_failures_total", Help: "Commits that failed."}),
	}
	m.facts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_facts_total", Help: "Events of facts about callers: added, changed, accepted, reinforced, decayed, superseded, restored, withdrawn, expired, or rejected with the reason.",
	}, []string{"event", "reason"})
	reg.MustRegister(m.appended, m.interrupt, m.ghosts, m.unheard, m.batch, m.seconds, m.failed, m.facts,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Appended implements agents.Observer.
func (m *metrics) Appended(n int) { m.appended.Add(float64(n)) }

// Interrupted implements agents.Observer.
func (m *metrics) Interrupted(by string) { m.interrupt.WithLabelValues(by).Inc() }

// Ghost implements agents.Observer.
func (m *metrics) Ghost() { m.ghosts.Inc() }

// Unheard implements agents.Observer.
func (m *metrics) Unheard(tokens int64) { m.unheard.Add(float64(tokens)) }

// fact counts an event of a fact.
func (m *metrics) fact(event, reason string) { m.facts.WithLabelValues(event, reason).Inc() }

func (m *metrics) commit(items int, took time.Duration, err error) {
	m.batch.Observe(float64(items))
	m.seconds.Observe(took.Seconds())
	if err != nil {
		m.failed.Inc()
	}
}

// watch adds gauges that are read from the store at every scrape.
func (m *metrics) watch(reg prometheus.Registerer, store memory.Ledger) {
	reg.MustRegister(&agentGauges{store: store, desc: prometheus.NewDesc("heardlog_agents", "Stored agents by status.", []string{"status"}, nil)})
}

// watchUsage adds gauges of what projects use.
func (m *metrics) watchUsage(reg prometheus.Registerer, k *quota.Keeper) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"project"}, nil)
	}
	reg.MustRegister(&usageGauges{
		quota: k, messages: desc("heardlog_project_messages", "Messages stored, of the projects with the most; other is all others."),
		bytes:  desc("heardlog_project_bytes", "Bytes of messages and records stored, of the same projects."),
		agents: desc("heardlog_project_agents", "Live agents, of the same projects."),
	})
}

// maxProjects bounds the projects that have gauges of their own.
const maxProjects = 20

type usageGauges struct {
	quota                   *quota.Keeper
	messages, bytes, agents *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g *usageGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.messages
	ch <- g.bytes
	ch <- g.agents
}

// Collect implements prometheus.Collector.
func (g *usageGauges) Collect(ch chan<- prometheus.Metric) {
	list, others := g.quota.Largest(maxProjects)
	if others.Messages > 0 || others.Agents > 0 {
		others.Project = ":other" // no project's name
		list = append(list, others)
	}
	for _, u := range list {
		if u.Project == "" { // the server's own records
			continue
		}
		for _, v := range []struct {
			desc *prometheus.Desc
			n    int64
		}{{g.messages, u.Messages}, {g.bytes, u.Bytes}, {g.agents, u.Agents}} {
			ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, float64(v.n), u.Project)
		}
	}
}

type agentGauges struct {
	store memory.Ledger
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (g *agentGauges) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *agentGauges) Collect(ch chan<- prometheus.Metric) {
	// Collectors get no context.
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	counts, err := g.store.Count(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(g.desc, err)
		return
	}
	for s, n := range counts {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), memory.Status(s).String())
	}
}

// serverLog returns a logger for net/http.
func serverLog(l zerolog.Logger) *log.Logger {
	return log.New(l.With().Str("from", "net/http").Logger().Level(zerolog.WarnLevel), "", 0)
}
