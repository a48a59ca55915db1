package llmadapter_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "0", 0},
		{"Retry-After", "-3", 0},
		{"Retry-After", "1e300", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "Fri, 01 May 2026 10:00:20 GMT", 20 * time.Second},
		{"Retry-After", "Fri, 01 May 2026 09:00:00 GMT", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After-Ms", "x", 0},
		{"Other", "7", 0},
	} {
		if got := llmadapter.RetryAfter(http.Header{tt.name: {tt.value}}, now); got != tt.want {
			t.Errorf("%s: %s is %v, want %v", tt.name, tt.value, got, tt.want)
		}
	}
}

// TestBackoff: it doubles, half of it is chance, and no number of repetitions makes it negative.
func TestBackoff(t *testing.T) {
	t.Parallel()
	for n, most := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 400 * time.Millisecond, 2: 800 * time.Millisecond, 1000: 12800 * time.Millisecond} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := llmadapter.Backoff(n)
			if d < most/2 || d >= most {
				t.Errorf("repetition %d waits %v", n, d)
			}
			seen[d] = true
		}
		if len(seen) < 10 {
			t.Errorf("repetition %d: no jitter", n)
		}
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return fmt.Errorf("x: %w", &llmadapter.UpstreamError{Status: n}) }
	for _, tt := range []struct {
		err           error
		want          llmadapter.Trouble
		over, repeats bool
	}{
		{nil, llmadapter.None, false, false},
		{status(429), llmadapter.Limited, true, true},
		{status(500), llmadapter.Failing, true, true},
		{status(529), llmadapter.Failing, true, true},
		{status(400), llmadapter.Refused, false, false},
		{status(401), llmadapter.Refused, false, false},
		{status(408), llmadapter.Refused, false, false},
		{llmadapter.CauseFault(llmadapter.ErrFirstTokenTimeout, nil), llmadapter.Silent, true, false},
		{llmadapter.CauseFault(llmadapter.ErrTotalTimeout, nil), llmadapter.Slow, false, false},
		{llmadapter.CauseFault(llmadapter.ErrIdleTimeout, nil), llmadapter.Slow, false, false},
		{fault.Wrap(fault.UpstreamTimeout, llmadapter.ErrConnectTimeout, "x"), llmadapter.Unreachable, true, true},
		{fault.New(fault.Upstream, "x"), llmadapter.Unreachable, true, true},
		{fault.New(fault.Invalid, "x"), llmadapter.Refused, false, false},
		{context.Canceled, llmadapter.Left, false, false},
		{errors.New("x"), llmadapter.Left, false, false},
	} {
		got := llmadapter.TroubleOf(tt.err)
		if got != tt.want || got.FallsOver() != tt.over || got.Repeats() != tt.repeats {
			t.Errorf("%v is %s, falls over %v, repeats %v", tt.err, got, got.FallsOver(), got.Repeats())
		}
	}
	if llmadapter.Unreachable.After2xx() != llmadapter.Broken || llmadapter.Broken.Repeats() || llmadapter.Limited.After2xx() != llmadapter.Limited {
		t.Error("what breaks behind a 2xx may have been paid for")
	}
}
