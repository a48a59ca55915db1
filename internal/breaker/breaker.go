// Package breaker holds circuit breakers. A Breaker opens after several failures in a row, so that
// callers leave a server alone that is down, and lets one probe through after a pause to find out
// whether it works again.
package breaker

import (
	"sync"
	"time"
)

// Settings are the limits of a Breaker.
type Settings struct {
	Failures int           // failures in a row that open it
	Pause    time.Duration // how long it stays open before the first probe
	Longest  time.Duration // the longest pause
	// Doubling doubles the pause after each probe that fails, up to Longest.
	Doubling bool
}

// State is the state of a Breaker. The numbers are those of the gauges.
type State int

// The states of a Breaker.
const (
	Closed   State = 0 // calls go through
	HalfOpen State = 1 // the pause is over, and a probe may go through
	Open     State = 2 // calls are held back
)

// Breaker is a circuit breaker. It is safe for concurrent use. Create it with New.
type Breaker struct {
	settings Settings

	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // the current pause
	until    time.Time     // when the pause ends; zero while closed
	probing  bool          // a probe is under way
}

// New returns a closed breaker.
func New(s Settings) *Breaker { return &Breaker{settings: s} }

// Renew returns a breaker for the same server with changed settings of its own, such as another
// URL. It keeps the failures and the pause, but lets a probe through at once. Tickets of b do not
// affect it.
func (b *Breaker) Renew(now time.Time) *Breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Breaker{settings: b.settings, failures: b.failures, pause: b.pause}
	if !b.until.IsZero() {
		r.until = now
	}
	return r
}

// Ticket is the place of one call at a breaker. Call exactly one of its methods when the call ends.
// The zero Ticket belongs to no breaker, and its methods do nothing.
type Ticket struct {
	b     *Breaker
	probe bool
}

// Admit returns a ticket for a call, and reports whether the breaker lets it through. A caller that
// has nowhere else to go may make the call all the same; its ticket then is not the probe.
func (b *Breaker) Admit(now time.Time) (Ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state(now) {
	case Closed:
		return Ticket{b: b}, true
	case HalfOpen:
		if !b.probing {
			b.probing = true
			return Ticket{b: b, probe: true}, true
		}
	}
	return Ticket{b: b}, false
}

// Bypass returns a ticket for a call that is made whatever the state is. It is never the probe.
func (b *Breaker) Bypass() Ticket { return Ticket{b: b} }

// State returns the state at a time.
func (b *Breaker) State(now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state(now)
}

func (b *Breaker) state(now time.Time) State {
	switch left := b.until.Sub(now); {
	case b.until.IsZero():
		return Closed
	case left > 0 && left <= b.settings.Longest: // more is left only if the clock was set back
		return Open
	}
	return HalfOpen
}

// Probing reports whether a probe is under way.
func (b *Breaker) Probing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.probing
}

// Until returns when the current pause ends, or the zero time if the breaker is closed.
func (b *Breaker) Until() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

// Untouched reports whether no failure counts against the server.
func (b *Breaker) Untouched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures == 0 && b.until.IsZero()
}

// Succeeded closes the breaker, whether or not the call was the probe.
func (t Ticket) Succeeded() {
	if t.b == nil {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.b.failures, t.b.until, t.b.pause = 0, time.Time{}, 0
	if t.probe {
		t.b.probing = false
	}
}

// Failed counts a failure. hold is how long the server asked to be left alone, or 0. Calls that
// were under way when the breaker opened do not make its pause longer; only the probe does.
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
	opens := b.until.IsZero() && b.failures >= b.settings.Failures
	if !t.probe && !opens {
		return
	}
	switch {
	case b.pause == 0 || opens:
		b.pause = b.settings.Pause
	case b.settings.Doubling:
		b.pause = min(2*b.pause, b.settings.Longest)
	}
	b.until = now.Add(min(max(b.pause, hold), b.settings.Longest))
}

// Abandoned returns the place of a call that ended for reasons of its own, such as a client that
// left. It says nothing about the server.
func (t Ticket) Abandoned() {
	if t.b == nil || !t.probe {
		return
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.b.probing = false
}
