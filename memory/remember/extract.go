package remember

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/aftercall"
	"github.com/heardlog/heardlog/memory/record"
)

// Prompt is what a model is asked.
type Prompt struct{ System, User string }

// Extraction is what NewExtractor needs. All fields are required.
type Extraction struct {
	Store record.Store
	Agent func(ctx context.Context, project, id string) (memory.Agent, error)
	// Prompt returns what to ask about the call of an agent's user; ok is false for nothing.
	Prompt func(ctx context.Context, a *memory.Agent) (p Prompt, ok bool, err error)
	// Ask asks the agent's LLM, or another model of it, unless the name is empty.
	Ask func(ctx context.Context, a *memory.Agent, model string, p Prompt) (answer string, err error)
	// Extract stores the facts of an answer.
	Extract func(ctx context.Context, a *memory.Agent, answer string) error
	// RetryAfter returns the delay that the upstream that failed with err asked for.
	RetryAfter func(err error) time.Duration
	Now        func() time.Time
	OnError    func(what string, err error)
	Count      func(outcome string) // for metrics
}

// NewExtractor returns what extracts facts of calls that have ended.
func NewExtractor(c Extraction) *aftercall.Worker {
	return aftercall.New(aftercall.Config{
		Store: c.Store, Work: "facts", Agent: c.Agent, RetryAfter: c.RetryAfter, Now: c.Now, OnError: c.OnError, Count: c.Count,
		Wanted: func(a *memory.Agent) bool { return a.Settings.Memory.Remember.Extract },
		Do: func(ctx context.Context, a *memory.Agent) (bool, error) {
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
		},
	})
}
