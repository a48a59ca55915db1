package webhook

import "slices"

// Fair orders claimable deliveries, given in order of their due times. First attempts come before
// retries. Within each kind, deliveries of the project, and then of the endpoint, with the fewest
// attempts in progress come first (see Claim.Busy), counting those earlier in the result. A project
// with a large backlog at slow receivers thus uses the slots that no other project needs. Without
// Busy only the first rule applies. Every driver calls it.
func Fair[T any](c Claim, list []T, of func(T) (e *Endpoint, retry bool)) {
	if c.Busy == nil {
		slices.SortStableFunc(list, func(a, b T) int {
			_, x := of(a)
			_, y := of(b)
			return later(x) - later(y)
		})
		return
	}
	type turn struct {
		v           T
		retry, turn int
	}
	turns := make([]turn, len(list))
	for i, v := range list {
		turns[i].v = v
	}
	for _, by := range []func(*Endpoint) (name string, busy int){
		func(e *Endpoint) (string, int) { _, n := c.Busy(e); return e.ID, n },
		func(e *Endpoint) (string, int) { n, _ := c.Busy(e); return e.Project, n },
	} {
		next := [2]map[string]int{{}, {}}
		for i := range turns {
			e, retry := of(turns[i].v)
			name, busy := by(e)
			at := later(retry)
			n, known := next[at][name]
			if !known {
				n = busy
			}
			turns[i].retry, turns[i].turn, next[at][name] = at, n, n+1
		}
		slices.SortStableFunc(turns, func(a, b turn) int {
			if a.retry != b.retry {
				return a.retry - b.retry
			}
			return a.turn - b.turn
		})
	}
	for i := range turns {
		list[i] = turns[i].v
	}
}

func later(retry bool) int {
	if retry {
		return 1
	}
	return 0
}

// Shares returns what Allow returns, or a function that allows everything. Every driver calls it
// for what it would take beside tests, in the order of Fair.
func (c Claim) Shares() func(e *Endpoint) bool {
	if c.Allow == nil {
		return func(*Endpoint) bool { return true }
	}
	return c.Allow()
}
