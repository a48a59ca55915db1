package pg

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Gather lets reads that come while others are under way share the next query. None waits for
// others to come.
type Gather[T any] struct {
	// Ask answers questions with one query. It sets their Err.
	Ask func(ctx context.Context, list []*Question[T])

	mu      sync.Mutex
	waiting []*Question[T] // for the next query
	running int            // queries under way
}

// Question is one read.
type Question[T any] struct {
	About T
	Err   error
	turn  chan bool // true: ask for all that wait; false: this one is answered
}

// gatherPlaces is how many queries may be under way at a time, gatherMost how many questions share
// one.
const (
	gatherPlaces = 2
	gatherMost   = 256
)

// Do answers a question as of a moment after the call began. timeout bounds the query if ctx has no
// deadline.
func (g *Gather[T]) Do(ctx context.Context, timeout time.Duration, about T) (T, error) {
	q := &Question[T]{About: about, turn: make(chan bool, 1)}
	g.mu.Lock()
	ask := g.running < gatherPlaces && len(g.waiting) == 0
	if ask {
		g.running++
	} else {
		g.waiting = append(g.waiting, q)
	}
	g.mu.Unlock()
	if !ask {
		select {
		case ask = <-q.turn:
			if !ask {
				return q.About, q.Err
			}
		case <-ctx.Done():
			g.leave(q)
			return q.About, ctx.Err()
		}
	}
	g.mu.Lock()
	n := min(len(g.waiting), gatherMost-1)
	list := append([]*Question[T]{q}, g.waiting[:n]...)
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.mu.Unlock()
	// Bounded by the time of the caller that asks. It may go away, and the others still want the
	// answer.
	ends, ok := ctx.Deadline()
	if !ok {
		ends = time.Now().Add(timeout)
	}
	shared, cancel := context.WithDeadline(context.WithoutCancel(ctx), ends)
	g.Ask(shared, list)
	cancel()
	g.pass()
	for _, o := range list[1:] {
		o.turn <- false
	}
	return q.About, q.Err
}

// pass lets the first that waits ask in the place of one that has asked.
func (g *Gather[T]) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running--
		return
	}
	g.waiting[0].turn <- true
	g.waiting = slices.Delete(g.waiting, 0, 1)
}

// leave takes back a question whose caller is gone. If it got a turn to ask meanwhile, the turn
// goes to the next.
func (g *Gather[T]) leave(q *Question[T]) {
	g.mu.Lock()
	if i := slices.Index(g.waiting, q); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	select {
	case ask := <-q.turn:
		if ask {
			g.pass()
		}
	default: // another caller already asks it, and the answer is dropped
	}
}
