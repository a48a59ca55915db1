package job

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/record"
)

// AfterCall is work on calls that have ended. Its job is stored when the agent joins, so that it is
// done whatever happens to the server in between.
type AfterCall struct {
	queue  *Queue
	wanted func(a *memory.Agent) bool
}

// lookAgain is when a running call is checked again, in case that another server ended it.
const lookAgain = time.Minute

// HandleAfterCall makes the Runner do work on the calls of agents that want it, after their ends:
// do gets an agent that has ended, and returns false if there was nothing to do. The kind needs no
// Do, Due and Stored.
func (r *Runner) HandleAfterCall(k Kind, agent func(ctx context.Context, project, id string) (memory.Agent, error), wanted func(a *memory.Agent) bool, do func(ctx context.Context, a *memory.Agent) (bool, error)) *AfterCall {
	k.Stored = true
	k.Final = func(err error) bool { return fault.Is(err, fault.NotFound) }
	k.Due = func(ctx context.Context, k Key) (bool, Result, error) {
		a, err := agent(ctx, k.Project, k.ID)
		switch {
		case fault.Is(err, fault.NotFound): // it was erased
			return false, Result{}, nil
		case err == nil && !a.Status.Ended():
			return false, Again(lookAgain), nil
		}
		return true, Result{}, err
	}
	k.Do = func(ctx context.Context, k Key) (Result, error) {
		a, err := agent(ctx, k.Project, k.ID)
		if err != nil {
			return Result{}, err
		}
		did, err := do(ctx, &a)
		if !did {
			return Done(Nothing), err
		}
		return Done(OK), err
	}
	return &AfterCall{queue: r.Handle(k), wanted: wanted}
}

// Joined stores the job of a new agent, if it wants the work. It is on disk when Joined returns.
func (c *AfterCall) Joined(ctx context.Context, a *memory.Agent) error {
	if !c.wanted(a) {
		return nil
	}
	err := c.queue.Put(ctx, Key{a.Project, a.ID}, 0)
	if errors.Is(err, record.ErrStale) { // the join was repeated
		return nil
	}
	return err
}

// Forget deletes the job of an agent that is erased.
func (c *AfterCall) Forget(ctx context.Context, project, id string) error {
	return c.queue.Forget(ctx, Key{project, id})
}

// Ended has the work on a call done now.
func (c *AfterCall) Ended(project, id string) { c.queue.Now(Key{project, id}) }
