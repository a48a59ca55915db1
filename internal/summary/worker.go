package summary

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
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
	// Lease makes this process the only one that summarizes the agent, until the lease ends or is
	// returned; ok is false while another process holds it. nil if no other process serves the
	// memory.
	Lease func(ctx context.Context, project, id string, lease time.Duration) (giveBack func(), ok bool, err error)
	// RetryAfter returns the delay that the upstream that failed with err asked for; nil
	// means never.
	RetryAfter func(err error) time.Duration
	// Outcome names what asking failed with, for metrics; nil calls everything failed.
	Outcome func(err error) string
	Limits  Limits // the zero value is DefaultLimits
	// Places is how many summaries are made at a time, over all agents. One project gets at most
	// half of them, but at least one. 0 = 8.
	Places  int
	Log     zerolog.Logger
	Metrics prometheus.Registerer // nil registers nowhere
}

// The gaps after a summary that could not be made: the first, and the longest.
const (
	firstGap   = 5 * time.Second
	longestGap = 10 * time.Minute
)

// How long a lease lasts, and when an agent is checked again that another process is summarizing. A
// summary that takes longer than its lease may be made twice; the later one is then stale.
const (
	leaseFor   = time.Minute
	leaseAgain = 5 * time.Second
)

// errElsewhere means that another process is summarizing the agent.
var errElsewhere = errors.New("another server is summarising it")

// gap returns the pause after n failures in a row, counted from 1. It doubles each time, and half
// of it is jitter, so that agents that failed together are spread.
func gap(n int) time.Duration {
	d := min(firstGap<<min(n-1, 10), longestGap)
	return d/2 + rand.N(d/2)
}

// Worker makes summaries in the background: one at a time for each agent, at most Places in all.
// Its state may be lost with the process: when the memory starts, it reports the live agents that
// ask for summaries with Changed. It implements agents.Summaries.
type Worker struct {
	cfg     Config
	metrics *metrics
	wake    chan struct{}

	mu      sync.Mutex
	agents  map[agentKey]*entry
	queue   queue
	running int
	of      map[string]int // how many run, by project
	// Due agents that wait for a place of their project, by project, first in first out.
	parked map[string][]*entry
}

var _ agents.Summaries = (*Worker)(nil)

type agentKey struct{ project, id string }

// entry is the state of one agent. The agent is checked again once it has grown by the remaining
// allowance.
type entry struct {
	agentKey
	// How much may be added before a check can find something due; at or below 0 a check is wanted.
	chars, messages int64
	fails           int // in a row
	at              time.Time
	place           int  // in the queue; -1 = it is not there
	parked          bool // see Worker.parked
	busy, again     bool // being checked, and to be checked again
	cancel          context.CancelCauseFunc
}

// New makes a Worker and registers its metrics. Run must be running for summaries to be made.
func New(c Config) *Worker {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.Places <= 0 {
		c.Places = 8
	}
	if c.RetryAfter == nil {
		c.RetryAfter = func(error) time.Duration { return 0 }
	}
	if c.Outcome == nil {
		c.Outcome = func(error) string { return "failed" }
	}
	w := &Worker{cfg: c, wake: make(chan struct{}, 1), agents: map[agentKey]*entry{}, of: map[string]int{}, parked: map[string][]*entry{}}
	w.metrics = newMetrics(c.Metrics, w)
	return w
}

// Grew implements agents.Summaries.
func (w *Worker) Grew(project, id string, chars, messages int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := agentKey{project, id}
	e := w.agents[k]
	if e == nil {
		e = &entry{agentKey: k, place: -1}
		w.agents[k] = e
	}
	e.chars, e.messages = e.chars-chars, e.messages-messages
	w.want(e)
}

// Changed implements agents.Summaries.
func (w *Worker) Changed(project, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := agentKey{project, id}
	e := w.agents[k]
	if e == nil {
		e = &entry{agentKey: k, place: -1}
		w.agents[k] = e
	}
	e.chars, e.again = min(e.chars, 0), e.busy
	w.want(e)
}

// Ended implements agents.Summaries.
func (w *Worker) Ended(project, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.agents[agentKey{project, id}]; e != nil {
		w.forget(e)
	}
}

// errEnded cancels a summary of an agent that has ended.
var errEnded = errors.New("the agent has ended")

// forget drops an entry; w.mu is held.
func (w *Worker) forget(e *entry) {
	if e.place >= 0 {
		heap.Remove(&w.queue, e.place)
	}
	if e.cancel != nil {
		e.cancel(errEnded)
	}
	delete(w.agents, e.agentKey)
	w.unpark(e.project) // it may have been this one that had the place
}

// unpark queues the next agent that waits for a place of its project; w.mu is held. Each end of a
// summary calls it, so that the waiting agents are never searched.
func (w *Worker) unpark(project string) {
	list := w.parked[project]
	for len(list) > 0 {
		e := list[0]
		list[0], list = nil, list[1:]
		e.parked = false
		if w.agents[e.agentKey] == e { // it has not ended meanwhile
			w.want(e)
			break
		}
	}
	if w.parked[project] = list; len(list) == 0 {
		delete(w.parked, project)
	}
}

// want queues an entry if a look is wanted; w.mu is held.
func (w *Worker) want(e *entry) {
	if e.busy || e.parked || e.place >= 0 || e.chars > 0 && e.messages > 0 {
		return
	}
	heap.Push(&w.queue, e)
	if w.queue[0] == e {
		w.poke()
	}
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run makes summaries until ctx is done, cancels those in progress, waits for them and returns nil.
func (w *Worker) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		wait := w.begin(ctx, &group)
		alarm := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			alarm.Stop()
			return nil
		case <-alarm.C:
		case <-w.wake:
			alarm.Stop()
		}
	}
}

// begin starts what is due and has a place, and returns the time until something else is due.
func (w *Worker) begin(ctx context.Context, group *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running < w.cfg.Places && len(w.queue) > 0 && ctx.Err() == nil {
		e := w.queue[0]
		if wait := time.Until(e.at); wait > 0 {
			return wait
		}
		heap.Pop(&w.queue)
		if w.of[e.project] >= max(1, w.cfg.Places/2) {
			e.parked = true
			w.parked[e.project] = append(w.parked[e.project], e)
			continue
		}
		run, cancel := context.WithCancelCause(ctx)
		e.busy, e.cancel = true, cancel
		e.chars, e.messages = 0, 0 // what comes from now on is counted
		w.running++
		w.of[e.project]++
		group.Go(func() {
			w.look(run, e)
			cancel(nil)
		})
	}
	return time.Hour // an end pokes
}

// look summarises what is due for one agent and settles when to look again.
func (w *Worker) look(ctx context.Context, e *entry) {
	l, outcome, err := w.guarded(ctx, e)
	switch {
	case err == nil, errors.Is(err, errElsewhere):
	case ctx.Err() != nil:
		outcome = "canceled"
	default:
		w.cfg.Log.Warn().Err(err).Str("agent", e.id).Str("outcome", outcome).Int("failures", e.fails+1).Msg("a summary could not be made; the memory stays as it is")
	}
	if outcome != "" {
		w.metrics.summaries.WithLabelValues(outcome).Inc()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if w.of[e.project]--; w.of[e.project] == 0 {
		delete(w.of, e.project)
	}
	defer w.poke() // there is a place
	w.unpark(e.project)
	defer func() { e.again = false }()
	e.busy, e.cancel = false, nil
	if w.agents[e.agentKey] != e { // it has ended meanwhile
		return
	}
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Stopped):
		delete(w.agents, e.agentKey)
		return
	case errors.Is(err, errElsewhere):
		e.at = time.Now().Add(leaseAgain)
		e.chars, e.messages = 0, 0
	case err != nil:
		e.fails++
		e.at = time.Now().Add(max(gap(e.fails), min(w.cfg.RetryAfter(err), longestGap)))
		e.chars, e.messages = 0, 0
	case outcome == "": // nothing was due
		e.fails, e.at = 0, time.Time{}
		e.chars, e.messages = e.chars+l.Chars, e.messages+l.Count // less what came while we looked
		if e.again {
			e.chars = 0
		}
	default: // there may be more
		e.fails, e.at = 0, time.Time{}
		e.chars, e.messages = 0, 0
	}
	w.want(e)
}

// guarded calls summarise and turns a panic into a failed attempt, so that it does not take the
// server down.
func (w *Worker) guarded(ctx context.Context, e *entry) (l memctx.Leaving, outcome string, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = "panic", fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.summarise(ctx, e)
}

// summarise makes one summary, if one is due; outcome is "" if none is.
func (w *Worker) summarise(ctx context.Context, e *entry) (l memctx.Leaving, outcome string, err error) {
	l, err = w.cfg.Memory.Leaving(ctx, e.project, e.id)
	if err != nil {
		return l, "store_error", err
	}
	if len(l.Messages) == 0 {
		return l, "", nil
	}
	if w.cfg.Lease != nil {
		giveBack, ok, err := w.cfg.Lease(ctx, e.project, e.id, leaseFor)
		if err != nil {
			return l, "store_error", err
		}
		if !ok {
			return l, "", errElsewhere
		}
		defer giveBack()
		// What was due may have been summarised elsewhere since.
		if l, err = w.cfg.Memory.Leaving(ctx, e.project, e.id); err != nil {
			return l, "store_error", err
		}
		if len(l.Messages) == 0 {
			return l, "", nil
		}
	}
	began := time.Now()
	lines := Transcript(l.Messages)
	n := Take(lines, l.Earlier, w.cfg.Limits)
	n = whole(l.Messages, n)
	text := l.Earlier // where nothing was said, nothing is to be added
	if said(lines[:n]) {
		text, err = Make(ctx, asker{w, &l}, lines[:n], l.Earlier, w.cfg.Limits)
		w.metrics.seconds.Observe(time.Since(began).Seconds())
	}
	if err != nil {
		return l, w.outcome(err), err
	}
	err = w.cfg.Memory.Summarised(ctx, memctx.Summarised{Of: l, Messages: n, Text: text})
	switch {
	case errors.Is(err, memctx.ErrSummaryStale):
		return l, "stale", err
	case err != nil:
		return l, "store_error", err
	}
	return l, "ok", nil
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

// queue holds the entries to be checked, the first due in front.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].place, q[j].place = i, j }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.place = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	e.place = -1
	return e
}
