package webhook

import (
	"math"
	"net/http"
	"sync"
	"time"
)

// The breaker's times.
const (
	DefaultBreakAfter = 5                // failures in a row that open it
	firstBreak        = 10 * time.Second // how long it is open at first; twice as long after each probe that failed
	longestBreak      = 5 * time.Minute
)

// maxGates bounds what is kept of endpoints: past it those that have no failures are forgotten.
const maxGates = 4096

// gates hold endpoints back: those whose receiver fails again and again (a breaker each), and those that want few attempts a second (a token bucket
// each). Nothing of it is stored. What is held back keeps its due time and spends no attempt, so that the age of what is due tells of it.
type gates struct {
	breakAfter int // 0 = never
	mu         sync.Mutex
	of         map[string]*gate // by endpoint; what has nothing to tell has none
	swept      time.Time        // when those that nobody asks for were forgotten last
	next       time.Time        // the earliest time at which somebody who was held back since the last look may go on; zero = none
}

// gate is one endpoint's.
type gate struct {
	fails   int           // in a row
	until   time.Time     // open until then; zero = closed
	open    time.Duration // how long it was opened the last time
	of      version       // of the endpoint that failed
	probing bool          // one attempt is under way to see whether it may close
	bucket  *bucket       // nil = no limit
	seen    time.Time     // when the endpoint was last asked for, or an attempt at it ended
}

// forgetAfter is how long a gate is kept that nobody asks for: its endpoint is deleted, disabled, or has nothing to be sent for longer than a breaker is open.
const forgetAfter = time.Hour

// version tells an endpoint from what it was before a change, and from one that had its id before it.
type version struct{ createdMS, rev int64 }

func versionOf(e *Endpoint) version { return version{e.CreatedMS, e.Rev} }

// after tells whether v is of a later time than o.
func (v version) after(o version) bool {
	return v.createdMS > o.createdMS || v.createdMS == o.createdMS && v.rev > o.rev
}

func newGates(breakAfter int) *gates { return &gates{breakAfter: breakAfter, of: map[string]*gate{}} }

// room tells how many attempts the endpoint may begin now. It changes nothing but what wait gives.
func (g *gates) room(e *Endpoint, now time.Time) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.of[e.ID]
	if own != nil {
		own.seen = now
	}
	room := math.MaxInt
	// Who was changed since is another one: a corrected URL must not wait for the old one's break.
	if own != nil && !own.until.IsZero() && own.of == versionOf(e) {
		// A clock that was set back must not hold anybody for longer than a break lasts.
		if left := own.until.Sub(now); left > 0 && left <= longestBreak {
			g.wake(own.until)
			return 0
		}
		if own.probing {
			return 0
		}
		room = 1
	}
	if e.RateLimit <= 0 {
		return room
	}
	tokens := g.bucket(e, now).at(now)
	if tokens < 1 {
		g.wake(now.Add(time.Duration(math.Ceil((1 - tokens) / e.RateLimit * float64(time.Second)))))
		return 0
	}
	return min(room, int(tokens))
}

// bucket gives the endpoint's bucket at its present rate.
func (g *gates) bucket(e *Endpoint, now time.Time) *bucket {
	own := g.gate(e.ID)
	own.seen = now
	if own.bucket == nil {
		own.bucket = &bucket{}
	}
	own.bucket.rate = e.RateLimit
	return own.bucket
}

// bucket is a token bucket. It holds a twentieth of a second's worth, so that no second sees more than that beyond the rate, and at least one.
type bucket struct {
	rate  float64 // tokens a second
	spent float64 // tokens that are missing from a full one, at last
	last  time.Time
}

// most is what a full one holds.
func (b *bucket) most() float64 { return max(b.rate/20, 1) }

// at gives the tokens at a time.
func (b *bucket) at(now time.Time) float64 { return b.most() - b.missing(now) }

// missing never gives more than the bucket holds: tests take tokens that are not there, and a rate may have been lowered since. Neither must hold the others up for
// longer than an empty bucket does.
func (b *bucket) missing(now time.Time) float64 {
	if now.Before(b.last) { // a clock that was set back does not stop the bucket from filling
		b.last = now
	}
	return max(min(b.spent, b.most())-b.rate*now.Sub(b.last).Seconds(), 0)
}

// take takes a token.
func (b *bucket) take(now time.Time) { b.spent, b.last = b.missing(now)+1, now }

// gate gives the endpoint's gate, made now if there is none.
func (g *gates) gate(id string) *gate {
	own := g.of[id]
	if own == nil {
		if len(g.of) >= maxGates {
			for old, v := range g.of {
				if v.fails == 0 && v.until.IsZero() {
					delete(g.of, old)
				}
			}
		}
		own = &gate{}
		g.of[id] = own
	}
	return own
}

func (g *gates) wake(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// wait gives how long it is until somebody who was held back may go on, at most longest, and forgets it.
func (g *gates) wait(now time.Time, longest time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	at := g.next
	g.next = time.Time{}
	if at.IsZero() {
		return longest
	}
	return min(max(at.Sub(now), time.Millisecond), longest)
}

// forget drops what nobody has asked for in a long time.
func (g *gates) forget(now time.Time) {
	if since := now.Sub(g.swept); since >= 0 && since < forgetAfter/60 {
		return
	}
	g.swept = now
	for id, own := range g.of {
		switch {
		case own.seen.After(now): // the clock was set back
			own.seen = now
		case now.Sub(own.seen) > forgetAfter:
			delete(g.of, id)
		}
	}
}

// began notes a claimed delivery. A test takes a token, but is not the attempt that a breaker waits for.
func (g *gates) began(e *Endpoint, test bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.RateLimit > 0 {
		g.bucket(e, now).take(now)
	}
	if own := g.of[e.ID]; own != nil && !own.until.IsZero() && !test {
		if own.of != versionOf(e) {
			own.fails, own.until, own.open, own.probing = 0, time.Time{}, 0, false
			return
		}
		own.probing = true
	}
}

// verdict is what an attempt says of its receiver.
type verdict int

const (
	unknown verdict = iota // nothing: it was given back, or could not be made
	healthy
	failing
)

// judge gives what an outcome says: a refusal is an answer, and who answers is not down.
func judge(o Outcome) verdict {
	switch {
	case o.OK():
		return healthy
	case o.Status == http.StatusRequestTimeout || o.Status == http.StatusTooManyRequests || o.Status >= 500:
		return failing
	case o.Status != 0:
		return healthy
	}
	switch o.ErrorClass {
	case ClassDNS, ClassRefused, ClassConnect, ClassConnectTO, ClassTLS, ClassTimeout, ClassReset, ClassProtocol:
		return failing
	}
	return unknown
}

// ended notes how an attempt ended at the endpoint as it was then. A test that succeeds tells that the receiver is well; one that fails, or tells nothing, neither opens a
// breaker nor makes its pause longer: somebody who tries again and again would hold the endpoint back himself.
func (g *gates) ended(e *Endpoint, test bool, v verdict, now time.Time) {
	if g.breakAfter <= 0 || test && v != healthy {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if v == failing {
		own := g.gate(e.ID)
		own.seen = now
		switch v := versionOf(e); {
		case own.of.after(v): // of an endpoint that was changed since
			return
		case v.after(own.of):
			*own = gate{of: v, bucket: own.bucket, seen: now}
		}
		g.failed(own, now)
		return
	}
	own := g.of[e.ID]
	if own == nil {
		return
	}
	if !test {
		own.probing = false
	}
	if v == healthy {
		own.fails, own.until, own.open = 0, time.Time{}, 0
		if own.bucket == nil {
			delete(g.of, e.ID)
		}
	}
}

func (g *gates) failed(own *gate, now time.Time) {
	own.fails++
	switch {
	case own.until.IsZero() && own.fails < g.breakAfter:
	case own.until.IsZero():
		own.open = firstBreak
		own.until = now.Add(own.open)
	case own.probing:
		own.open = min(2*own.open, longestBreak)
		own.until = now.Add(own.open)
	} // else an attempt that was under way when it opened: it tells nothing new
	own.probing = false
}

// opened counts the breakers that are open, half-open ones included.
func (g *gates) opened() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, own := range g.of {
		if !own.until.IsZero() {
			n++
		}
	}
	return float64(n)
}
