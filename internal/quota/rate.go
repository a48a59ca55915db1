package quota

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/heardlog/heardlog/internal/fault"
)

// Rate limits what one project may do in a second, on one server. A zero field means no limit.
type Rate struct {
	Requests int64
	Messages int64 // stored, of every role
	Bytes    int64 // of request bodies
}

// buckets are a project's token buckets. Each holds a second's worth; nil means no limit.
//
// A request is let in while no bucket is empty, and what it costs is taken when that is known. One
// that costs more than a bucket holds is let in too, and the next ones wait for as long as it was
// worth.
type buckets struct {
	requests, messages, bytes *rate.Limiter
}

func bucket(limit int64) *rate.Limiter {
	if limit <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(limit), int(min(limit, math.MaxInt32)))
}

// of returns the project's buckets. The caller holds k.mu.
func (k *Keeper) of(project string) *buckets {
	b := k.buckets[project]
	if b == nil {
		b = &buckets{bucket(k.c.Rate.Requests), bucket(k.c.Rate.Messages), bucket(k.c.Rate.Bytes)}
		k.buckets[project] = b
	}
	return b
}

// sweep forgets buckets that are full, which a new one would be too. The caller holds k.mu.
func (k *Keeper) sweep(now time.Time) {
	for project, b := range k.buckets {
		if full(b.requests, now) && full(b.messages, now) && full(b.bytes, now) {
			delete(k.buckets, project)
		}
	}
}

func full(l *rate.Limiter, now time.Time) bool {
	return l == nil || l.TokensAt(now) >= float64(l.Burst())
}

// take takes tokens, also more than there are.
func take(l *rate.Limiter, now time.Time, n int64) {
	for n > 0 && l != nil {
		part := min(n, int64(l.Burst()))
		l.ReserveN(now, int(part))
		n -= part
	}
}

// Admit takes a request of the project. body reports whether it brings a body: one without costs
// neither messages nor bytes, and does not wait for those. If the project is over a limit, Admit
// fails with fault.RateLimited and returns when to try again.
func (k *Keeper) Admit(project string, body bool) (wait time.Duration, err error) {
	if k.c.Rate == (Rate{}) {
		return 0, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b, now := k.of(project), k.c.Now()
	refuse := func(l *rate.Limiter, least float64, what string) bool {
		if l == nil || l.TokensAt(now) >= least {
			return false
		}
		wait = time.Duration((least - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second))
		err = fault.New(fault.RateLimited, "the project exceeds its limit of %d %s a second (%s)", int64(l.Limit()), what, RateSetting)
		return true
	}
	if refuse(b.requests, 1, "requests") || body && (refuse(b.messages, 0, "messages") || refuse(b.bytes, 0, "bytes of request bodies")) {
		return wait, err
	}
	take(b.requests, now, 1)
	return 0, nil
}

// Received counts the bytes of a request's body.
func (k *Keeper) Received(project string, bytes int64) {
	if k.c.Rate.Bytes == 0 || bytes == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	take(k.of(project).bytes, k.c.Now(), bytes)
}
