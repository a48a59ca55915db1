package llmadapter

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// backoff is the longest wait before the first retry. It doubles with each retry. Half of it is
// jitter, so that calls that failed together are not repeated together.
const backoff = 200 * time.Millisecond

// Backoff returns the wait before retry n, from 0.
func Backoff(n int) time.Duration {
	d := backoff << min(n, 6)
	return d/2 + rand.N(d/2)
}

// RetryAfter returns how long an upstream asks not to be called: Retry-After-Ms, or Retry-After in
// seconds or as a date. It returns 0 if neither can be read.
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

// Trouble is how an attempt failed. Its text is a metric label.
type Trouble string

// Kinds of trouble. See FallsOver and Repeats.
const (
	None        Trouble = "answered"
	Unreachable Trouble = "unreachable"         // no connection, or one that broke before an answer came
	Limited     Trouble = "rate_limited"        // 429
	Failing     Trouble = "server_error"        // 5xx, or an error object that means it
	Broken      Trouble = "broken"              // 2xx, but not an answer
	Silent      Trouble = "first_token_timeout" // no data within the limit for the first token
	Slow        Trouble = "timeout"             // another limit of ours
	Refused     Trouble = "refused"             // any other status: the request is at fault
	Left        Trouble = "abandoned"           // the call was cancelled
)

// TroubleOf returns the kind of an attempt's error.
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
	case fault.Upstream, fault.UpstreamTimeout, fault.UpstreamTruncated:
		return Unreachable
	case fault.Invalid: // llm.url
		return Refused
	}
	return Left
}

// FallsOver reports whether another upstream may do better.
func (t Trouble) FallsOver() bool {
	return t == Unreachable || t == Limited || t == Failing || t == Broken || t == Silent
}

// After2xx returns the trouble of an attempt whose upstream had answered 2xx.
func (t Trouble) After2xx() Trouble {
	if t == Unreachable {
		return Broken
	}
	return t
}

// Repeats reports whether the same upstream may do better a moment later. A silent one has used up
// the time, and a broken one may charge twice.
func (t Trouble) Repeats() bool { return t == Unreachable || t == Limited || t == Failing }
