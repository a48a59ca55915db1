package llmadapter

import (
	"context"
	"sync"
	"time"
)

// Watch cancels a call that takes too long, with the exceeded limit as the cause. It is safe for
// concurrent use.
type Watch struct {
	limits Limits
	cancel context.CancelCauseFunc
	now    func() time.Time

	mu    sync.Mutex
	timer *time.Timer
	start time.Time
	due   time.Time // zero if only the total limit applies
	cause error
	over  bool
}

// NewWatch starts watching a call. stream sets whether the limits for events apply. Stop must be
// called.
func NewWatch(limits Limits, stream bool, now func() time.Time, cancel context.CancelCauseFunc) *Watch {
	w := &Watch{limits: limits, cancel: cancel, now: now, start: now()}
	if stream && limits.FirstToken > 0 {
		w.due, w.cause = w.start.Add(limits.FirstToken), ErrFirstTokenTimeout
	}
	w.timer = time.AfterFunc(w.wait(w.start), w.fire)
	return w
}

// forEver is longer than any call.
const forEver = 365 * 24 * time.Hour

// wait returns the time until the next limit. mu is held, or w is new.
func (w *Watch) wait(now time.Time) time.Duration {
	d := forEver
	if !w.due.IsZero() {
		d = w.due.Sub(now)
	}
	if w.limits.Total > 0 {
		d = min(d, w.start.Add(w.limits.Total).Sub(now))
	}
	return d
}

// fire cancels the call if a limit is exceeded. Events only move the limit and not the timer, which
// is cheaper, so that the timer may fire early and is set again here.
func (w *Watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := w.now()
	switch {
	case !w.due.IsZero() && !now.Before(w.due):
		w.over = true
		w.cancel(w.cause)
	case w.limits.Total > 0 && !now.Before(w.start.Add(w.limits.Total)):
		w.over = true
		w.cancel(ErrTotalTimeout)
	default:
		w.timer.Reset(w.wait(now))
	}
}

// Event notes a data event. The limit for the first token holds until the answer has begun. If r is
// complete, only a grace period is left.
func (w *Watch) Event(r *Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Done:
		w.sooner(DoneGrace, ErrGrace)
	case r.Finish != "":
		w.sooner(FinishGrace, ErrGrace)
	case !r.Begun() && w.limits.FirstToken > 0: // no words, no call and no thought came yet
	default:
		w.moved()
	}
}

// Data notes a piece of a body that is not a stream of chunks. From then on the idle limit applies.
func (w *Watch) Data() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved()
}

// moved restarts the idle limit.
func (w *Watch) moved() {
	if w.limits.Idle == 0 {
		w.due = time.Time{}
		return
	}
	first := w.cause != ErrIdleTimeout
	w.due, w.cause = w.now().Add(w.limits.Idle), ErrIdleTimeout
	if first { // it may be earlier than the limit for the first token
		w.timer.Reset(w.wait(w.now()))
	}
}

// sooner sets a limit and the timer.
func (w *Watch) sooner(d time.Duration, cause error) {
	w.due, w.cause = w.now().Add(d), cause
	w.timer.Reset(d)
}

// Stop stops watching.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
