package webhook

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/fault"
)

// storeHealth reduces sending while results cannot be stored, for example on a full disk:
// deliveries without a stored result are all sent again.
type storeHealth struct {
	mu     sync.Mutex
	failed int       // deliveries whose result was refused since the last one that was stored
	since  time.Time // when the first of them was, or when it was last tried whether that is over
}

// works notes that a result was stored.
func (h *storeHealth) works() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = 0
}

// fails notes that one could not be.
func (h *storeHealth) fails(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed++; h.failed == 1 {
		h.since = began
	}
}

// allow returns the result of free. After several results in a row that could not be stored, it
// allows one attempt per lease. A single failure may be the delivery's own fault and changes
// nothing.
func (h *storeHealth) allow(lease time.Duration, free func() (attempts, tests int)) (attempts, tests int) {
	attempts, tests = free()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed < 2 {
		return attempts, tests
	}
	if time.Since(h.since) < lease {
		return 0, 0
	}
	h.since = time.Now()
	return min(attempts, 1), 0
}

// deliver makes the attempt and stores what came of it, both before the lease ends.
func (r *run) deliver(d Delivery, ticket breaker.Ticket, leaseEnds time.Time, stopping bool, land func()) {
	ctx, cancel := context.WithDeadline(r.stores, leaseEnds)
	defer cancel()
	ends := leaseEnds.Add(-leaseSlack / 2)
	// The claim took so long that an attempt would outlast its lease.
	if stopping || time.Until(ends) < minAttempt {
		ended(ticket, d.Urgent, unknown, r.c.Now())
		land()
		r.retryCall(ctx, d, "release", func(ctx context.Context) error { return Release(ctx, r.c.Queue, d) })
		return
	}
	out := r.attempt(d, ends)
	ended(ticket, d.Urgent, judge(out), r.c.Now())
	// A failure may disable the endpoint, so the next attempt waits until that is stored.
	if out.OK() {
		land()
	}
	if out.ErrorClass == ClassCanceled {
		r.retryCall(ctx, d, "release", func(ctx context.Context) error { return Release(ctx, r.c.Queue, d) })
		return
	}
	r.metrics.observe(out)
	result := r.c.Settle(d, out, r.c.Now(), r.c.Random())
	r.finish(ctx, d, result)
}

// end stores what became of a delivery that is not tried any more.
func (r *run) end(d Delivery, result Result, leaseEnds time.Time) {
	ctx, cancel := context.WithDeadline(r.stores, leaseEnds)
	defer cancel()
	r.finish(ctx, d, result)
}

// finish stores a result; one that another claim has overtaken counts for nothing.
func (r *run) finish(ctx context.Context, d Delivery, result Result) {
	r.log(d, result)
	if r.retryCall(ctx, d, "finish", func(ctx context.Context) error { return r.c.Queue.Finish(ctx, d, result) }) && result.State == Dead {
		r.metrics.dead.Inc()
	}
}

// attempt sends the delivery, and turns a panic into an outcome: one bad delivery must not stop the
// others.
func (r *run) attempt(d Delivery, ends time.Time) (out Outcome) {
	defer func() {
		if v := recover(); v != nil {
			r.c.Log.Error().Int64("delivery", d.ID).Str("event", d.EventID).Interface("panic", v).
				Bytes("stack", debug.Stack()).Msg("webhook attempt panicked")
			out = Outcome{Attempt: Attempt{
				N: d.Attempt, StartedMS: r.c.Now().UnixMilli(), ErrorClass: ClassPanic, Error: "a mistake in Heardlog stopped the attempt",
			}}
		}
	}()
	ctx, cancel := context.WithDeadline(r.attempts, ends)
	defer cancel()
	return r.c.Sender.Send(ctx, d)
}

// retryCall makes a store call that ends a claim, and retries it until the lease ends. A result
// that is not stored by then means that the delivery is sent again. It reports whether the call
// succeeded.
func (r *run) retryCall(ctx context.Context, d Delivery, call string, do func(context.Context) error) bool {
	for pause, known := finishPause, false; ; pause *= 2 {
		began := time.Now()
		err := safely(ctx, do)
		if err == nil {
			r.store.works()
			return true
		}
		log := r.c.Log.With().Int64("delivery", d.ID).Str("event", d.EventID).Str("endpoint", d.Endpoint.ID).Logger()
		if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
			log.Warn().Err(err).Msg("webhook " + call + ": another worker has this delivery, or it is gone; result dropped")
			return false
		}
		if !known {
			r.store.fails(began)
			known = true
		}
		r.metrics.storeErrors.WithLabelValues(call).Inc()
		log.Error().Err(err).Msg("webhook " + call)
		if !wait(ctx, pause) || errors.Is(err, errPanic) {
			log.Error().Msg("webhook " + call + ": not stored; the delivery is sent again when its lease has ended")
			return false
		}
	}
}

// errPanic marks a panic in the store.
var errPanic = errors.New("panic")

func safely(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return do(ctx)
}
