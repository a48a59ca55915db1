package handlers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
)

// TestClientLeavingIsNoUpstreamError checks that a client that disconnects ends the upstream's call
// in each phase, and is not counted as an error of the upstream.
func TestClientLeavingIsNoUpstreamError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		typ, first, more string
	}{
		"stream, before the first token":   {"text/event-stream", "", `,"stream":true`},
		"stream, after it":                 {"text/event-stream", delta("One"), `,"stream":true`},
		"whole, before the first byte":     {"application/json", "", ""},
		"whole, in the middle of the body": {"application/json", `{"id":"c1","choices":[`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			p := newProxy(t, func(c *turn.Config) { c.Metrics = reg })
			g := newGated(t, tt.typ)
			agent := p.join(func(l *memory.LLMSettings) { l.URL = g.url })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			go func() {
				comes(t, "the upstream is asked", func() bool { return g.calls.Load() == 1 })
				if tt.first != "" {
					g.say(tt.first)
				}
				leave()
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(say("hi", tt.more)))
			if err != nil {
				t.Fatal(err)
			}
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
			<-g.dropped
			p.settled(agent, 2)
			for _, family := range []string{"heardlog_answers_total", "heardlog_upstream_attempts_total"} {
				for labels, n := range counted(t, reg, family) {
					if n > 0 && strings.Contains(labels, "error") || strings.Contains(labels, "timeout") {
						t.Errorf("%s%s is %v", family, labels, n)
					}
				}
			}
			if got := counted(t, reg, "heardlog_answers_total")["outcome=client_closed"]; got != 1 {
				t.Errorf("%v clients are counted as gone", got)
			}
		})
	}
}

// counted returns the counters of a family by their labels.
func counted(t *testing.T, reg *prometheus.Registry, family string) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[strings.Join(labels, ",")] = m.GetCounter().GetValue()
		}
	}
	return out
}
