package job

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/store/record"
)

// Config is what a Runner needs. Store and Now are required.
type Config struct {
	Store   record.Store
	Now     func() time.Time
	Log     zerolog.Logger
	Metrics prometheus.Registerer // nil registers nowhere
	// Alone is set if no other server can use the store: claims that are found in it are of a
	// server that has ended, and do not count.
	Alone bool
}

// Runner runs the jobs of all kinds.
type Runner struct {
	cfg     Config
	metrics *metrics
	queues  []*Queue
}

// New returns a Runner without kinds.
func New(c Config) *Runner {
	r := &Runner{cfg: c}
	r.metrics = newMetrics(c.Metrics, r)
	return r
}

// Handle makes the Runner run jobs of a kind. It must be called before Run.
func (r *Runner) Handle(k Kind) *Queue {
	q := &Queue{
		r: r, kind: k.withDefaults(), wake: make(chan struct{}, 1), jobs: map[Key]*entry{},
		parked: map[string][]*entry{}, of: map[string]int{}, wanted: map[Key]bool{},
	}
	r.queues = append(r.queues, q)
	return q
}

// Every makes the Runner do something at its start and then periodically. What fails is tried again
// within minutes, less and less often. It may take a day, and then the next time is left out.
func (r *Runner) Every(name string, every time.Duration, do func(ctx context.Context) error) {
	r.Handle(Kind{
		Name: name, Every: every, Places: 1, Timeout: 24 * time.Hour, First: min(every, 10*time.Minute), Longest: every, Frequent: true,
		Find: One,
		Do: func(ctx context.Context, _ Key) (Result, error) {
			return Done(OK), do(ctx)
		},
	})
}

// Run runs jobs until ctx is done, then ends the contexts of those that run, waits for them and
// returns nil.
func (r *Runner) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for _, q := range r.queues {
		group.Go(func() { q.run(ctx) })
	}
	group.Wait()
	return nil
}

// MaxList is how many jobs List returns at most.
const MaxList = 1000

// List returns the jobs of a project in a state, "" for any, that this server knows: those first
// that failed, then by the time when they are due.
func (r *Runner) List(project string, state State) []Info {
	var out []Info
	for _, q := range r.queues {
		out = append(out, q.list(project, state)...)
	}
	return Sorted(out)
}

func (q *Queue) list(project string, state State) (out []Info) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.jobs {
		if e.Project != project {
			continue
		}
		if i := q.info(e); state == "" || state == i.State {
			out = append(out, i)
		}
	}
	return out
}

func (q *Queue) info(e *entry) Info {
	i := e.info(q.kind.Name)
	if i.State != Failed {
		i.DueMS = e.at.UnixMilli()
	}
	if e.busy {
		i.State = Running
	}
	return i
}

// info describes a job by its record.
func (e *entry) info(kind string) Info {
	i := Info{Kind: kind, Key: e.Key, State: Waiting, SinceMS: e.SinceMS, DueMS: e.DueMS, Tries: e.Tries, Error: e.Error}
	switch {
	case e.FailedMS > 0:
		i.State, i.DueMS = Failed, e.FailedMS
	case e.Busy:
		i.State = Running
	case e.Tries > 0:
		i.State = Retrying
	}
	return i
}

// report counts and logs the result of a try.
func (r *Runner) report(k *Kind, e *entry, v *verdict, took time.Duration) {
	if v.elsewhere || v.stopped || v.Outcome == "" && v.err == nil {
		return
	}
	outcome := cmp.Or(v.Outcome, Retried)
	r.metrics.count(k.Name, outcome, took)
	if k.Count != nil {
		k.Count(outcome)
	}
	level := zerolog.InfoLevel
	switch {
	case fault.Reported(v.err), v.err == nil && (k.Frequent || v.Outcome == Part):
		level = zerolog.DebugLevel
	case v.failed:
		level = zerolog.ErrorLevel
	case v.err != nil:
		level = zerolog.WarnLevel
	}
	line := r.cfg.Log.WithLevel(level).Str("kind", k.Name).Str("outcome", outcome).Dur("took", took)
	if e.Project != "" {
		line = line.Str("project", e.Project)
	}
	if e.ID != "" {
		line = line.Str("job", e.ID)
	}
	if v.err != nil {
		line = line.Err(v.err).Int("tries", e.Tries)
		if !v.failed {
			line = line.Dur("next_in", v.After)
		}
	}
	line.Msg("job")
}

// problem logs what concerns no single job.
func (r *Runner) problem(what, kind string, err error) {
	level := zerolog.ErrorLevel
	if fault.Reported(err) {
		level = zerolog.DebugLevel
	}
	r.cfg.Log.WithLevel(level).Str("kind", kind).Err(err).Msg(what)
}

// explain returns the text of an error as it is stored and listed: what may be shown to a caller of
// the API. The log has the whole error, in which an upstream may have quoted what was said.
func explain(err error) string {
	out := "internal error; the log has the cause"
	if public, ok := errors.AsType[interface {
		error
		Public() string
	}](err); ok {
		out = public.Public()
	} else if f, ok := errors.AsType[*fault.Error](err); ok {
		out = f.Msg
	}
	return text.Clip(out, MaxError-len("…"))
}
