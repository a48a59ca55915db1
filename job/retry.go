package job

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
)

// verdict is the result of a try.
type verdict struct {
	Result
	err       error
	failed    bool // for good
	elsewhere bool // another server does the job
	stopped   bool // the server stops, or the job was dropped
}

// try runs a job once and stores the result.
func (q *Queue) try(ctx context.Context, e *entry) verdict {
	claimed, ran := false, false
	r, err := q.guarded(func() (Result, error) {
		if q.kind.Due != nil {
			ready, r, err := q.kind.Due(ctx, e.Key)
			if !ready || err != nil {
				return r, err
			}
		}
		if q.kind.Tries > 0 && e.Tries >= q.kind.Tries {
			ran = true
			return Result{}, fault.New(fault.Internal, "a server ended in the middle of the last try that is allowed")
		}
		if q.kind.Stored || q.kind.Claimed && !q.r.cfg.Alone {
			if err := q.claim(ctx, e); err != nil {
				return Result{}, err
			}
			claimed = true
		}
		ran = true
		within, lose := context.WithCancelCause(ctx)
		defer lose(nil)
		if claimed {
			defer q.hold(within, e, lose)()
		}
		within, stop := context.WithTimeout(within, q.kind.Timeout)
		defer stop()
		return q.kind.Do(within, e.Key)
	})
	if errors.Is(err, record.ErrStale) && !claimed {
		if r, err = q.theirs(ctx, e); err == nil {
			return verdict{Result: r, elsewhere: true}
		}
	}
	v := q.judge(ctx, e, r, err, ran)
	if claimed || q.kind.Stored && !v.Again {
		if lost := q.settle(ctx, e, &v); lost != nil { // the store holds the job as it was
			v.err = errors.Join(v.err, fmt.Errorf("what became of it could not be stored: %w", lost))
			v.Result, v.failed = Result{Outcome: Retried, Again: true, After: q.kind.First}, false
		}
	}
	return v
}

// judge decides what happens to a job after a try. ran is false if the try failed before Do was
// called; such a try does not count.
func (q *Queue) judge(ctx context.Context, e *entry, r Result, err error, ran bool) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		e.Tries, e.Error = 0, ""
		return verdict{Result: r}
	}
	if ctx.Err() != nil { // another server, or the next start, may begin at once
		return verdict{Result: Again(0), err: err, stopped: true}
	}
	if r.Progress != nil {
		e.Tries, e.Error, r.Outcome = 0, explain(err), Retried
		if q.kind.RetryAfter != nil {
			r.After = max(r.After, min(q.kind.RetryAfter(err), q.kind.Longest))
		}
		return verdict{Result: r, err: err}
	}
	if !ran {
		e.Error = explain(err)
		return verdict{Result: Result{Outcome: Retried, Again: true, After: q.kind.First/2 + rand.N(q.kind.First/2)}, err: err}
	}
	e.Tries++
	e.Error = explain(err)
	if q.kind.final(err, e.Tries) {
		return verdict{Result: Done(GivenUp), err: err, failed: true}
	}
	pause := min(q.kind.First<<min(e.Tries-1, 20), q.kind.Longest)
	pause = pause/2 + rand.N(pause/2)
	if q.kind.RetryAfter != nil {
		pause = max(pause, min(q.kind.RetryAfter(err), q.kind.Longest))
	}
	return verdict{Result: Result{Outcome: Retried, Again: true, After: pause}, err: err}
}

// guarded calls f, with a panic as an error.
func (q *Queue) guarded(f func() (Result, error)) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
