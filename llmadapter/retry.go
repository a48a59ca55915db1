package llmadapter

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// backoff is the wait before the first repetition, at most; it doubles with each. Half of it is jitter, so that calls that failed together do not come back
// together.
const backoff = 200 * time.Millisecond

// Backoff gives the wait before repetition n, from 0.
func Backoff(n int) time.Duration {
	d := backoff << min(n, 6)
	return d/2 + rand.N(d/2)
}

// RetryAfter gives how long an upstream asks to be left alone: Retry-After-Ms, or Retry-After in seconds or as a date; 0 where it says nothing, or
// nothing that can be read.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if s > 0 && s < 1e6 {
			return time.Duration(s * float64(time.Second))
		}
		return 0
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// Trouble says what kind of failure an attempt ended with. Its text is a metric label.
type Trouble string

// The kinds of trouble. See FallsOver and Repeats.
const (
	None        Trouble = "answered"
	Unreachable Trouble = "unreachable"         // no connection, or one that broke before an answer came
	Limited     Trouble = "rate_limited"        // 429
	Failing     Trouble = "server_error"        // 5xx, or what stands for it
	Broken      Trouble = "broken"              // it answered 2xx, and then nothing that is an answer
	Silent      Trouble = "first_token_timeout" // nothing within the limit for the first token
	Slow        Trouble = "timeout"             // another limit of ours
	Refused     Trouble = "refused"             // any other status: the request's own fault
	Left        Trouble = "abandoned"           // the call ended for reasons of its own
)

// TroubleOf classifies what an attempt failed with.
func TroubleOf(err error) Trouble {
	if err == nil {
		return None
	}
	if up, ok := errors.AsType[*UpstreamError](err); ok {
		switch {
		case up.Status == http.StatusTooManyRequests:
			return Limited
		case up.Status >= http.StatusInternalServerError:
			return Failing
		}
		return Refused
	}
	switch {
	case errors.Is(err, ErrFirstTokenTimeout):
		return Silent
	case errors.Is(err, ErrConnectTimeout):
		return Unreachable
	case errors.Is(err, ErrIdleTimeout), errors.Is(err, ErrTotalTimeout):
		return Slow
	}
	switch fault.CodeOf(err) {
	case fault.Upstream, fault.UpstreamTimeout:
		return Unreachable
	case fault.Invalid: // llm.url
		return Refused
	}
	return Left
}

// FallsOver tells whether another upstream may do better.
func (t Trouble) FallsOver() bool {
	return t == Unreachable || t == Limited || t == Failing || t == Broken || t == Silent
}

// After2xx gives the trouble of an attempt whose upstream had answered 2xx before.
func (t Trouble) After2xx() Trouble {
	if t == Unreachable {
		return Broken
	}
	return t
}

// Repeats tells whether the same upstream may do better a moment later. One that was silent has cost all
// the time there was, and one that broke may have to be paid twice.
func (t Trouble) Repeats() bool { return t == Unreachable || t == Limited || t == Failing }
