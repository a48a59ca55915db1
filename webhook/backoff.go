package webhook

import (
	"net/http"
	"strings"
	"time"
)

// Schedule lists the waits between attempts: Schedule[0] follows the first, and so on. A delivery
// that has used it up is dead.
type Schedule []time.Duration

// DefaultSchedule is that of Standard Webhooks: ten tries over about 75 hours.
func DefaultSchedule() Schedule {
	return Schedule{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// The bounds of a wait.
const (
	maxHint      = 24 * time.Hour // the longest Retry-After that is honoured
	lostAttempts = 50             // see Schedule.step
)

// Tries is how many attempts a delivery has.
func (s Schedule) Tries() int { return len(s) + 1 }

// Wait returns the time until the next attempt: after attempt number n, of an event of the given
// age, with the receiver's Retry-After as hint and random in [0,1). It is the schedule's wait plus
// up to a fifth (at least up to a second, so that attempts that failed together are spread), or the
// hint, up to 24 h, if that is longer. It returns false if the schedule is used up.
func (s Schedule) Wait(n int, age, hint time.Duration, random float64) (time.Duration, bool) {
	n = s.step(n, age)
	if n >= s.Tries() {
		return 0, false
	}
	base := s[n-1]
	wait := base + time.Duration(random*float64(max(base/5, MinRetryWait)))
	return max(wait, min(hint, maxHint), MinRetryWait), true
}

// step returns the position in the schedule. It is the attempt's number, but not more than the
// event's age allows: a server that is killed repeatedly during attempts counts numbers without
// sending, and must not use up the schedule in a minute. The allowance ends after lostAttempts, so
// that a clock that was set back does not make a delivery immortal.
func (s Schedule) step(n int, age time.Duration) int {
	byAge, sum := 1, time.Duration(0)
	for _, wait := range s {
		if sum += wait; age < sum {
			break
		}
		byAge++
	}
	return max(min(n, byAge), n-lostAttempts, 1)
}

// retryAfter reads Retry-After if the status allows one: seconds or an HTTP date. It returns 0 for
// anything else and for times in the past.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp.StatusCode < 300 || resp.StatusCode > 599 {
		return 0
	}
	v := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		return digits(v)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxHint)
}

// digits reads a number of seconds of any length, capped at maxHint.
func digits(v string) time.Duration {
	var n time.Duration
	for _, c := range v {
		if n = n*10 + time.Duration(c-'0'); n > maxHint/time.Second {
			return maxHint
		}
	}
	return n * time.Second
}
