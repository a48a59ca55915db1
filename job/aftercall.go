package job

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// AfterCall is work on calls that have ended, and perhaps on calls that still run. Its job is
// stored when the agent joins, so that it is done whatever happens to the server in between.
type AfterCall struct {
	queue  *Queue
	wanted func(a *memory.Agent) bool
}

// lookAgain is when a running call is checked again, in case that another server ended it.
const lookAgain = time.Minute

// Progress is how far the work on a call has come. It is stored with the job while the call runs.
type Progress struct {
	UpTo  int64 `json:"up_to,omitempty"` // seq of the last message that was worked on
	Rev   int64 `json:"rev,omitempty"`   // the agent's revision then; see memory.Head
	Times int   `json:"times,omitempty"` // how often it was worked on
	AtMS  int64 `json:"at_ms,omitempty"` // the last time, Unix ms
}

// CallWork is what is to be done after calls. Head, Wanted and Do are required.
type CallWork struct {
	Head func(ctx context.Context, project, id string) (memory.Head, error)
	// Wanted reports whether a new agent's call is to be worked on.
	Wanted func(a *memory.Agent) bool
	// Do works on the call of an agent from p on, and moves p; did is false if there was nothing to
	// do.
	Do func(ctx context.Context, a *memory.Agent, p *Progress) (did bool, err error)
	// Every is how often Do may be called while the call runs, and Most how many times in one call.
	// It is called only if the agent has changed since. If Every is nil or returns 0, Do is called
	// once, after the end.
	Every func(a *memory.Agent) time.Duration
	Most  int
}

// HandleAfterCall makes the Runner work on calls. It sets Do, Due, Final and Stored of the kind.
func (r *Runner) HandleAfterCall(k Kind, w CallWork) *AfterCall {
	c := &AfterCall{wanted: w.Wanted}
	k.Stored = true
	k.Final = func(err error) bool { return fault.Is(err, fault.NotFound) }
	k.Due = func(ctx context.Context, k Key) (bool, Result, error) {
		h, err := w.Head(ctx, k.Project, k.ID)
		switch {
		case fault.Is(err, fault.NotFound): // it was erased
			return false, Result{}, nil
		case err == nil && !h.Agent.Status.Ended():
			wait := w.wait(&h, c.queue.progress(k), r.cfg.Now())
			return wait == 0, Again(wait), nil
		}
		return true, Result{}, err
	}
	k.Do = func(ctx context.Context, k Key) (Result, error) {
		h, err := w.Head(ctx, k.Project, k.ID)
		if err != nil {
			return Result{}, err
		}
		p := c.queue.progress(k)
		if h.Agent.Status.Ended() {
			did, err := w.Do(ctx, h.Agent, &p)
			if !did {
				return Done(Nothing), err
			}
			return Done(OK), err
		}
		did, err := w.Do(ctx, h.Agent, &p)
		out := Again(min(w.Every(h.Agent), lookAgain)) // then Due says whether it is time
		p.AtMS, out.Progress = r.cfg.Now().UnixMilli(), &p
		if err == nil {
			p.Rev = h.Rev // what came meanwhile is worked on the next time
		}
		if did {
			p.Times++
			out.Outcome = Part
		}
		return out, err // the next time, or the end of the call, is the next try
	}
	c.queue = r.Handle(k)
	return c
}

// wait returns when to check a call that runs again; 0 = it is to be worked on now.
func (w *CallWork) wait(h *memory.Head, p Progress, now time.Time) time.Duration {
	if w.Every == nil || p.Times >= w.Most {
		return lookAgain
	}
	every := w.Every(h.Agent)
	switch since := now.Sub(time.UnixMilli(max(p.AtMS, h.Agent.StartMS))); {
	case every == 0:
		return lookAgain
	case since < every:
		return min(every-since, lookAgain)
	case p.Rev == h.Rev:
		return min(every, lookAgain)
	}
	return 0
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
