package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Claim describes what a worker takes.
type Claim struct {
	NowMS int64
	Limit int // deliveries at most
	// at most for one endpoint without a limit of its own, including those in progress (claimed,
	// lease not over); 0 = no bound
	PerEndpoint int
	Lease       time.Duration // see Taking
	Bytes       int64         // see Taking
	// Urgent is how many tests (event.Test) may be taken in addition to Limit, before anything
	// else: first attempts to enabled endpoints, whatever PerEndpoint and Room say. At most
	// MaxUrgent tests of one endpoint count as urgent; further ones are ordinary deliveries.
	Urgent int
	// Held are endpoints for which Room would return 0; see Look.
	Held map[string]Version
	// Room, if set, returns how many deliveries the endpoint may get now, in addition to the other
	// bounds.
	Room func(e *Endpoint) int
	// Ended, if set, returns how many of the endpoint's claims do not count against PerEndpoint,
	// because their attempts have ended and only their results are still to be stored.
	Ended func(e *Endpoint) int
	// Allow, if set, reports whether a delivery to the endpoint may be taken, and if so counts it.
	// It is not asked about tests that are Urgent.
	Allow func(e *Endpoint) bool
	// Busy, if set, returns how many attempts the endpoint's project and the endpoint have in
	// progress.
	Busy func(e *Endpoint) (project, endpoint int)
}

// claimTries is how often a claim is tried of which another server takes everything.
const claimTries = 3

// ClaimFrom takes due deliveries of enabled endpoints from a queue: first attempts before retries.
// Within each kind, deliveries of the project, and then of the endpoint, with the fewest attempts
// in progress come first (see Claim.Busy), counting those earlier in the result, and then the
// earliest due. A project with a large backlog at slow receivers thus uses the slots that no other
// project needs.
func ClaimFrom(ctx context.Context, q Queue, c Claim) ([]Delivery, error) {
	if c.Limit <= 0 && c.Urgent <= 0 {
		return nil, nil
	}
	for range claimTries {
		list, err := q.Waiting(ctx, Look{NowMS: c.NowMS, Limit: max(c.Limit, 0), PerEndpoint: c.PerEndpoint, Tests: c.Urgent > 0, Held: c.Held})
		if err != nil {
			return nil, err
		}
		chosen := c.choose(list)
		if len(chosen) == 0 {
			break
		}
		out, err := q.Claim(ctx, Taking{NowMS: c.NowMS, Lease: c.Lease, Bytes: c.Bytes, List: chosen})
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, nil
}

// choose returns what is taken of what waits, in order.
func (c *Claim) choose(list []Waiting) []Take {
	var tests, due []Take
	for _, w := range list {
		for _, d := range w.Tests {
			tests = append(tests, Take{Due: d, Endpoint: w.Endpoint, Urgent: true})
		}
	}
	slices.SortFunc(tests, compareDue)
	tests = tests[:min(len(tests), max(c.Urgent, 0))]
	urgent, beside := map[int64]bool{}, map[string]int{} // beside counts them by endpoint
	for _, t := range tests {
		urgent[t.ID] = true
		beside[t.Endpoint.ID]++
	}
	for i := range list {
		w := &list[i]
		room, most := c.room(w)
		if most > 0 {
			most += beside[w.Endpoint.ID]
		}
		for _, d := range w.Due {
			if room > 0 && !urgent[d.ID] {
				room--
				due = append(due, Take{Due: d, Endpoint: w.Endpoint, Most: most})
			}
		}
	}
	slices.SortFunc(due, compareDue)
	due = c.fair(due)
	if c.Allow != nil {
		due = slices.DeleteFunc(due, func(t Take) bool { return !c.Allow(t.Endpoint) })
	}
	return append(tests, due[:min(len(due), max(c.Limit, 0))]...)
}

func compareDue(a, b Take) int {
	return cmp.Or(cmp.Compare(a.DueMS, b.DueMS), cmp.Compare(a.ID, b.ID))
}

// room returns how many deliveries an endpoint may get, and Take.Most of them.
func (c *Claim) room(w *Waiting) (room, most int) {
	room = c.Limit
	if c.Room != nil {
		room = min(room, c.Room(w.Endpoint))
	}
	if most = w.Endpoint.InFlight(c.PerEndpoint); most > 0 {
		if c.Ended != nil {
			most += min(c.Ended(w.Endpoint), w.Claimed)
		}
		room = min(room, most-w.Claimed)
	}
	return room, most
}

// fair orders deliveries as ClaimFrom says. They are given in order of their due times.
func (c *Claim) fair(list []Take) []Take {
	byTurn := func(name func(e *Endpoint) (name string, busy int)) {
		type group struct {
			retry bool
			name  string
		}
		next := map[group]int{}
		turns := make(map[int64]int, len(list))
		for _, t := range list {
			name, busy := name(t.Endpoint)
			g := group{t.Retry, name}
			n, known := next[g]
			if !known {
				n = busy
			}
			turns[t.ID], next[g] = n, n+1
		}
		slices.SortStableFunc(list, func(a, b Take) int { return cmp.Compare(turns[a.ID], turns[b.ID]) })
	}
	if c.Busy != nil {
		byTurn(func(e *Endpoint) (string, int) { _, n := c.Busy(e); return e.ID, n })
		byTurn(func(e *Endpoint) (string, int) { n, _ := c.Busy(e); return e.Project, n })
	}
	slices.SortStableFunc(list, func(a, b Take) int {
		switch {
		case a.Retry == b.Retry:
			return 0
		case b.Retry:
			return -1
		}
		return 1
	})
	return list
}

// Release returns a claim unused: the delivery is due now, and the attempt is not counted. It fails
// like Queue.Finish.
func Release(ctx context.Context, q Queue, d Delivery) error {
	return q.Finish(ctx, d, Result{State: Pending, DueMS: cmp.Or(d.FirstDueMS, d.CreatedMS), Untried: true})
}
