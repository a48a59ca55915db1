// Package aftercall does work on calls that have ended: a Worker stores a job when the agent joins,
// and works on it after the call, whatever happens to the server in between.
package aftercall

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/record"
)

const (
	// places is how many jobs run at a time; one project gets at most half.
	places = 4
	// WorkFor is how long a job may take, claimFor how long it is a server's alone.
	WorkFor  = 90 * time.Second
	claimFor = 2 * time.Minute
	// lookAgain is when a running call is checked again, in case that another server ended it.
	lookAgain = time.Minute
	// maxTries is how often a call is tried. The pauses between double from firstPause to longest.
	maxTries     = 8
	firstPause   = 10 * time.Second
	longestPause = 30 * time.Minute
)

// The outcomes of Config.Count.
const (
	OK      = "ok"
	Nothing = "nothing" // there was nothing to do
	Retried = "retried"
	GivenUp = "given_up"
)

// Config is what a Worker needs. All fields are required.
type Config struct {
	Store record.Store
	// Work names the jobs in the store and in errors. It must not change.
	Work  string
	Agent func(ctx context.Context, project, id string) (memory.Agent, error)
	// Wanted reports whether an agent's call is to be worked on.
	Wanted func(a *memory.Agent) bool
	// Do works on the call of an agent that has ended; ok is false if there was nothing to do. It
	// may be called again for the same call, at another server too. After WorkFor its context ends.
	Do func(ctx context.Context, a *memory.Agent) (ok bool, err error)
	// RetryAfter returns the delay that the upstream that failed with err asked for.
	RetryAfter func(err error) time.Duration
	Now        func() time.Time
	OnError    func(what string, err error)
	Count      func(outcome string) // for metrics
}

// Worker works on calls that have ended. Its jobs are records, so that they survive the process,
// and several servers share them. Its methods are safe for concurrent use; Run must be running.
type Worker struct {
	cfg   Config
	space record.Space
	wake  chan struct{}
	known record.State // up to which jobs were read; of Run

	mu      sync.Mutex // guards the rest
	jobs    map[string]*job
	ended   map[string]bool // jobs to look at now
	running map[string]int  // by project
	total   int
}

// New returns a Worker.
func New(c Config) *Worker {
	return &Worker{cfg: c, space: jobSpace(c.Work), wake: make(chan struct{}, 1), jobs: map[string]*job{}, ended: map[string]bool{}, running: map[string]int{}}
}

// Joined stores the job of a new agent, if it is wanted. It is on disk when Joined
// returns.
func (w *Worker) Joined(ctx context.Context, a *memory.Agent) error {
	if !w.cfg.Wanted(a) {
		return nil
	}
	err := w.put(ctx, &job{Project: a.Project, Agent: a.ID, rev: record.Absent})
	if errors.Is(err, record.ErrStale) { // the join was repeated
		return nil
	}
	return err
}

// Ended checks an agent's job now.
func (w *Worker) Ended(project, id string) {
	w.mu.Lock()
	w.ended[jobID(project, id)] = true
	w.mu.Unlock()
	w.poke()
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run works on jobs until ctx is done, then waits for those in work, whose models it no longer
// waits for.
func (w *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for ctx.Err() == nil {
		if err := w.refresh(ctx); err != nil && ctx.Err() == nil {
			w.cfg.OnError("read the jobs of "+w.cfg.Work, err)
		}
		alarm := time.NewTimer(w.start(ctx, &group))
		select {
		case <-ctx.Done():
		case <-alarm.C:
		case <-w.wake:
		}
		alarm.Stop()
	}
	return nil
}

// start starts what is due and has a place. It returns how long nothing else is due.
func (w *Worker) start(ctx context.Context, group *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Now()
	wait := lookAgain / 2
	for id, j := range w.jobs {
		if !j.busy { // else what works on it changes its times
			if w.ended[id] && j.DueMS == 0 {
				j.look = time.Time{}
			}
			delete(w.ended, id)
		}
		if due := j.look.Sub(now); due > 0 {
			wait = min(wait, due)
			continue
		}
		if j.busy || w.total == places || w.running[j.Project] >= max(1, places/2) {
			continue // the end of one wakes Run
		}
		j.busy = true
		w.total++
		w.running[j.Project]++
		group.Go(func() { w.work(ctx, j) })
	}
	if len(w.ended) > len(w.jobs) { // of jobs that are done
		clear(w.ended)
	}
	return max(wait, time.Millisecond)
}

// work works on a job and notes when to look at it again.
func (w *Worker) work(ctx context.Context, j *job) {
	next, err := w.guarded(ctx, j)
	if err != nil && ctx.Err() == nil {
		w.cfg.OnError(w.cfg.Work+" after the call of agent "+j.Agent, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.running[j.Project]--; w.running[j.Project] == 0 {
		delete(w.running, j.Project)
	}
	j.busy = false
	if next.IsZero() {
		delete(w.jobs, j.id())
	}
	j.look = next
	if j.missed != nil && j.missed.Rev > j.rev {
		w.take(j.missed)
	}
	j.missed = nil
	w.poke()
}

// guarded is do, with a panic as an error.
func (w *Worker) guarded(ctx context.Context, j *job) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			next, err = w.cfg.Now().Add(longestPause), fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.do(ctx, j)
}

// do does a job that is due, and returns when to look at it again: the zero time for never.
func (w *Worker) do(ctx context.Context, j *job) (time.Time, error) {
	a, err := w.cfg.Agent(ctx, j.Project, j.Agent)
	switch {
	case fault.Is(err, fault.NotFound): // it was erased
		return w.done(ctx, j, "")
	case err != nil:
		return w.cfg.Now().Add(firstPause), err
	case !a.Status.Ended():
		return w.cfg.Now().Add(lookAgain), nil
	}
	// The claim: another server that has the same job finds another revision.
	j.Tries++
	j.DueMS = w.cfg.Now().Add(claimFor).UnixMilli()
	if err := w.put(ctx, j); err != nil {
		if errors.Is(err, record.ErrStale) {
			return time.Time{}, nil // refresh reads what became of it
		}
		return w.cfg.Now().Add(firstPause), err
	}
	found, err := w.call(ctx, &a)
	if err == nil {
		outcome := OK
		if !found {
			outcome = Nothing
		}
		return w.done(ctx, j, outcome)
	}
	if ctx.Err() != nil { // the server stops: another, or the next, may begin at once
		j.Tries--
		return w.again(context.WithoutCancel(ctx), j, 0, err)
	}
	if j.Tries >= maxTries || fault.Is(err, fault.NotFound) {
		next, lost := w.done(ctx, j, GivenUp)
		return next, errors.Join(err, lost)
	}
	w.cfg.Count(Retried)
	pause := min(firstPause<<(j.Tries-1), longestPause)
	pause = max(pause/2+rand.N(pause/2), min(w.cfg.RetryAfter(err), longestPause))
	return w.again(ctx, j, pause, err)
}

// call is Config.Do within WorkFor.
func (w *Worker) call(ctx context.Context, a *memory.Agent) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, WorkFor)
	defer stop()
	return w.cfg.Do(ctx, a)
}

// storeFor is how long the end of a job may take to be stored.
const storeFor = 10 * time.Second

// done deletes a job.
func (w *Worker) done(ctx context.Context, j *job, outcome string) (time.Time, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer stop()
	if err := w.drop(ctx, j); err != nil {
		return w.cfg.Now().Add(firstPause), err
	}
	if outcome != "" {
		w.cfg.Count(outcome)
	}
	return time.Time{}, nil
}

// again stores that a job is due again after a pause. cause is why.
func (w *Worker) again(ctx context.Context, j *job, pause time.Duration, cause error) (time.Time, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer stop()
	due := w.cfg.Now().Add(pause)
	j.DueMS = due.UnixMilli()
	if err := w.put(ctx, j); err != nil && !errors.Is(err, record.ErrStale) {
		return due, errors.Join(cause, err)
	}
	return due, cause
}
