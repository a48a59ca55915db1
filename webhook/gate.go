package webhook

import (
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heardlog/heardlog/internal/breaker"
)

// DefaultBreakAfter is how many failures in a row open an endpoint's breaker.
const DefaultBreakAfter = 5

// The pauses of an endpoint's breaker. Each probe that fails doubles the pause.
const (
	firstBreak   = 10 * time.Second
	longestBreak = 5 * time.Minute
)

const (
	// maxGates bounds how many gates are kept. Past it, those without failures are dropped.
	maxGates = 4096
	// gateExpiry is how long a gate is kept that is not asked for. Its endpoint is deleted or
	// disabled, or has had nothing to send for longer than a breaker stays open.
	gateExpiry = time.Hour
)

// gates hold deliveries back: by a circuit breaker for each endpoint whose receiver fails
// repeatedly, and by a rate limiter for each endpoint that sets a rate. A delivery that is held
// back keeps its due time and spends no attempt. Nothing is stored: a restart begins with closed
// breakers.
type gates struct {
	settings breaker.Settings // Failures below 1: breakers never open
	mu       sync.Mutex
	byID     map[string]*gate // by endpoint
	swept    time.Time        // when expired gates were last dropped
	next     time.Time        // the earliest time at which an endpoint held back may go on; zero = none
}

// gate is the gate of one endpoint.
type gate struct {
	version Version // of the endpoint that the breaker watches
	breaker *breaker.Breaker
	limiter *rate.Limiter // nil = no limit
	seen    time.Time     // when the endpoint was last asked for
}

// Version identifies one state of an endpoint. It tells an endpoint from its earlier settings, and
// from a deleted endpoint that had the same ID.
type Version struct{ CreatedMS, Rev int64 }

// Version returns the endpoint's version.
func (e *Endpoint) Version() Version { return Version{e.CreatedMS, e.Rev} }

func (v Version) newerThan(o Version) bool {
	return v.CreatedMS > o.CreatedMS || v.CreatedMS == o.CreatedMS && v.Rev > o.Rev
}

func newGates(breakAfter int) *gates {
	return &gates{
		settings: breaker.Settings{Failures: breakAfter, Pause: firstBreak, Longest: longestBreak, Doubling: true},
		byID:     map[string]*gate{},
	}
}

// room returns how many attempts the endpoint may begin now. It changes nothing but the result of
// wait.
func (g *gates) room(e *Endpoint, now time.Time) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.byID[e.ID]
	if own != nil {
		own.seen = now
	}
	room := math.MaxInt
	if own != nil {
		changed := own.version != e.Version()
		switch state := own.breaker.State(now); {
		case state == breaker.Closed:
		case changed: // a probe may go at once: the URL may be corrected
			room = 1
		case state == breaker.Open:
			g.wake(own.breaker.Until())
			return 0
		case own.breaker.Probing():
			return 0
		default:
			room = 1
		}
	}
	if e.RateLimit <= 0 {
		return room
	}
	tokens := g.limiter(e, now).TokensAt(now)
	if tokens < 1 {
		g.wake(now.Add(time.Duration(math.Ceil((1 - tokens) / e.RateLimit * float64(time.Second)))))
		return 0
	}
	return min(room, int(tokens))
}

// held returns the endpoints whose breakers allow no attempt, so that a claim need not read what
// waits for them. Those whose breakers were opened for an earlier version are not held.
func (g *gates) held(now time.Time) map[string]Version {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out map[string]Version
	for id, own := range g.byID {
		switch state := own.breaker.State(now); {
		case state == breaker.Open:
			g.wake(own.breaker.Until())
		case state == breaker.Closed || !own.breaker.Probing():
			continue
		}
		if out == nil {
			out = map[string]Version{}
		}
		out[id] = own.version
		own.seen = now
	}
	return out
}

// limiter returns the endpoint's limiter at its present rate. Its burst is a twentieth of a
// second's worth, and at least one, so that no second sees more than that beyond the rate.
func (g *gates) limiter(e *Endpoint, now time.Time) *rate.Limiter {
	own := g.gate(e, now)
	limit, burst := rate.Limit(e.RateLimit), max(int(e.RateLimit/20), 1)
	if own.limiter == nil {
		own.limiter = rate.NewLimiter(limit, burst)
	}
	if own.limiter.Limit() != limit {
		own.limiter.SetLimitAt(now, limit)
		own.limiter.SetBurstAt(now, burst)
	}
	return own.limiter
}

// gate returns the endpoint's gate, and creates it if there is none. If the endpoint has changed,
// its breaker is renewed, as a change does not clear earlier failures.
func (g *gates) gate(e *Endpoint, now time.Time) *gate {
	own := g.byID[e.ID]
	if own == nil {
		if len(g.byID) >= maxGates {
			for id, old := range g.byID {
				if old.breaker.Untouched() {
					delete(g.byID, id)
				}
			}
		}
		own = &gate{version: e.Version(), breaker: breaker.New(g.settings)}
		g.byID[e.ID] = own
	}
	if v := e.Version(); v.newerThan(own.version) {
		if v.CreatedMS == own.version.CreatedMS {
			own.breaker = own.breaker.Renew(now)
		} else {
			own.breaker = breaker.New(g.settings)
		}
		own.version = v
	}
	own.seen = now
	return own
}

func (g *gates) wake(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// wait returns how long it takes until an endpoint that was held back may go on, at most longest,
// and forgets that time.
func (g *gates) wait(now time.Time, longest time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	at := g.next
	g.next = time.Time{}
	if at.IsZero() {
		return longest
	}
	return min(max(at.Sub(now), time.Millisecond), longest)
}

// expire drops gates that have not been asked for in a long time. It looks once a minute.
func (g *gates) expire(now time.Time) {
	if since := now.Sub(g.swept); since >= 0 && since < gateExpiry/60 {
		return
	}
	g.swept = now
	for id, own := range g.byID {
		switch {
		case own.seen.After(now): // the clock was set back
			own.seen = now
		case now.Sub(own.seen) > gateExpiry:
			delete(g.byID, id)
		}
	}
}

// began counts a claimed delivery and returns its ticket for ended. A test delivery takes a token,
// but is never the probe of a breaker.
func (g *gates) began(e *Endpoint, test bool, now time.Time) breaker.Ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.RateLimit > 0 {
		g.limiter(e, now).AllowN(now, 1) // a test may find no token, and then takes none
	}
	if g.settings.Failures <= 0 {
		return breaker.Ticket{}
	}
	own := g.gate(e, now)
	switch {
	case own.version != e.Version(): // claimed before the endpoint was changed
		return breaker.Ticket{}
	case test:
		return own.breaker.Bypass()
	}
	ticket, _ := own.breaker.Admit(now)
	return ticket
}

// verdict is what the outcome of an attempt says about its receiver.
type verdict int

const (
	unknown verdict = iota // nothing: the delivery was released, or no attempt could be made
	healthy
	failing
)

// judge returns the verdict of an outcome. A receiver that refuses the request is not down.
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

// ended settles the ticket of an attempt. A test that succeeds closes the breaker; one that fails
// counts for nothing, or repeated tests would make the pause longer.
func ended(ticket breaker.Ticket, test bool, v verdict, now time.Time) {
	switch {
	case v == healthy:
		ticket.Succeeded()
	case v == failing && !test:
		ticket.Failed(now, 0)
	default:
		ticket.Abandoned()
	}
}

// opened returns how many breakers are open or half-open.
func (g *gates) opened(now time.Time) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, own := range g.byID {
		if own.breaker.State(now) != breaker.Closed {
			n++
		}
	}
	return float64(n)
}
