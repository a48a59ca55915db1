package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
)

// newSummaries makes what summarises memories, unless the settings want none. It asks through a.answers, which is made later.
func (a *App) newSummaries(reg prometheus.Registerer) {
	if a.cfg.Summaries == 0 {
		return
	}
	var lease func(ctx context.Context, project, id string, lease time.Duration) (func(), bool, error)
	if peers := peersOf(a.store); peers != nil {
		lease = func(ctx context.Context, project, id string, lease time.Duration) (func(), bool, error) {
			return peers.Lease(ctx, project, id, memory.WorkSummary, lease)
		}
	}
	a.summaries = summary.New(summary.Config{
		Memory: summaryMemory{a}, Lease: lease, Places: a.cfg.Summaries, Log: a.log, Metrics: reg,
		Ask: func(ctx context.Context, agent memory.Agent, model string, p summary.Prompt) (summary.Answer, error) {
			r, err := a.answers.Ask(ctx, turn.Question{Agent: agent, System: p.System, User: p.User, Model: model, Span: "summarize"})
			return summary.Answer{Text: r.Text, Finish: r.Finish}, err
		},
		RetryAfter: func(err error) time.Duration { return turn.RetryAfter(err, time.Now()) },
		Outcome:    turn.Outcome,
	})
}

// summarizer gives what is told of memories that grow; nil where nothing is summarised.
func (a *App) summarizer() memory.Summaries {
	if a.summaries == nil {
		return nil
	}
	return a.summaries
}

// summaryMemory is the memory as summaries need it: the Service, which is made later, and the store's list of live agents.
type summaryMemory struct{ a *App }

// Live implements summary.Memory.
func (m summaryMemory) Live(ctx context.Context, each func(memory.Head) error) error {
	return m.a.service.Live(ctx, each)
}

// Leaving implements summary.Memory.
func (m summaryMemory) Leaving(ctx context.Context, project, id string) (memory.Leaving, error) {
	return m.a.service.Leaving(ctx, project, id)
}

// Summarised implements summary.Memory.
func (m summaryMemory) Summarised(ctx context.Context, s memory.Summarised) error {
	return m.a.service.Summarised(ctx, s)
}
