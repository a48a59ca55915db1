package job

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// AfterCall is work on calls that have ended. Its job is stored when the agent joins, so that it is
// done whatever happens to the server in between.
type AfterCall struct {
	queue  *Queue
	wanted func(a *memory.Agent) bool
}

// lookAgain is when a running call is checked again, in case that another server ended it.
const lookAgain = time.Minute

// CallWork is what is to be done after calls. All fields are required.
type CallWork struct {
	Agent func(ctx context.Context, project, id string) (memory.Agent, error)
	// Wanted reports whether a new agent's call is to be worked on.
	Wanted func(a *memory.Agent) bool
	// Do works on the call of an agent that has ended; did is false if there was nothing to do.
	Do func(ctx context.Context, a *memory.Agent) (did bool, err error)
}

// HandleAfterCall makes the Runner work on calls that have ended. It sets Do, Due, Final and Stored
// of the kind.
func (r *Runner) HandleAfterCall(k Kind, w CallWork) *AfterCall {
	k.Stored = true
	k.Final = func(err error) bool { return fault.Is(err, fault.NotFound) }
	k.Due = func(ctx context.Context, k Key) (bool, Result, error) {
		a, err := w.Agent(ctx, k.Project, k.ID)
		switch {
		case fault.Is(err, fault.NotFound): // it was erased
			return false, Result{}, nil
		case err == nil && !a.Status.Ended():
			return false, Again(lookAgain), nil
		}
		return true, Result{}, err
	}
	k.Do = func(ctx context.Context, k Key) (Result, error) {
		a, err := w.Agent(ctx, k.Project, k.ID)
		if err != nil {
			return Result{}, err
		}
		did, err := w.Do(ctx, &a)
		if !did {
			return Done(Nothing), err
		}
		return Done(OK), err
	}
	return &AfterCall{queue: r.Handle(k), wanted: w.Wanted}
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
