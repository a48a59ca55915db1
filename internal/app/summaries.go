package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
)

// newSummaries creates the worker that summarizes memories, unless the settings want none. The
// worker asks through a.answers, which is created later.
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

// summarizer returns what the memory notifies when it grows, or nil without summaries.
func (a *App) summarizer() agents.Summaries {
	if a.summaries == nil {
		return nil
	}
	return a.summaries
}

// summaryMemory adapts the Service, which is created later, for package summary.
type summaryMemory struct{ a *App }

// Live implements summary.Memory.
func (m summaryMemory) Live(ctx context.Context, each func(memory.Head) error) error {
	return m.a.service.Live(ctx, each)
}

// Leaving implements summary.Memory.
func (m summaryMemory) Leaving(ctx context.Context, project, id string) (memctx.Leaving, error) {
	return m.a.contexts.Leaving(ctx, project, id)
}

// Summarised implements summary.Memory.
func (m summaryMemory) Summarised(ctx context.Context, s memctx.Summarised) error {
	return m.a.contexts.Summarised(ctx, s)
}
