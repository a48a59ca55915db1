package summary

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
)

// Memory is what a Worker needs of the memory.
type Memory interface {
	// Leaving returns what is due to be summarized: see context.Service.Leaving.
	Leaving(ctx context.Context, project, id string) (memctx.Leaving, error)
	// Summarised stores a summary and removes the messages that it covers from the memory: see
	// context.Service.Summarised.
	Summarised(ctx context.Context, s memctx.Summarised) error
}

// Config is what a Worker is made of. Memory and Ask are required.
type Config struct {
	Memory Memory
	// Ask asks the agent's LLM, or the other model that its policy names. It is called from several
	// goroutines.
	Ask func(ctx context.Context, a memory.Agent, model string, p Prompt) (Answer, error)
	// RetryAfter returns the delay that the upstream which failed with err asked for; nil
	// means never.
	RetryAfter func(err error) time.Duration
	// Outcome names what asking failed with, for metrics; nil calls everything failed.
	Outcome func(err error) string
	Limits  Limits // the zero value is DefaultLimits
	// Places is how many summaries are made at a time, over all agents. One project gets at most
	// half of them, but at least one. 0 = 8.
	Places  int
	Metrics prometheus.Registerer // nil registers nowhere
}

// Worker has the memories of agents summarized as they fill up: a job for each agent whose memory
// has grown enough, one at a time. Its state may be lost with the process: when the memory starts,
// it reports the live agents that ask for summaries with Changed. It implements agents.Summaries.
type Worker struct {
	cfg     Config
	metrics *metrics
	queue   *job.Queue
	running atomic.Int64

	mu    sync.Mutex
	rooms map[job.Key]*room
}

var _ agents.Summaries = (*Worker)(nil)

// room is how much an agent's memory may grow before a look can find something due.
type room struct {
	chars, messages int64
	looking         bool // what comes now is counted, and needs no look of its own
}

func (r *room) full() bool { return !r.looking && (r.chars <= 0 || r.messages <= 0) }

// New makes a Worker whose summaries the jobs make, and registers its metrics.
func New(jobs *job.Runner, c Config) *Worker {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.Places <= 0 {
		c.Places = 8
	}
	if c.Outcome == nil {
		c.Outcome = func(error) string { return "failed" }
	}
	w := &Worker{cfg: c, rooms: map[job.Key]*room{}}
	w.queue = jobs.Handle(job.Kind{
		Name: job.MemorySummary, Do: w.summarise, Due: w.due, Claimed: true, Places: c.Places, Timeout: timeout,
		First: 5 * time.Second, Longest: 10 * time.Minute, RetryAfter: c.RetryAfter, Frequent: true,
	})
	w.metrics = newMetrics(c.Metrics, w)
	return w
}

// timeout limits one summary, all its calls to the LLM together.
const timeout = 10 * time.Minute

// room returns what is known of an agent; w.mu is held.
func (w *Worker) room(k job.Key) *room {
	r := w.rooms[k]
	if r == nil {
		r = &room{}
		w.rooms[k] = r
	}
	return r
}

// Grew implements agents.Summaries.
func (w *Worker) Grew(project, id string, chars, messages int64) {
	k := job.Key{Project: project, ID: id}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.room(k)
	r.chars, r.messages = r.chars-chars, r.messages-messages
	if r.full() {
		w.queue.Add(k, 0)
	}
}

// Changed implements agents.Summaries.
func (w *Worker) Changed(project, id string) {
	k := job.Key{Project: project, ID: id}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.room(k)
	r.chars = min(r.chars, 0)
	w.queue.Add(k, 0)
}

// Ended implements agents.Summaries.
func (w *Worker) Ended(project, id string) {
	k := job.Key{Project: project, ID: id}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rooms[k] != nil {
		delete(w.rooms, k)
		w.queue.Drop(k)
	}
}

// due reports whether something is due to be summarized for an agent.
func (w *Worker) due(ctx context.Context, k job.Key) (bool, job.Result, error) {
	w.mu.Lock()
	r := w.rooms[k]
	if r != nil {
		*r = room{looking: true}
	}
	w.mu.Unlock()
	if r == nil { // it has ended
		return false, job.Result{}, nil
	}
	l, err := w.cfg.Memory.Leaving(ctx, k.Project, k.ID)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Stopped):
		w.Ended(k.Project, k.ID)
		return false, job.Result{}, nil
	case err != nil:
		w.count("store_error")
		return false, job.Result{}, err
	case len(l.Messages) > 0:
		return true, job.Result{}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.looking = false
	r.chars, r.messages = r.chars+l.Chars, r.messages+l.Count // less what came while we looked
	if r.full() {
		return false, job.Again(0), nil
	}
	return false, job.Result{}, nil
}

func (w *Worker) count(outcome string) { w.metrics.summaries.WithLabelValues(outcome).Inc() }

// summarise makes one summary of what is due for an agent. There may be more.
func (w *Worker) summarise(ctx context.Context, k job.Key) (job.Result, error) {
	w.running.Add(1)
	defer w.running.Add(-1)
	// What was due may have been summarized by another server since.
	l, err := w.cfg.Memory.Leaving(ctx, k.Project, k.ID)
	outcome := "store_error"
	if err == nil && len(l.Messages) > 0 {
		outcome, err = w.make(ctx, &l)
		if err != nil && ctx.Err() != nil {
			outcome = "canceled"
		}
	}
	again := job.Again(0)
	switch {
	case err != nil:
		w.count(outcome)
	case len(l.Messages) > 0:
		w.count(outcome)
		again.Outcome = job.OK
	}
	return again, err
}

func (w *Worker) make(ctx context.Context, l *memctx.Leaving) (outcome string, err error) {
	began := time.Now()
	lines := Transcript(l.Messages)
	n := Take(lines, l.Earlier, w.cfg.Limits)
	n = whole(l.Messages, n)
	text := l.Earlier // where nothing was said, nothing is to be added
	if said(lines[:n]) {
		text, err = Make(ctx, asker{w, l}, lines[:n], l.Earlier, w.cfg.Limits)
		w.metrics.seconds.Observe(time.Since(began).Seconds())
	}
	if err != nil {
		return w.outcome(err), err
	}
	err = w.cfg.Memory.Summarised(ctx, memctx.Summarised{Of: *l, Messages: n, Text: text})
	switch {
	case errors.Is(err, memctx.ErrSummaryStale):
		return "stale", err
	case err != nil:
		return "store_error", err
	}
	return "ok", nil
}

// asker asks for one agent.
type asker struct {
	w *Worker
	l *memctx.Leaving
}

// Ask implements Asker.
func (a asker) Ask(ctx context.Context, p Prompt) (Answer, error) {
	a.w.metrics.calls.Inc()
	return a.w.cfg.Ask(ctx, a.l.Agent, a.l.Model, p)
}

// outcome names why no summary was made; there are few such names.
func (w *Worker) outcome(err error) string {
	for _, o := range []struct {
		err  error
		name string
	}{{ErrBlank, "blank"}, {ErrCut, "cut"}, {ErrTooLong, "too_long"}, {ErrCalls, "too_many_calls"}} {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return w.cfg.Outcome(err)
}
