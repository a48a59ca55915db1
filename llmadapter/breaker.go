package llmadapter

import (
	"sync"
	"time"
)

// Bounds of a Breaker.
const (
	// BreakerFailures is how many failures in a row open it.
	BreakerFailures = 5
	// BreakerOpen is how long it stays open before a probe, longer where the upstream names a longer time, up to BreakerMaxOpen.
	BreakerOpen    = 10 * time.Second
	BreakerMaxOpen = time.Minute
)

// BreakerState is what a Breaker says of its upstream; the numbers are those of the gauge.
type BreakerState int

// The states.
const (
	BreakerClosed   BreakerState = 0 // asked as ever
	BreakerHalfOpen BreakerState = 1 // one call may find out whether it works again
	BreakerIsOpen   BreakerState = 2 // others are asked first
)

// Breaker remembers whether an upstream works, so that a call need not find out. It never refuses: it says who is to be asked first. Its zero
// value is closed; it is safe for concurrent use. A client that left says nothing of an upstream and is no failure (reference/proxies.md rule 9).
type Breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // of the open state; zero where closed
	probing  bool      // the one call of the half-open state is on its way
}

// Ticket is a call's place in a breaker's books. Exactly one of its methods is to be called.
type Ticket struct {
	b     *Breaker
	probe bool
}

// Admit tells whether the upstream is to be asked now. A ticket comes either way: where nobody else is left, an upstream is asked against the breaker.
func (b *Breaker) Admit(now time.Time) (Ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return Ticket{b: b}, true
	case now.Before(b.until) || b.probing:
		return Ticket{b: b}, false
	}
	b.probing = true
	return Ticket{b: b, probe: true}, true
}

// State gives the state.
func (b *Breaker) State(now time.Time) BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return BreakerClosed
	case now.Before(b.until):
		return BreakerIsOpen
	}
	return BreakerHalfOpen
}

// Succeeded closes the breaker, whoever it was that got an answer.
func (t Ticket) Succeeded() {
	if t.b == nil {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.b.failures, t.b.until = 0, time.Time{}
	if t.probe {
		t.b.probing = false
	}
}

// Failed counts a failure. hold is how long the upstream asked to be left alone, 0 if it did not say.
func (t Ticket) Failed(now time.Time, hold time.Duration) {
	if t.b == nil {
		return
	}
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	if t.probe {
		b.probing = false
	}
	if until := now.Add(min(max(BreakerOpen, hold), BreakerMaxOpen)); t.probe || b.until.IsZero() && b.failures >= BreakerFailures {
		b.until = until
	}
}

// Abandoned gives the place back: the call ended for reasons of its own.
func (t Ticket) Abandoned() {
	if t.b == nil || !t.probe {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.b.probing = false
}
