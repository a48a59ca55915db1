package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A group whose agents are all in memory takes one round trip instead of two: it decides by what is known and sends lock, check, writes and commit together. Where
// the rows do not stand at the vers that were decided by, the check fails, nothing is written, and the group begins again with locks first. A lone caller
// then waits for the database once, as for a single INSERT.

const (
	// lockKnown locks rows in order of their numbers, as lock does, and divides by zero where one does not stand at the ver that we know: a row that was changed
	// while we waited for its lock is looked at again.
	lockKnown = `SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM (SELECT 1 FROM agent_head h JOIN unnest($1::bigint[], $2::bigint[]) u (no, ver)
		ON h.agent_no = u.no AND h.ver = u.ver ORDER BY h.agent_no FOR UPDATE OF h) locked`
	// knownEndpoints does so where an endpoint was changed that we do not know of.
	knownEndpoints = "SELECT 1 / (CASE WHEN n <= $1 THEN 1 ELSE 0 END) FROM counter WHERE key = 'endpoints'"
	divisionByZero = "22012"
	// shyFor is how many groups of a queue begin with locks after one whose check has failed: somebody else writes to these agents.
	shyFor = 8
)

// errUnknown ends an attempt to do without locks first.
var errUnknown = errors.New("what is in memory does not do")

// known runs a group by what is in memory. It gives errUnknown where that cannot be done and nothing was written.
func (s *Store) known(ctx context.Context, batch []*item) (*group, error) {
	g, err := s.tryKnown(ctx, batch)
	if errors.Is(err, errUnknown) || !broken(err) || ctx.Err() != nil {
		return g, err
	}
	if !g.sent {
		return g, errUnknown
	}
	// The connection was idle for too long, most likely; but its commit may have come through. The same group with the same vers can tell: if it is written now,
	// it was not before.
	again, err2 := s.tryKnown(ctx, batch)
	if err2 != nil {
		return g, err
	}
	return again, nil
}

func (s *Store) tryKnown(ctx context.Context, batch []*item) (g *group, err error) {
	g = &group{s: s, ctx: ctx, errs: make([]error, len(batch)), works: map[key]*work{}, blind: &blind{endpoints: s.published.Load().n}}
	for _, it := range batch {
		if g.works[it.k] != nil {
			continue
		}
		v := s.cache.get(it.k)
		if v == nil || v.no != it.no {
			return g, errUnknown
		}
		g.works[it.k] = &work{view: v}
		g.blind.nos, g.blind.vers = append(g.blind.nos, v.no), append(g.blind.vers, v.ver)
	}
	defer func() {
		if g.conn != nil {
			if err != nil {
				g.rollback()
			}
			g.conn.Release()
		}
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == divisionByZero || transient(err)) {
			g.stale, err = true, errUnknown
		}
	}()
	for i, it := range batch {
		g.errs[i] = g.decide(it)
		if errors.Is(g.errs[i], errQuery) {
			return g, g.errs[i]
		}
	}
	b := &pgx.Batch{}
	if err := g.begin(b); err != nil {
		return g, err
	}
	return g, g.commit(b)
}

// blind is what a group decides by that has locked nothing yet.
type blind struct {
	nos, vers []int64
	endpoints int64
}

// begin queues what begins the transaction and checks what was decided by, if that is still to be done.
func (g *group) begin(b *pgx.Batch) (err error) {
	if g.blind == nil {
		return nil
	}
	if g.conn, err = g.s.pool.Acquire(g.ctx); err != nil {
		return err
	}
	b.Queue("BEGIN")
	b.Queue(lockKnown, g.blind.nos, g.blind.vers, len(g.blind.nos))
	b.Queue(knownEndpoints, g.blind.endpoints)
	g.blind = nil
	return nil
}

// rollback ends a transaction that has failed, on a context of its own: that of the group may be why it failed. Where this fails too, the pool drops the connection.
func (g *group) rollback() {
	if g.conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = g.conn.Exec(ctx, "ROLLBACK")
}

// shy counts, for each queue, the groups that are still to begin with locks.
func (s *Store) shy(batch []*item) *int {
	return &s.shyness[uint64(batch[0].no)%uint64(len(s.shards))]
}

// looks gathers reads that want to know at which ver an agent stands: those that come while some are under way share the next query. None waits for others to come.
type looks struct {
	waiting chan *look // what the next query takes along
	places  chan struct{}
}

// look is one question.
type look struct {
	no        int64
	ver       int64 // -1: the row is gone
	endpoints int64
	err       error
	done      chan struct{}
}

// lookPlaces is how many such queries of one replica are under way at a time, most how many looks share one.
const (
	lookPlaces = 2
	lookMost   = 256
)

func newLooks() looks {
	return looks{waiting: make(chan *look, lookMost), places: make(chan struct{}, lookPlaces)}
}

// ver gives the ver of an agent's row and the number of endpoints' changes, as of a moment after the call began.
func (s *Store) ver(ctx context.Context, no int64) (ver, endpoints int64, err error) {
	l := &look{no: no, done: make(chan struct{})}
	for queue := s.looks.waiting; ; {
		select {
		case queue <- l:
			queue = nil
		case s.looks.places <- struct{}{}: // this caller asks for all that wait, itself among them unless somebody has taken it along
			s.lookAll()
			<-s.looks.places
		case <-l.done:
			return l.ver, l.endpoints, l.err
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// lookAll asks for all that wait.
func (s *Store) lookAll() {
	var list []*look
	for more := true; more && len(list) < lookMost; {
		select {
		case l := <-s.looks.waiting:
			list = append(list, l)
		default:
			more = false
		}
	}
	if len(list) == 0 {
		return
	}
	// Bounded by the store's own time: the caller who asks may go away, the others want to know.
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	nos := make([]int64, len(list))
	for i, l := range list {
		nos[i], l.ver = l.no, -1
	}
	slices.Sort(nos)
	vers := make(map[int64]int64, len(list))
	var endpoints int64
	rows, err := s.pool.Query(ctx, `SELECT c.n, coalesce(h.agent_no, 0), coalesce(h.ver, -1) FROM counter c LEFT JOIN agent_head h ON h.agent_no = ANY($1) WHERE c.key = 'endpoints'`, slices.Compact(nos))
	if err == nil {
		var no, ver int64
		_, err = pgx.ForEachRow(rows, []any{&endpoints, &no, &ver}, func() error { vers[no] = ver; return nil })
	}
	for _, l := range list {
		if ver, ok := vers[l.no]; ok {
			l.ver = ver
		}
		l.endpoints, l.err = endpoints, err
		close(l.done)
	}
}
