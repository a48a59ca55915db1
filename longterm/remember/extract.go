package remember

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
)

// Prompt is what a model is asked.
type Prompt struct{ System, User string }

// Extraction is what Extractions needs. All fields are required.
type Extraction struct {
	Agent func(ctx context.Context, project, id string) (memory.Agent, error)
	// Prompt returns what to ask about the call of an agent's user; ok is false for nothing.
	Prompt func(ctx context.Context, a *memory.Agent) (p Prompt, ok bool, err error)
	// Ask asks the agent's LLM, or another model of it, unless the name is empty.
	Ask func(ctx context.Context, a *memory.Agent, model string, p Prompt) (answer string, err error)
	// Extract stores the facts of an answer.
	Extract func(ctx context.Context, a *memory.Agent, answer string) error
	// RetryAfter returns the delay that the upstream that failed with err asked for.
	RetryAfter func(err error) time.Duration
	Count      func(outcome string) // for metrics
}

// Extractions makes the Runner extract facts of calls that have ended.
func Extractions(r *job.Runner, c Extraction) *job.AfterCall {
	kind := job.Kind{Name: job.Facts, Timeout: askFor, Tries: maxTries, RetryAfter: c.RetryAfter, Count: c.Count}
	return r.HandleAfterCall(kind, job.CallWork{
		Agent:  c.Agent,
		Wanted: func(a *memory.Agent) bool { return a.Settings.Memory.Remember.Extract },
		Do:     c.extract,
	})
}

// extract extracts the facts of a call.
func (c Extraction) extract(ctx context.Context, a *memory.Agent) (did bool, err error) {
	if a.Settings.Scope.UserID == "" {
		return false, nil
	}
	p, ok, err := c.Prompt(ctx, a)
	if !ok || err != nil {
		return false, err
	}
	answer, err := c.Ask(ctx, a, a.Settings.Memory.Remember.ExtractionModel, p)
	if err != nil {
		return true, err
	}
	return true, c.Extract(ctx, a, answer)
}

const (
	askFor   = 90 * time.Second // for one try
	maxTries = 8
)
