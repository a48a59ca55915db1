package turn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// Config configures a Runner. Turns and Client are required.
type Config struct {
	Turns Turns
	// Window builds the contexts of turns that follow a policy; nil follows the default one only.
	Window agents.Window
	Client *llmadapter.Client
	// Defaults apply where an agent has no setting of its own. URL, key, headers and vendor go
	// together: the server's key is never sent to an agent's URL.
	Defaults memory.LLMSettings
	Now      func() time.Time // nil: time.Now
	Log      zerolog.Logger
	Metrics  prometheus.Registerer // nil registers nowhere
	// WriteTimeout is how long one write may take before the client counts as gone; 0 means 30 s.
	WriteTimeout time.Duration
	Drain        DrainLimits
	Fallbacks    []Fallback // after Defaults, for agents that use those; names are unique
	Retries      Retries
	Prices       memory.Prices // of the models that answer
	Tracing      Tracing
	// Redactor returns what replaces personal data in an agent's texts; nil replaces nothing.
	Redactor func(*memory.Agent) *redact.Redactor
	// Redact runs a function with what replaces personal data in texts that are not stored in the
	// ledger, perhaps more than once; see agents.Messages.Redact. nil uses Redactor.
	Redact func(ctx context.Context, a *memory.Agent, fn func(*redact.Redactor)) error
	// Remember finds what callers said earlier; nil finds nothing.
	Remember *remember.Service
}

// DrainLimits limits reading an upstream whose client went away (on_disconnect "drain"). Zero
// fields mean 2 minutes, 4 MiB and 64 calls at once. A call over the limits is cancelled.
type DrainLimits struct {
	Time  time.Duration
	Bytes int64
	Calls int64
}

// Runner runs turns. It is created by New and safe for concurrent use.
type Runner struct {
	cfg      Config
	metrics  *metrics
	joins    joins
	breakers *breakers
	shapes   shapes
	draining atomic.Int64

	mu      sync.Mutex
	closing bool
	running sync.WaitGroup // turns in progress
	life    context.Context
	end     context.CancelCauseFunc
}

// errShutdown ends turns without a client when the server goes down.
var errShutdown = errors.New("the server is going down")

// errDrained ends a drain that exceeded its limits.
var errDrained = errors.New("drained up to its limits")

// ErrAborted means that the client was sent the beginning of a broken answer. The connection must
// be aborted, so that the client does not take it for a whole one.
var ErrAborted = errors.New("the answer broke off after its beginning was sent")

// New returns a Runner and registers its metrics.
func New(c Config) *Runner {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Redactor == nil {
		c.Redactor = func(*memory.Agent) *redact.Redactor { return nil }
	}
	if c.Redact == nil {
		c.Redact = func(_ context.Context, a *memory.Agent, fn func(*redact.Redactor)) error {
			fn(c.Redactor(a))
			return nil
		}
	}
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.Drain.Time = cmp.Or(c.Drain.Time, 2*time.Minute)
	c.Drain.Bytes = cmp.Or(c.Drain.Bytes, 4<<20)
	c.Drain.Calls = cmp.Or(c.Drain.Calls, 64)
	r := &Runner{cfg: c, metrics: newMetrics(c.Metrics), joins: joins{running: map[joinKey]*share{}}, breakers: newBreakers(c), shapes: shapes{of: map[breakerKey]string{}}}
	r.life, r.end = context.WithCancelCause(context.Background())
	return r
}

// start registers work that Close waits for. It reports false if the server is going down.
func (r *Runner) start() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.running.Add(1)
	return true
}

// Close lets turns without a client and drains finish until ctx is done, cancels the rest, and
// waits until all are stored. Calls with a client end with their requests, which the server ends
// first; Close waits until they are stored too, since the store is closed after it.
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
	<-done // they settle within the store's own limits
	return context.Cause(ctx)
}
