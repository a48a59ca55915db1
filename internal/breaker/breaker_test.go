package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/breaker"
)

var settings = breaker.Settings{Failures: 5, Pause: 10 * time.Second, Longest: time.Minute}

// opened returns a breaker that has just opened.
func opened(t *testing.T) *breaker.Breaker {
	t.Helper()
	b := breaker.New(settings)
	for i := range settings.Failures {
		ticket, ok := b.Admit(time.Now())
		if !ok || b.State(time.Now()) != breaker.Closed {
			t.Fatalf("not closed after %d failures", i)
		}
		ticket.Failed(time.Now(), 0)
	}
	if _, ok := b.Admit(time.Now()); ok || b.State(time.Now()) != breaker.Open {
		t.Fatal("not open")
	}
	return b
}

// TestBreakerStates checks the way from closed to open to half-open, with one probe at a time, and
// from there to closed or open.
func TestBreakerStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		time.Sleep(settings.Pause - time.Nanosecond) // fake time
		if _, ok := b.Admit(time.Now()); ok {
			t.Error("a probe came too early")
		}
		time.Sleep(time.Nanosecond) // fake time
		if b.State(time.Now()) != breaker.HalfOpen {
			t.Error("not half-open")
		}
		probe, ok := b.Admit(time.Now())
		if !ok {
			t.Fatal("no probe")
		}
		if _, ok := b.Admit(time.Now()); ok {
			t.Error("two probes at once")
		}
		probe.Abandoned() // its client left: nothing was learnt
		if probe, ok = b.Admit(time.Now()); !ok {
			t.Fatal("the place of a probe that was abandoned is lost")
		}
		probe.Failed(time.Now(), 0)
		if b.State(time.Now()) != breaker.Open {
			t.Error("not open after a probe that failed")
		}
		time.Sleep(settings.Pause) // fake time
		if probe, ok = b.Admit(time.Now()); !ok {
			t.Fatal("no second probe")
		}
		probe.Succeeded()
		for range settings.Failures - 1 {
			ticket, ok := b.Admit(time.Now())
			if !ok {
				t.Fatal("not closed after a probe that succeeded")
			}
			ticket.Failed(time.Now(), 0)
		}
		if b.State(time.Now()) != breaker.Closed {
			t.Error("failures from before count on")
		}
	})
}

// TestBreakerHold checks that a server which asks for a longer pause gets it, within bounds, and
// that the success of a call that was not the probe closes the breaker.
func TestBreakerHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for hold, want := range map[time.Duration]time.Duration{
			time.Second: settings.Pause, 30 * time.Second: 30 * time.Second, time.Hour: settings.Longest,
		} {
			b := breaker.New(settings)
			for range settings.Failures {
				ticket, _ := b.Admit(time.Now())
				ticket.Failed(time.Now(), hold)
			}
			if at := time.Now().Add(want); b.State(at.Add(-1)) != breaker.Open || b.State(at) != breaker.HalfOpen {
				t.Errorf("held for %v: not open for %v", hold, want)
			}
			late, ok := b.Admit(time.Now())
			if ok {
				t.Error("admitted")
			}
			// A call from before, or one that had nobody else.
			late.Failed(time.Now().Add(want-1), hold)
			if b.State(time.Now().Add(want)) != breaker.HalfOpen {
				t.Error("a late failure keeps it open")
			}
			late.Succeeded()
			if b.State(time.Now()) != breaker.Closed {
				t.Error("not closed by a success")
			}
		}
	})
}

// TestBreakerDoubling checks that each failed probe doubles the pause up to the longest, that calls
// from before the opening do not, and that a success starts again from the first pause.
func TestBreakerDoubling(t *testing.T) {
	t.Parallel()
	s := settings
	s.Doubling = true
	b := breaker.New(s)
	now := time.Unix(1780000000, 0)
	open := func(want time.Duration) {
		t.Helper()
		if got := b.Until().Sub(now); got != want {
			t.Fatalf("open for %s, want %s", got, want)
		}
	}
	early, _ := b.Admit(now)
	for range s.Failures {
		ticket, _ := b.Admit(now)
		ticket.Failed(now, 0)
	}
	open(10 * time.Second)
	early.Failed(now, 0)
	open(10 * time.Second)
	for _, want := range []time.Duration{20, 40, 60, 60} {
		now = b.Until()
		probe, ok := b.Admit(now)
		if !ok || !b.Probing() {
			t.Fatal("no probe")
		}
		probe.Failed(now, 0)
		open(want * time.Second)
	}
	now = b.Until()
	probe, _ := b.Admit(now)
	probe.Succeeded()
	if !b.Untouched() || b.Probing() {
		t.Fatal("a probe that succeeded did not close it")
	}
	for range s.Failures {
		ticket, _ := b.Admit(now)
		ticket.Failed(now, 0)
	}
	open(10 * time.Second)
}

// TestBreakerClock checks that a clock that was set back does not hold calls back for longer than
// the longest pause.
func TestBreakerClock(t *testing.T) {
	t.Parallel()
	b := breaker.New(settings)
	now := time.Unix(1780000000, 0)
	for range settings.Failures {
		ticket, _ := b.Admit(now)
		ticket.Failed(now, 0)
	}
	if got := b.State(now.Add(-time.Hour)); got != breaker.HalfOpen {
		t.Errorf("state %d an hour before it opened, want half-open", got)
	}
}
