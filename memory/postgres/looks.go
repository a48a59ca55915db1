package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// looks gathers reads that want to know at which ver an agent stands: those that come while some are under way share the next query. None waits for others to come.
type looks struct {
	mu      sync.Mutex
	waiting []*look // what the next query takes along
	running int     // queries under way
}

// look is one question.
type look struct {
	no        int64
	ver       int64 // -1: the row is gone
	endpoints int64
	err       error
	turn      chan bool // true: ask for all that wait; false: this one is answered
}

// lookPlaces is how many such queries of one replica are under way at a time, most how many looks share one.
const (
	lookPlaces = 2
	lookMost   = 256
)

// ver gives the ver of an agent's row and the number of endpoints' changes, as of a moment after the call began.
func (s *Store) ver(ctx context.Context, no int64) (ver, endpoints int64, err error) {
	q := &s.looks
	l := &look{no: no, turn: make(chan bool, 1)}
	q.mu.Lock()
	ask := q.running < lookPlaces && len(q.waiting) == 0
	if ask {
		q.running++
	} else {
		q.waiting = append(q.waiting, l)
	}
	q.mu.Unlock()
	if !ask {
		select {
		case ask = <-l.turn:
			if !ask {
				return l.ver, l.endpoints, l.err
			}
		case <-ctx.Done():
			s.leave(l)
			return 0, 0, ctx.Err()
		}
	}
	list := []*look{l}
	q.mu.Lock()
	n := min(len(q.waiting), lookMost-1)
	list = append(list, q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.mu.Unlock()
	s.lookAll(ctx, list)
	s.pass()
	for _, o := range list[1:] {
		o.turn <- false
	}
	return l.ver, l.endpoints, l.err
}

// pass lets the first of those that wait ask in the place of one who has asked.
func (s *Store) pass() {
	q := &s.looks
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running--
		return
	}
	q.waiting[0].turn <- true
	q.waiting = slices.Delete(q.waiting, 0, 1)
}

// leave takes back a question whose caller is gone; a turn to ask that it was given meanwhile goes to the next.
func (s *Store) leave(l *look) {
	q := &s.looks
	q.mu.Lock()
	if i := slices.Index(q.waiting, l); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	select {
	case ask := <-l.turn:
		if ask {
			s.pass()
		}
	default: // taken along by another: the answer is for nobody
	}
}

const (
	lookFor    = `SELECT (SELECT n FROM counter WHERE key = 'endpoints'), u.no, coalesce(h.ver, -1) FROM unnest($1::bigint[]) u (no) LEFT JOIN agent_head h ON h.agent_no = u.no`
	lookForOne = `SELECT (SELECT n FROM counter WHERE key = 'endpoints'), $1::bigint, coalesce((SELECT ver FROM agent_head WHERE agent_no = $1), -1)`
)

// lookAll answers questions with one query.
func (s *Store) lookAll(ctx context.Context, list []*look) {
	// Bounded by the time of the caller who asks, who may go away: the others want to know.
	ends, ok := ctx.Deadline()
	if !ok {
		ends = time.Now().Add(s.timeout)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), ends)
	defer cancel()
	nos := make([]int64, len(list))
	for i, l := range list {
		nos[i], l.ver = l.no, -1
	}
	slices.Sort(nos)
	nos = slices.Compact(nos)
	var rows pgx.Rows
	var err error
	if len(nos) == 1 {
		rows, err = s.pool.Query(ctx, lookForOne, nos[0])
	} else {
		rows, err = s.pool.Query(ctx, lookFor, nos)
	}
	vers := make(map[int64]int64, len(nos))
	var endpoints, no, ver int64
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&endpoints, &no, &ver}, func() error { vers[no] = ver; return nil })
	}
	for _, l := range list {
		if ver, ok := vers[l.no]; ok {
			l.ver = ver
		}
		l.endpoints, l.err = endpoints, err
	}
}
