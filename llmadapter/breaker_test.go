package llmadapter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
)

// opened gives a breaker that has just opened.
func opened(t *testing.T) *llmadapter.Breaker {
	t.Helper()
	b := &llmadapter.Breaker{}
	for i := range llmadapter.BreakerFailures {
		ticket, ok := b.Admit(time.Now())
		if !ok || b.State(time.Now()) != llmadapter.BreakerClosed {
			t.Fatalf("not closed after %d failures", i)
		}
		ticket.Failed(time.Now(), 0)
	}
	if _, ok := b.Admit(time.Now()); ok || b.State(time.Now()) != llmadapter.BreakerIsOpen {
		t.Fatal("not open")
	}
	return b
}

// TestBreakerStates: closed, open, half-open with one probe at a time, and from there either way.
func TestBreakerStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		time.Sleep(llmadapter.BreakerOpen - time.Nanosecond) // fake time
		if _, ok := b.Admit(time.Now()); ok {
			t.Error("a probe came too early")
		}
		time.Sleep(time.Nanosecond) // fake time
		if b.State(time.Now()) != llmadapter.BreakerHalfOpen {
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
		if b.State(time.Now()) != llmadapter.BreakerIsOpen {
			t.Error("not open after a probe that failed")
		}
		time.Sleep(llmadapter.BreakerOpen) // fake time
		if probe, ok = b.Admit(time.Now()); !ok {
			t.Fatal("no second probe")
		}
		probe.Succeeded()
		for range llmadapter.BreakerFailures - 1 {
			ticket, ok := b.Admit(time.Now())
			if !ok {
				t.Fatal("not closed after a probe that succeeded")
			}
			ticket.Failed(time.Now(), 0)
		}
		if b.State(time.Now()) != llmadapter.BreakerClosed {
			t.Error("failures from before count on")
		}
	})
}

// TestBreakerHold: an upstream that asks for more time gets it, within bounds, and a success against the breaker closes it.
func TestBreakerHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for hold, want := range map[time.Duration]time.Duration{
			time.Second: llmadapter.BreakerOpen, 30 * time.Second: 30 * time.Second, time.Hour: llmadapter.BreakerMaxOpen,
		} {
			b := &llmadapter.Breaker{}
			for range llmadapter.BreakerFailures {
				ticket, _ := b.Admit(time.Now())
				ticket.Failed(time.Now(), hold)
			}
			if at := time.Now().Add(want); b.State(at.Add(-1)) != llmadapter.BreakerIsOpen || b.State(at) != llmadapter.BreakerHalfOpen {
				t.Errorf("held for %v: not open for %v", hold, want)
			}
			late, ok := b.Admit(time.Now())
			if ok {
				t.Error("admitted")
			}
			late.Failed(time.Now().Add(want-1), hold) // a call from before, or one that had nobody else
			if b.State(time.Now().Add(want)) != llmadapter.BreakerHalfOpen {
				t.Error("a late failure keeps it open")
			}
			late.Succeeded()
			if b.State(time.Now()) != llmadapter.BreakerClosed {
				t.Error("not closed by a success")
			}
		}
	})
}
