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
	Head func(ctx context.Context, project, id string) (memory.Head, error)
	// Part returns what to ask about the call of an agent's user. It begins after what p says was
	// read, and moves p to what is read then. Of a running call it leaves out what is still being
	// spoken. ok is false for nothing.
	Part func(ctx context.Context, a *memory.Agent, p *job.Progress) (ask Prompt, ok bool, err error)
	// Ask asks the agent's LLM, or another model of it, unless the name is empty.
	Ask func(ctx context.Context, a *memory.Agent, model string, p Prompt) (answer string, err error)
	// Extract stores the facts of an answer about the part of a call between two positions.
	Extract func(ctx context.Context, a *memory.Agent, answer string, from, to job.Progress) error
	// RetryAfter returns the delay that the upstream that failed with err asked for.
	RetryAfter func(err error) time.Duration
	Count      func(outcome string) // for metrics
}

// Extractions makes the Runner extract facts of calls that have ended, and of those that run if
// their settings ask for that.
func Extractions(r *job.Runner, c Extraction) *job.AfterCall {
	kind := job.Kind{Name: job.Facts, Timeout: askFor, Tries: maxTries, RetryAfter: c.RetryAfter, Count: c.Count}
	return r.HandleAfterCall(kind, job.CallWork{
		Head:   c.Head,
		Wanted: func(a *memory.Agent) bool { return a.Settings.Memory.Remember.Extract },
		Do:     c.extract,
		Every: func(a *memory.Agent) time.Duration {
			return time.Duration(a.Settings.Memory.Remember.ExtractSeconds) * time.Second
		},
		Most: maxParts,
	})
}

// extract extracts the facts of a call that stand after what was read of it.
func (c Extraction) extract(ctx context.Context, a *memory.Agent, p *job.Progress) (did bool, err error) {
	if a.Settings.Scope.UserID == "" {
		return false, nil
	}
	from, to := *p, *p
	ask, ok, err := c.Part(ctx, a, &to)
	if !ok || err != nil {
		return false, err
	}
	answer, err := c.Ask(ctx, a, a.Settings.Memory.Remember.ExtractionModel, ask)
	if err != nil {
		return true, err
	}
	if err := c.Extract(ctx, a, answer, from, to); err != nil {
		return true, err
	}
	*p = to
	return true, nil
}

const (
	askFor   = 90 * time.Second // for one try
	maxTries = 8                // after the end of a call
	maxParts = 20               // requests while a call runs
)
