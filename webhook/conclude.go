package webhook

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/event"
)

// How precisely an endpoint's times are stored. Storing them with each attempt would cost one write
// more per attempt.
const (
	successEvery = time.Minute
	failureEvery = time.Hour
)

// runGap ends a run of failures: an endpoint that failed a week ago, and fails once more today, has
// not been failing for a week. The gap is longer than the longest wait of the endpoint's retry
// schedule.
const runGap = 48 * time.Hour

// keepDisabled is how long events are kept for an endpoint that was disabled because of its
// failures, so that it can continue where it stopped when it is enabled again. It is bounded
// because pending events keep their agents from being erased.
const keepDisabled = 7 * 24 * time.Hour

// Conclusion is what a result does beyond its own delivery.
type Conclusion struct {
	Endpoint Endpoint // as it is afterwards
	Changed  bool     // it differs from before
	Disabled bool     // it was disabled by this
	Events   []Event  // for the project's other endpoints that want them
}

// Conclude decides what follows from a result, inside the transaction that stores it; e is the
// endpoint as stored at that moment. Every driver calls it. A result of an event about deliveries,
// or of a test, makes no further event: their failures would cause ever more events.
func Conclude(e Endpoint, d Delivery, r Result) (Conclusion, error) {
	c := Conclusion{Endpoint: e}
	// A result of the old URL says nothing about the new one.
	same := d.Endpoint.URL == e.URL
	if same && !r.Untried {
		c.health(r)
	}
	if why := disableWhy(e, r); why != "" && same && !e.Disabled {
		c.Endpoint.Disabled, c.Endpoint.DisabledWhy, c.Endpoint.DisabledMS, c.Endpoint.KeepUntilMS = true, why, r.AtMS, 0
		if r.DisableEndpoint == "" { // a receiver that asked for it wants nothing more
			c.Endpoint.KeepUntilMS = r.AtMS + keepDisabled.Milliseconds()
		}
		c.Endpoint.Rev++
		c.Changed, c.Disabled = true, true
	}
	if c.Disabled {
		err := c.add(r.AtMS, e.ID, "", EndpointDisabled{
			EndpointID: e.ID, URL: ShowURL(e.URL), Reason: c.Endpoint.DisabledWhy, Description: e.Description, DisabledMS: r.AtMS,
		},
			e.Project, e.ID, "disabled", fmt.Sprint(c.Endpoint.Rev), fmt.Sprint(r.AtMS))
		if err != nil {
			return Conclusion{}, err
		}
	}
	if r.State != Dead || d.Type == event.DeliveryDead || d.Type == event.EndpointDisabled || d.Type == event.Test {
		return c, nil
	}
	tries := d.Attempt
	if r.Untried { // the claim's was not made
		tries--
	}
	err := c.add(r.AtMS, cmp.Or(d.AgentID, e.ID), d.AgentID, DeadLetter{
		DeliveryID: strconv.FormatInt(d.ID, 10), EndpointID: e.ID, EventID: d.EventID, Type: d.Type, AgentID: d.AgentID,
		Attempts: tries, LastStatus: r.Try.Status, Reason: r.Reason, CreatedMS: d.CreatedMS,
	}, e.Project, d.EventID, e.ID, fmt.Sprint(d.ID), fmt.Sprint(d.Fence))
	return c, err
}

// health notes success and failure, only where that is a change.
func (c *Conclusion) health(r Result) {
	e := &c.Endpoint
	switch {
	// says nothing about the endpoint
	case r.Try.ErrorClass == ClassBroken || r.Try.ErrorClass == ClassPanic || r.Try.ErrorClass == ClassArchive:
	case r.State == Delivered:
		if e.FirstFailureMS != 0 || r.AtMS-e.LastSuccessMS >= successEvery.Milliseconds() {
			e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS, c.Changed = max(r.AtMS, e.LastSuccessMS), 0, 0, true
		}
	case !e.failing(r.AtMS):
		e.FirstFailureMS, e.LastFailureMS, c.Changed = max(r.AtMS, 1), max(r.AtMS, 1), true
	case r.AtMS-e.LastFailureMS >= failureEvery.Milliseconds():
		e.LastFailureMS, c.Changed = r.AtMS, true
	}
}

// failing reports whether an attempt that fails now continues a run of failures.
func (e *Endpoint) failing(nowMS int64) bool {
	gap := runGap
	for _, w := range e.Retry {
		gap = max(gap, 2*w)
	}
	return e.FirstFailureMS != 0 && nowMS-e.LastFailureMS < gap.Milliseconds()
}

// disableWhy returns why the endpoint is to be disabled, or "" if it is not.
func disableWhy(e Endpoint, r Result) string {
	switch {
	case r.DisableEndpoint != "":
		return r.DisableEndpoint
	case r.DisableAfter <= 0 || r.State == Delivered || !e.failing(r.AtMS):
		return ""
	case time.Duration(r.AtMS-e.FirstFailureMS)*time.Millisecond < r.DisableAfter:
		return ""
	}
	return fmt.Sprintf("no attempt has succeeded for %s; the last: %s", span(r.DisableAfter), cmp.Or(r.Try.Error, r.Try.ErrorClass))
}

// span returns a duration as text, in days if it is a whole number of days.
func span(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}

// add appends an event. Its ID is derived from what it is about, so that a decision that runs twice
// produces the same ID.
func (c *Conclusion) add(atMS int64, sid, agentID string, p Payload, of ...string) error {
	m := Event{
		ID: digest(12, of...) + ":" + fmt.Sprint(p.EventType()), Type: p.EventType(), Project: c.Endpoint.Project, AgentID: agentID, CreatedMS: atMS,
	}
	body, err := Encode(Notice{SID: sid, ID: m.ID, AtMS: atMS, Payload: p})
	m.Body, m.Size = body, len(body)
	c.Events = append(c.Events, m)
	return err
}
