package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/job"
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
	a.summaries = summary.New(a.jobs, summary.Config{
		Memory: summaryMemory{a}, Places: a.cfg.Summaries, Metrics: reg,
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

// Leaving implements summary.Memory.
func (m summaryMemory) Leaving(ctx context.Context, project, id string) (memctx.Leaving, error) {
	return m.a.contexts.Leaving(ctx, project, id)
}

// Summarised implements summary.Memory.
func (m summaryMemory) Summarised(ctx context.Context, s memctx.Summarised) error {
	return m.a.contexts.Summarised(ctx, s)
}

// newCallSummaries creates what summarizes calls after their end. It asks through a.answers, which
// is created later.
func (a *App) newCallSummaries(reg prometheus.Registerer) {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_call_summaries_total", Help: "Calls that were summarized after their end, by outcome: ok, nothing (was said), retried, given_up.",
	}, []string{"outcome"})
	reg.MustRegister(outcomes)
	a.calls = &summary.Calls{
		Records: quota.Records{Store: a.store, Keeper: a.quota}, Messages: a.store.Messages, Note: a.retention.Note, Now: a.now,
		Ask: func(ctx context.Context, agent memory.Agent, p summary.Prompt) (summary.Answer, error) {
			r, err := a.answers.Ask(ctx, turn.Question{Agent: agent, System: p.System, User: p.User, Span: "summarize the call"})
			return summary.Answer{Text: r.Text, Finish: r.Finish}, err
		},
	}
	a.callsDone = a.jobs.HandleAfterCall(
		job.Kind{
			Name: job.Summary, Timeout: 90 * time.Second, Tries: 8,
			RetryAfter: func(err error) time.Duration { return turn.RetryAfter(err, time.Now()) },
			Count:      func(outcome string) { outcomes.WithLabelValues(outcome).Inc() },
		},
		job.CallWork{
			Head:   a.store.Head,
			Wanted: func(g *memory.Agent) bool { return g.Settings.Memory.Kept.Summarize && a.cfg.Summaries > 0 },
			Do: func(ctx context.Context, g *memory.Agent, _ *job.Progress) (bool, error) {
				return a.calls.Summarize(ctx, g)
			},
		},
	)
	a.onAgentEnded(a.callsDone.Ended)
	a.onAgentErased(a.callsDone.Forget)
}

// joined notes what is to happen to a new agent's call after its end.
func (a *App) joined(ctx context.Context, g *memory.Agent) error {
	if err := a.callsDone.Joined(ctx, g); err != nil {
		return err
	}
	return a.retention.Joined(ctx, g)
}

// callSummary returns the summary of a call, "" for none.
func (a *App) callSummary(ctx context.Context, project, id string) (string, int64, error) {
	s, err := a.calls.Of(ctx, project, id)
	return s.Text, s.CreatedMS, err
}
