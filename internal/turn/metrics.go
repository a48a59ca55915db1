package turn

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/agents"
)

type metrics struct {
	overhead, firstByte, firstToken, firstSentence prometheus.Histogram
	recall                                         prometheus.Histogram
	ghosts, joined                                 prometheus.Counter
	answers, attempts, recalled, tools             *prometheus.CounterVec
	active, draining                               prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	seconds := []float64{.05, .1, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30}
	f := promauto.With(reg)
	return &metrics{
		joined: f.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_joined_requests_total", Help: "Requests that got the answer of an identical request that was still being answered.",
		}),
		overhead: f.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_proxy_overhead_seconds", Help: "Time from a call's arrival until its request goes upstream: what the memory adds to the time to the first token.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5},
		}),
		firstByte: f.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_upstream_ttfb_seconds", Help: "Time from the first request upstream until the first byte of the answer, failed attempts included.", Buckets: seconds,
		}),
		firstToken: f.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_time_to_first_token_seconds", Help: "Time from a call's arrival until the first words were sent.", Buckets: seconds,
		}),
		firstSentence: f.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_time_to_first_sentence_seconds", Help: "Time from a call's arrival until the first sentence was sent.", Buckets: seconds,
		}),
		recall: f.NewHistogram(prometheus.HistogramOpts{
			Name: "heardlog_prompt_recall_seconds", Help: "Time that answers waited for what was recalled for their prompts.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1},
		}),
		recalled: f.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_prompt_recalls_total", Help: "Searches of callers' calls for prompts, by the strength of what was found. late means that nothing was found in time.",
		}, []string{"strength"}),
		tools: f.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_memory_tool_calls_total", Help: "Calls of the memory's tools by models.",
		}, []string{"tool"}),
		ghosts: f.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_ghost_requests_total", Help: "Calls that repeat an earlier call for the same user message and replace its answer.",
		}),
		answers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_answers_total", Help: "Answers by how they ended. client_closed means that the client went away (499), which is not a fault of the upstream.",
		}, []string{"outcome"}),
		attempts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_upstream_attempts_total", Help: "Requests to LLMs by what came of them before the first data. upstream is a name of the settings, or agent for all that agents bring; abandoned is a call that ended for reasons of its own.",
		}, []string{"upstream", "outcome"}),
		active: f.NewGauge(prometheus.GaugeOpts{
			Name: "heardlog_active_calls", Help: "Calls of clients that are being answered, streams and others: what to scale by.",
		}),
		draining: f.NewGauge(prometheus.GaugeOpts{
			Name: "heardlog_draining_calls", Help: "Upstream calls still read after their client went away.",
		}),
	}
}

// Outcome returns the label for how an answer or a question ended. A whole answer may have been
// limited by the model: see memory.Limited.
func Outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, agents.ErrClientGone), errors.Is(err, context.Canceled):
		return "client_closed"
	case errors.Is(err, agents.ErrInterrupted), errors.Is(err, agents.ErrBargeIn), errors.Is(err, agents.ErrOvertaken):
		return "interrupted"
	case errors.Is(err, agents.ErrSpeak):
		return "speak"
	case errors.Is(err, agents.ErrThink):
		return "think"
	case errors.Is(err, agents.ErrLeave):
		return "leave"
	case errors.Is(err, agents.ErrSuperseded):
		return "superseded"
	case errors.Is(err, errShutdown):
		return "shutdown"
	case fault.Is(err, fault.UpstreamTimeout):
		return "upstream_timeout"
	case fault.Is(err, fault.UpstreamTruncated):
		return "upstream_truncated"
	}
	return "upstream_error"
}

// times observes the times of an answer: of its first word and of its first sentence.
func (m *metrics) times(t *timing, token, sentence time.Time) {
	if t.first.Load() > 0 {
		m.firstByte.Observe(t.upstream().Seconds())
	}
	if !token.IsZero() {
		m.firstToken.Observe(token.Sub(t.arrived).Seconds())
	}
	if !sentence.IsZero() {
		m.firstSentence.Observe(sentence.Sub(t.arrived).Seconds())
	}
}
