package remember

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
	// places is how many extractions run at a time; one project gets at most half.
	places = 4
	// askFor is how long a model may take, claimFor how long a job is a server's alone.
	askFor   = 90 * time.Second
	claimFor = 2 * time.Minute
	// lookAgain is when a running call is checked again, in case that another server ended it.
	lookAgain = time.Minute
	// maxTries is how often a call is tried. The pauses between double from firstPause to longest.
	maxTries     = 8
	firstPause   = 10 * time.Second
	longestPause = 30 * time.Minute
)

// The outcomes of Extraction.Count.
const (
	Extracted = "ok"
	Nothing   = "nothing" // nothing was said, or nothing may be kept
	Retried   = "retried"
	GivenUp   = "given_up"
)

// Prompt is what a model is asked.
type Prompt struct{ System, User string }

// Extraction is what an Extractor needs. All fields are required.
type Extraction struct {
	Store record.Store
	Agent func(ctx context.Context, project, id string) (memory.Agent, error)
	// Prompt returns what to ask about the call of an agent's user; ok is false for nothing.
	Prompt func(ctx context.Context, a *memory.Agent) (p Prompt, ok bool, err error)
	// Ask asks the agent's LLM, or another model of it, unless the name is empty.
	Ask func(ctx context.Context, a *memory.Agent, model string, p Prompt) (answer string, err error)
	// Extract stores the facts of an answer.
	Extract func(ctx context.Context, a *memory.Agent, answer string) error
	// RetryAfter returns how long the upstream that failed with err asks to be left alone.
	RetryAfter func(err error) time.Duration
	Now        func() time.Time
	OnError    func(what string, err error)
	Count      func(outcome string) // for metrics
}

// Extractor has facts extracted of calls that have ended. Its jobs are records, so that they
// survive the process, and several servers share them. Its methods are safe for concurrent use;
// Run must be running.
type Extractor struct {
	cfg  Extraction
	wake chan struct{}
	rev  int64 // up to which jobs were read; of Run

	mu      sync.Mutex // guards the rest
	jobs    map[string]*job
	ended   map[string]bool // jobs to look at now
	running map[string]int  // by project
	total   int
}

// NewExtractor returns an Extractor.
func NewExtractor(c Extraction) *Extractor {
	return &Extractor{cfg: c, wake: make(chan struct{}, 1), jobs: map[string]*job{}, ended: map[string]bool{}, running: map[string]int{}}
}

// Joined stores the job of a new agent, if its settings ask for facts. It is on disk when Joined
// returns.
func (x *Extractor) Joined(ctx context.Context, a *memory.Agent) error {
	if !a.Settings.Memory.Remember.Extract {
		return nil
	}
	err := x.put(ctx, &job{Project: a.Project, Agent: a.ID, rev: record.Absent})
	if errors.Is(err, record.ErrStale) { // the join was repeated
		return nil
	}
	return err
}

// Ended checks an agent's job now.
func (x *Extractor) Ended(project, id string) {
	x.mu.Lock()
	x.ended[jobID(project, id)] = true
	x.mu.Unlock()
	x.poke()
}

func (x *Extractor) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Run works on jobs until ctx is done, then waits for those in work, whose models it no longer
// waits for.
func (x *Extractor) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for ctx.Err() == nil {
		if err := x.refresh(ctx); err != nil && ctx.Err() == nil {
			x.cfg.OnError("read the jobs of extraction", err)
		}
		alarm := time.NewTimer(x.start(ctx, &group))
		select {
		case <-ctx.Done():
		case <-alarm.C:
		case <-x.wake:
		}
		alarm.Stop()
	}
	return nil
}

// start starts what is due and has a place. It returns how long nothing else is due.
func (x *Extractor) start(ctx context.Context, group *sync.WaitGroup) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.cfg.Now()
	wait := lookAgain / 2
	for id, j := range x.jobs {
		if !j.busy { // else what works on it changes its times
			if x.ended[id] && j.DueMS == 0 {
				j.look = time.Time{}
			}
			delete(x.ended, id)
		}
		if due := j.look.Sub(now); due > 0 {
			wait = min(wait, due)
			continue
		}
		if j.busy || x.total == places || x.running[j.Project] >= max(1, places/2) {
			continue // the end of one wakes Run
		}
		j.busy = true
		x.total++
		x.running[j.Project]++
		group.Go(func() { x.work(ctx, j) })
	}
	if len(x.ended) > len(x.jobs) { // of jobs that are done
		clear(x.ended)
	}
	return max(wait, time.Millisecond)
}

// work works on a job and notes when to look at it again.
func (x *Extractor) work(ctx context.Context, j *job) {
	next, err := x.guarded(ctx, j)
	if err != nil && ctx.Err() == nil {
		x.cfg.OnError("extract facts of agent "+j.Agent, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.total--
	if x.running[j.Project]--; x.running[j.Project] == 0 {
		delete(x.running, j.Project)
	}
	j.busy = false
	if next.IsZero() {
		delete(x.jobs, j.id())
	}
	j.look = next
	if j.missed != nil && j.missed.Rev > j.rev {
		x.take(j.missed)
	}
	j.missed = nil
	x.poke()
}

// guarded is do, with a panic as an error.
func (x *Extractor) guarded(ctx context.Context, j *job) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			next, err = x.cfg.Now().Add(longestPause), fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return x.do(ctx, j)
}

// do does a job that is due, and returns when to look at it again: the zero time for never.
func (x *Extractor) do(ctx context.Context, j *job) (time.Time, error) {
	a, err := x.cfg.Agent(ctx, j.Project, j.Agent)
	switch {
	case fault.Is(err, fault.NotFound): // it was erased
		return x.done(ctx, j, "")
	case err != nil:
		return x.cfg.Now().Add(firstPause), err
	case !a.Status.Ended():
		return x.cfg.Now().Add(lookAgain), nil
	case a.Settings.Scope.UserID == "":
		return x.done(ctx, j, Nothing)
	}
	// The claim: another server that has the same job finds another revision.
	j.Tries++
	j.DueMS = x.cfg.Now().Add(claimFor).UnixMilli()
	if err := x.put(ctx, j); err != nil {
		if errors.Is(err, record.ErrStale) {
			return time.Time{}, nil // refresh reads what became of it
		}
		return x.cfg.Now().Add(firstPause), err
	}
	found, err := x.extract(ctx, &a)
	if err == nil {
		outcome := Extracted
		if !found {
			outcome = Nothing
		}
		return x.done(ctx, j, outcome)
	}
	if ctx.Err() != nil { // the server stops: another, or the next, may begin at once
		j.Tries--
		return x.again(context.WithoutCancel(ctx), j, 0, err)
	}
	if j.Tries >= maxTries || fault.Is(err, fault.NotFound) {
		next, lost := x.done(ctx, j, GivenUp)
		return next, errors.Join(err, lost)
	}
	x.cfg.Count(Retried)
	pause := min(firstPause<<(j.Tries-1), longestPause)
	pause = max(pause/2+rand.N(pause/2), min(x.cfg.RetryAfter(err), longestPause))
	return x.again(ctx, j, pause, err)
}

// extract asks a model for the facts of a call and stores them. It reports false if there was
// nothing to ask.
func (x *Extractor) extract(ctx context.Context, a *memory.Agent) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	p, ok, err := x.cfg.Prompt(ctx, a)
	if !ok || err != nil {
		return false, err
	}
	answer, err := x.cfg.Ask(ctx, a, a.Settings.Memory.Remember.ExtractionModel, p)
	if err != nil {
		return true, err
	}
	return true, x.cfg.Extract(ctx, a, answer)
}

// storeFor is how long the end of a job may take to be stored.
const storeFor = 10 * time.Second

// done deletes a job.
func (x *Extractor) done(ctx context.Context, j *job, outcome string) (time.Time, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer stop()
	if err := x.drop(ctx, j); err != nil {
		return x.cfg.Now().Add(firstPause), err
	}
	if outcome != "" {
		x.cfg.Count(outcome)
	}
	return time.Time{}, nil
}

// again stores that a job is due again after a pause. cause is why.
func (x *Extractor) again(ctx context.Context, j *job, pause time.Duration, cause error) (time.Time, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer stop()
	due := x.cfg.Now().Add(pause)
	j.DueMS = due.UnixMilli()
	if err := x.put(ctx, j); err != nil && !errors.Is(err, record.ErrStale) {
		return due, errors.Join(cause, err)
	}
	return due, cause
}
