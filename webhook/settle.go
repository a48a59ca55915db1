package webhook

import (
	"fmt"
	"net/http"
	"time"
)

// Settle decides what becomes of a delivery after an attempt: delivered, pending until its next try, or dead with a reason. Nothing
// is dropped: a dead delivery is kept and can be sent again. now is the end of the attempt, random is in [0,1).
func (s Schedule) Settle(d Delivery, o Outcome, now time.Time, random float64) Result {
	r := Result{State: Pending, Try: o.Attempt}
	if o.Stop == StopEndpoint {
		r.DisableEndpoint = "the receiver asked for it (webhook-delivery: disable)"
	}
	switch {
	case o.OK():
		r.State = Delivered
		return r
	case o.Status == http.StatusGone:
		r.DisableEndpoint = "the receiver answered 410 Gone"
		return r.dead(r.DisableEndpoint)
	case o.Stop != "":
		return r.dead("the receiver asked for no more (webhook-delivery: " + o.Stop + ")")
	case o.Status == http.StatusRequestEntityTooLarge:
		return r.dead(fmt.Sprintf("the receiver answered 413: the event of %d bytes is too large for it", len(d.Body)))
	case o.ErrorClass == ClassBroken:
		return r.dead("cannot be sent: " + o.Error)
	case o.ErrorClass == ClassPanic:
		return r.dead("a mistake in Heardlog stopped the attempt; see the log")
	}
	age := now.Sub(time.UnixMilli(d.CreatedMS))
	wait, ok := s.Wait(d.Attempt, age, o.RetryAfter, random)
	if !ok {
		return r.dead(fmt.Sprintf("given up after %d attempts; the last: %s: %s", d.Attempt, o.ErrorClass, o.Error))
	}
	r.DueMS = now.Add(wait).UnixMilli()
	return r
}

func (r Result) dead(reason string) Result {
	r.State, r.Reason = Dead, reason
	return r
}
