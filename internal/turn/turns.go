package turn

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Turns is what a Runner needs of the memory: an agents.Turns.
type Turns interface {
	// Begin stores the call's messages and opens or joins a turn. It returns fault.Stopped if the
	// agent accepts no more messages. The messages may not be on disk yet when Begin returns: the
	// LLM may be called, but nothing may be sent to the client before Durable returns.
	Begin(ctx context.Context, project, agentID string, r agents.TurnRequest) (*agents.Turn, error)
	// Durable waits until what Begin stored is on disk, which takes one commit. After an error the
	// turn does not exist, but must be settled all the same. It may be called often, by any
	// goroutine.
	Durable(t *agents.Turn) error
	// Progress marks the phase of the open answer; cheap and not durable.
	Progress(t *agents.Turn, p memory.Phase)
	// Settle stores the answer, durable when it returns, and ends the open answer. It fails if
	// Durable does. It does not depend on ctx, and must be called exactly once for each Turn.
	Settle(ctx context.Context, t *agents.Turn, a agents.Answer) (memory.Message, error)
	// Complete adds, after Settle, what a drained upstream produced in full.
	Complete(ctx context.Context, t *agents.Turn, generated string) error
}
