package webhook

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Policy decides the state of deliveries after their attempts.
type Policy struct {
	// Schedule is that of endpoints that have none of their own. Empty is one try; a worker takes
	// nil for DefaultSchedule.
	Schedule Schedule
	// ParkAfter is the attempt from which on a status that blames the request itself (400, 401,
	// 403, 404, 405, 422) ends the delivery; 0 means never.
	ParkAfter int
	// DisableAfter is how long an endpoint may fail without one success; 0 is for ever.
	DisableAfter time.Duration
}

// Settle decides the state of a delivery after an attempt: delivered, pending until the next
// attempt, or dead with a reason. A dead delivery is kept and can be replayed. now is the end of
// the attempt, random is in [0,1).
func (p Policy) Settle(d Delivery, o Outcome, now time.Time, random float64) Result {
	r := Result{State: Pending, AtMS: now.UnixMilli(), Try: o.Attempt, DisableAfter: p.DisableAfter}
	if o.Stop == StopEndpoint {
		r.DisableEndpoint = "the receiver asked for it (webhook-delivery: disable)"
	}
	if o.OK() {
		r.State = Delivered
		return r
	}
	if o.Status == http.StatusGone {
		r.DisableEndpoint = "the receiver answered 410 Gone"
	}
	if reason := p.final(d, o); reason != "" {
		return r.dead(reason)
	}
	return p.again(r, d, o, now, random)
}

// final returns why there is no further attempt, whatever the schedule allows, or "" if there may
// be one.
func (p Policy) final(d Delivery, o Outcome) string {
	switch {
	case o.Status == http.StatusGone:
		return "the receiver answered 410 Gone"
	case o.Stop != "":
		return "the receiver asked for no more (webhook-delivery: " + o.Stop + ")"
	case o.Status == http.StatusRequestEntityTooLarge:
		return fmt.Sprintf("the receiver answered 413: the event of %d bytes is too large for it", len(d.Body))
	case o.ErrorClass == ClassBroken:
		return "cannot be sent: " + o.Error
	case o.ErrorClass == ClassPanic:
		return "a mistake in Heardlog stopped the attempt; see the log"
	case p.ParkAfter > 0 && d.Attempt >= p.ParkAfter && permanent(o.Status):
		return fmt.Sprintf("parked after %d attempts, since trying again will not change it: %s", d.Attempt, o.Error)
	}
	return ""
}

// permanent reports whether a status blames the request, so that the same request will not succeed
// later.
func permanent(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// again sets the time of the next attempt, or ends the delivery if the schedule or the endpoint's
// age limit allows none.
func (p Policy) again(r Result, d Delivery, o Outcome, now time.Time, random float64) Result {
	schedule := p.Schedule
	if d.Endpoint.Retry != nil {
		schedule = d.Endpoint.Retry
	}
	age := d.age(now)
	wait, ok := schedule.Wait(d.Attempt, age, o.RetryAfter, random)
	if !ok {
		return r.dead(fmt.Sprintf("given up after %d attempts; the last: %s: %s", d.Attempt, o.ErrorClass, o.Error))
	}
	if most := d.Endpoint.MaxAge; most > 0 && age+wait > most {
		return r.dead(fmt.Sprintf("given up after %d attempts: the next one would be later than the endpoint's max_age of %s; the last: %s: %s", d.Attempt, most, o.ErrorClass, o.Error))
	}
	r.DueMS = now.Add(wait).UnixMilli()
	return r
}

// Overdue ends a delivery whose max_age passed before the claimed attempt began, for example while
// it waited for a breaker, a rate limit or a disabled endpoint. For any other delivery ok is false.
func (p Policy) Overdue(d Delivery, now time.Time) (_ Result, ok bool) {
	most := d.Endpoint.MaxAge
	if most <= 0 || d.age(now) <= most {
		return Result{}, false
	}
	r := Result{AtMS: now.UnixMilli(), Untried: true}
	return r.dead(fmt.Sprintf("given up after %d attempts: it has waited longer than the endpoint's max_age of %s", d.Attempt-1, most)), true
}

// age is how long ago the delivery's first try was due; below 0 where that is still to come.
func (d Delivery) age(now time.Time) time.Duration {
	return now.Sub(time.UnixMilli(cmp.Or(d.FirstDueMS, d.CreatedMS)))
}

func (r Result) dead(reason string) Result {
	r.State, r.Reason = Dead, reason
	return r
}
