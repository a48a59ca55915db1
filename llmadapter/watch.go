package llmadapter

import (
	"context"
	"sync"
	"time"
)

// Watch ends a call that takes too long: it cancels the call's context with the limit that was passed as the cause. It is
// safe for concurrent use.
type Watch struct {
	limits Limits
	cancel context.CancelCauseFunc
	now    func() time.Time

	mu    sync.Mutex
	timer *time.Timer
	start time.Time
	due   time.Time // zero: nothing is due but the total
	cause error
	over  bool
}

// NewWatch starts to watch a call; stream tells whether the limits between events apply. Stop must be called.
func NewWatch(limits Limits, stream bool, now func() time.Time, cancel context.CancelCauseFunc) *Watch {
	w := &Watch{limits: limits, cancel: cancel, now: now, start: now()}
	if stream && limits.FirstToken > 0 {
		w.due, w.cause = w.start.Add(limits.FirstToken), ErrFirstTokenTimeout
	}
	w.timer = time.AfterFunc(w.wait(w.start), w.fire)
	return w
}

// forEver is a wait longer than any call.
const forEver = 365 * 24 * time.Hour

// wait gives how long it is until something is due; mu is held, or w is new.
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

// fire looks at what is due. Events only note their time: the timer, which fires early then, is set anew here, so that a
// chunk does not pay for it.
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

// Event notes a data event; r says whether the stream has finished, after which only a grace is left.
func (w *Watch) Event(r *Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Done:
		w.sooner(DoneGrace, ErrGrace)
	case r.Finish != "":
		w.sooner(FinishGrace, ErrGrace)
	case !r.Begun(): // what came is not the answer yet
	default:
		w.heard()
	}
}

// Data notes a piece of an answer that is no stream of chunks: from then on the limit between two holds for it.
func (w *Watch) Data() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard()
}

func (w *Watch) heard() {
	if w.limits.Idle == 0 {
		w.due = time.Time{}
		return
	}
	first := w.cause != ErrIdleTimeout
	w.due, w.cause = w.now().Add(w.limits.Idle), ErrIdleTimeout
	if first { // may be due before the limit for the first token would have been
		w.timer.Reset(w.wait(w.now()))
	}
}

func (w *Watch) sooner(d time.Duration, cause error) {
	w.due, w.cause = w.now().Add(d), cause
	w.timer.Reset(d)
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
