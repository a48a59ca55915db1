package app

import (
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

func (a *App) newAnswers(reg prometheus.Registerer, g *guard.Guard) {
	a.transport = llmadapter.NewTransport(g.DialContext, nil)
	ms := func(d time.Duration) int { return int(d / time.Millisecond) }
	l := a.cfg.LLM
	a.answers = turn.New(turn.Config{
		Turns:  a.contexts,
		Client: &llmadapter.Client{Transport: a.transport, Instance: uuid.NewString()},
		Defaults: memory.LLMSettings{
			URL: l.URL, APIKey: secret.String(l.APIKey.Reveal()), Vendor: l.Vendor, Model: l.Model, OnDisconnect: l.OnDisconnect, Duplicates: l.Duplicates,
			ConnectTimeoutMS: ms(l.Connect), FirstTokenTimeoutMS: ms(l.FirstToken), IdleTimeoutMS: ms(l.Idle), TotalTimeoutMS: ms(l.Total),
		},
		Now: a.now, Log: a.log, Metrics: reg, Tracing: a.tracing(),
		Fallbacks: fallbacks(l.Fallbacks), Retries: turn.Retries{Times: l.Retry, Budget: l.RetryBudget},
	})
}

// fallbacks gives the upstreams of the settings as package turn takes them.
func fallbacks(list []config.Upstream) []turn.Fallback {
	out := make([]turn.Fallback, len(list))
	for i, u := range list {
		out[i] = turn.Fallback{Projects: u.Projects, Upstream: memory.Upstream{
			Name: u.Name, URL: u.URL, APIKey: secret.String(u.APIKey.Reveal()), Vendor: u.Vendor, Model: u.Model,
		}}
		for name, v := range u.Headers {
			if out[i].Headers == nil {
				out[i].Headers = map[string]secret.String{}
			}
			out[i].Headers[name] = secret.String(v.Reveal())
		}
	}
	return out
}
