package app

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// newTransport creates the transport of calls of LLMs and of the model of embeddings.
func (a *App) newTransport(g *guard.Guard) {
	a.transport = llmadapter.NewTransport(g.DialContext, nil)
	a.closes(func(context.Context) error { a.transport.CloseIdleConnections(); return nil })
}

// newAnswers creates what answers turns.
func (a *App) newAnswers(reg prometheus.Registerer) {
	ms := func(d time.Duration) int { return int(d / time.Millisecond) }
	l := a.cfg.LLM
	a.answers = turn.New(turn.Config{
		Turns:  a.service.Turns,
		Window: a.contexts.ForTurn,
		Client: &llmadapter.Client{Transport: a.transport, Instance: uuid.NewString()},
		Defaults: memory.LLMSettings{
			URL: l.URL, APIKey: l.APIKey, Vendor: l.Vendor, Headers: l.Headers, Model: l.Model, OnDisconnect: l.OnDisconnect, Duplicates: l.Duplicates, OnQuestion: l.OnQuestion,
			Members: l.Members, Thoughts: l.Thoughts, Shape: l.Shape, Cache: l.Cache,
			ConnectTimeoutMS: ms(l.Connect), FirstTokenTimeoutMS: ms(l.FirstToken), IdleTimeoutMS: ms(l.Idle), TotalTimeoutMS: ms(l.Total),
		},
		Now: a.now, Log: a.log, Metrics: reg, Tracing: a.tracing(), Remember: a.remember,
		Redactor: a.service.Messages.Redactor, Redact: a.service.Messages.Redact,
		Fallbacks: fallbacks(l.Fallbacks), Retries: turn.Retries{Times: l.Retry, Budget: l.RetryBudget}, Prices: l.Prices,
	})
}

// fallbacks converts the upstreams of the settings for package turn.
func fallbacks(list []config.Upstream) []turn.Fallback {
	out := make([]turn.Fallback, len(list))
	for i, u := range list {
		out[i] = turn.Fallback{Projects: u.Projects, Upstream: memory.Upstream{
			Name: u.Name, URL: u.URL, APIKey: u.APIKey, Vendor: u.Vendor, Model: u.Model,
			Headers: u.Headers, Thoughts: u.Thoughts, Shape: u.Shape, Cache: u.Cache,
		}}
	}
	return out
}
