// Package answer runs turns: it joins the memory (memory.Turns) and the upstream LLM (package llmadapter) into one call for
// an answer, with or without a client who waits for it.
//
// A call goes: plan what it brings to the memory, Begin (the caller's words are on disk from here on), assemble, call the
// upstream, relay, Settle. Whatever happens, each turn that began is settled once: when the answer is complete, before the
// client is told so; when the client goes away, at once, since his next words come within milliseconds.
package turn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Config is what a Runner is made of. Turns and Client are required.
type Config struct {
	Turns  memory.Turns
	Client *llmadapter.Client
	// Defaults hold for agents that bring no setting of their own. The URL, key, headers and vendor go together: the
	// server's key is never sent to an agent's URL.
	Defaults memory.LLMSettings
	Now      func() time.Time      // nil: time.Now
	Log      zerolog.Logger        //
	Metrics  prometheus.Registerer // nil registers nowhere
	// WriteTimeout is how long one write to a client may take before he counts as gone; 0 = 30 s.
	WriteTimeout time.Duration
	Drain        DrainLimits
	Fallbacks    []Fallback // behind Defaults, for agents that use those; names are unique
	Retries      Retries
	Tracing      Tracing
}

// DrainLimits bounds what is read of an upstream after its client went away (on_disconnect "drain"). Zero fields take the
// defaults: 2 minutes, 4 MiB, 64 at once. Over the number, the call is cancelled.
type DrainLimits struct {
	Time  time.Duration
	Bytes int64
	Calls int64
}

// Runner runs turns. It is safe for concurrent use; make it with New.
type Runner struct {
	cfg      Config
	metrics  *metrics
	joins    joins
	breakers *breakers
	draining atomic.Int64
	zones    sync.Map // by name: *time.Location of each zone that timestamps are told in

	mu      sync.Mutex
	closing bool
	running sync.WaitGroup // turns on their way, with a client or without
	life    context.Context
	end     context.CancelCauseFunc
}

// errShutdown ends what nobody waits for when the server goes down.
var errShutdown = errors.New("the server is going down")

// errDrained is the end of a drain that passed its bounds.
var errDrained = errors.New("drained as far as the bounds allow")

// ErrAborted tells that the client has the beginning of a broken answer: the connection must be aborted, so that no
// client takes it for a whole one.
var ErrAborted = errors.New("the answer broke off after its beginning was sent")

// New makes a Runner and registers its metrics.
func New(c Config) *Runner {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Drain.Time == 0 {
		c.Drain.Time = 2 * time.Minute
	}
	if c.Drain.Bytes == 0 {
		c.Drain.Bytes = 4 << 20
	}
	if c.Drain.Calls == 0 {
		c.Drain.Calls = 64
	}
	r := &Runner{cfg: c, metrics: newMetrics(c.Metrics), breakers: newBreakers(c)}
	r.life, r.end = context.WithCancelCause(context.Background())
	return r
}

// start notes work that Close waits for; false if there may be no more of it.
func (r *Runner) start() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.running.Add(1)
	return true
}

// Close lets the turns without a client and the drains finish until ctx is done, ends the rest, and waits for all to be
// stored. Calls with a client end with their requests, which the server has ended before; Close waits until they are stored too,
// since the store closes behind it.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	r.end(errShutdown)
	<-done // they settle within the store's own bounds
	return context.Cause(ctx)
}
