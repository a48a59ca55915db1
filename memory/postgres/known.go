package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A group whose agents are all in memory takes one round trip instead of two: it decides by what is known and sends check, writes and commit together. Where
// the rows do not stand at the vers that were decided by, the check fails, nothing is written, and the group begins again with locks first. Appends, which are most of
// what is written, are one statement and no more: a lone caller then waits for the database once, as for a single INSERT.

const (
	// appendKnown moves heads on from the vers that we know and appends. Rows are locked in order of their numbers, as lock does; where one does not stand at
	// its ver, also because it was changed while we waited for its lock, a division by zero undoes the statement.
	appendKnown = `WITH head AS (UPDATE agent_head h SET ver = u.ver + 1, rev = u.rev, next_seq = u.next_seq, last_turn = u.last_turn
		FROM (SELECT unnest($1::bigint[]) no, unnest($2::bigint[]) ver, unnest($3::bigint[]) rev, unnest($4::bigint[]) next_seq, unnest($5::bigint[]) last_turn) u
		WHERE h.agent_no = u.no AND h.ver = u.ver RETURNING 1),
		written AS (` + insertPlain + `)
		SELECT 1 / (CASE WHEN count(*) = $6 AND (` + sameEndpoints + `) <= $14::bigint THEN 1 ELSE 0 END) FROM head`
	insertPlain = `INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body)
		SELECT unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::boolean[]), unnest($12::text[]), unnest($13::text[])`
	// appendOne is the same for one message of one agent, without what arrays cost.
	appendOne = `WITH head AS (UPDATE agent_head SET ver = ver + 1, rev = $3, next_seq = $4, last_turn = $5 WHERE agent_no = $1 AND ver = $2 RETURNING 1),
		written AS (INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body) VALUES ($1, $6, $7, $8, $9, $10, $11))
		SELECT 1 / (CASE WHEN count(*) = 1 AND (` + sameEndpoints + `) <= $12::bigint THEN 1 ELSE 0 END) FROM head`
	// looksKnown is for decisions that write nothing: they hold if the rows stood there at a moment of the call.
	looksKnown = `SELECT 1 / (CASE WHEN count(*) = $3 AND (` + sameEndpoints + `) <= $4::bigint THEN 1 ELSE 0 END) FROM (SELECT unnest($1::bigint[]) no, unnest($2::bigint[]) ver) u
		JOIN agent_head h ON h.agent_no = u.no AND h.ver = u.ver`
	// lockKnown locks and checks for whatever is written by several statements.
	lockKnown = `SELECT 1 / (CASE WHEN count(*) = $3 THEN 1 ELSE 0 END) FROM (SELECT 1 FROM agent_head h JOIN unnest($1::bigint[], $2::bigint[]) u (no, ver)
		ON h.agent_no = u.no AND h.ver = u.ver ORDER BY h.agent_no FOR UPDATE OF h) locked`
	// sameEndpoints is part of each check: where an endpoint was changed that we do not know of, what was decided without events may have to tell of one.
	sameEndpoints = `SELECT n FROM counter WHERE key = 'endpoints'`
	// knownEndpoints does so in a batch.
	knownEndpoints = "SELECT 1 / (CASE WHEN n <= $1 THEN 1 ELSE 0 END) FROM counter WHERE key = 'endpoints'"
	divisionByZero = "22012"
	// shyFor is how many groups of a queue begin with locks after one whose check has failed: somebody else writes to these agents.
	shyFor = 8
)

// errUnknown ends an attempt to do without locks first.
var errUnknown = errors.New("what is in memory does not do")

// known runs a group by what is in memory. It gives errUnknown where that cannot be done and nothing was written.
func (s *Store) known(ctx context.Context, batch []*item) (*group, error) {
	from, ok := s.basis(batch)
	if !ok {
		return &group{s: s, ctx: ctx}, errUnknown
	}
	g, err := s.tryKnown(ctx, batch, from)
	if errors.Is(err, errUnknown) || !broken(err) || ctx.Err() != nil {
		return g, err
	}
	if !g.sent {
		return g, errUnknown
	}
	// The connection was idle for too long, most likely; but its commit may have come through. The same group on the same basis can tell: if it is written now,
	// it was not before. What is in memory by now is none: somebody may have read there what was just written.
	again, err2 := s.tryKnown(ctx, batch, from)
	if err2 != nil {
		return g, err
	}
	return again, nil
}

// basis is what a group decides by: the agents as they are in memory, and which endpoints are known.
type basis struct {
	views     map[key]*view
	endpoints int64
}

// basis gives what is in memory of a group's agents; ok is false where that is not all.
func (s *Store) basis(batch []*item) (b basis, ok bool) {
	b = basis{views: make(map[key]*view, len(batch)), endpoints: s.published.Load().n}
	for _, it := range batch {
		v := b.views[it.k]
		if v == nil {
			v = s.cache.get(it.k)
		}
		if v == nil || v.no != it.no {
			return b, false
		}
		b.views[it.k] = v
	}
	return b, true
}

func (s *Store) tryKnown(ctx context.Context, batch []*item, from basis) (g *group, err error) {
	g = &group{s: s, ctx: ctx, errs: make([]error, len(batch)), works: make(map[key]*work, len(from.views)), blind: &blind{endpoints: from.endpoints}}
	for k, v := range from.views {
		w := &work{view: v}
		g.works[k] = w
		g.blind.works = append(g.blind.works, w)
	}
	// Locks are taken in one order, whoever takes them.
	slices.SortFunc(g.blind.works, func(a, b *work) int { return cmp.Compare(a.view.no, b.view.no) })
	for _, w := range g.blind.works {
		g.blind.nos, g.blind.vers = append(g.blind.nos, w.view.no), append(g.blind.vers, w.view.ver)
	}
	defer func() {
		if g.conn != nil {
			if err != nil {
				g.rollback()
			}
			g.conn.Release()
		}
		// A number in use tells the same as a ver that does not hold, if that is found first.
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == divisionByZero || transient(err) || violated(err) == "message_pkey") {
			g.stale, err = true, errUnknown
		}
	}()
	for i, it := range batch {
		g.errs[i] = g.decide(it)
		if errors.Is(g.errs[i], errQuery) {
			return g, g.errs[i]
		}
		if err := g.unload(); err != nil {
			return g, err
		}
	}
	if sql, args := g.single(); sql != "" {
		if g.conn, err = s.pool.Acquire(ctx); err != nil {
			return g, err
		}
		g.sent = g.messages > 0
		_, err = g.conn.Exec(ctx, sql, args...)
		return g, err
	}
	b := &pgx.Batch{}
	if err := g.begin(b); err != nil {
		return g, err
	}
	return g, g.commit(b)
}

// blind is what a group decides by that has locked nothing yet: agents in order of their numbers.
type blind struct {
	works     []*work
	nos, vers []int64
	endpoints int64
}

// single gives the one statement that does for the whole group, if there is one: where nothing was decided but appends, or nothing at all.
func (g *group) single() (string, []any) {
	if g.blind == nil || g.told || !g.writes.appendsOnly() {
		return "", nil
	}
	changed := 0
	for _, w := range g.blind.works {
		if w.changed {
			changed++
		}
	}
	r := &g.writes.inserted
	switch {
	case changed == 0:
		return looksKnown, []any{g.blind.nos, g.blind.vers, len(g.blind.nos), g.blind.endpoints}
	case changed < len(g.blind.works):
		return "", nil
	case changed == 1 && len(r.nos) == 1:
		h := &g.blind.works[0].view.head
		return appendOne, []any{g.blind.nos[0], g.blind.vers[0], h.Rev, h.NextSeq, h.LastTurn, r.seqs[0], r.revs[0], r.turns[0], r.shown[0], r.ids[0], r.bodies[0], g.blind.endpoints}
	}
	for _, w := range g.blind.works {
		g.writes.head(w.view)
	}
	h := &g.writes.heads
	return appendKnown, []any{h.nos, g.blind.vers, h.revs, h.seqs, h.turns, len(h.nos), r.nos, r.seqs, r.revs, r.turns, r.shown, r.ids, r.bodies, g.blind.endpoints}
}

// begin queues what begins the transaction and checks what was decided by, if that is still to be done.
func (g *group) begin(b *pgx.Batch) (err error) {
	if g.blind == nil {
		return nil
	}
	if g.conn, err = g.s.pool.Acquire(g.ctx); err != nil {
		return err
	}
	g.open(b)
	b.Queue(lockKnown, g.blind.nos, g.blind.vers, len(g.blind.nos))
	b.Queue(knownEndpoints, g.blind.endpoints)
	g.blind = nil
	return nil
}

// rollback ends a transaction that has failed, on a context of its own: that of the group may be why it failed. Where this fails too, the pool drops the connection.
func (g *group) rollback() {
	if conn := g.conn.Conn(); conn.IsClosed() || conn.PgConn().TxStatus() == 'I' { // a single statement leaves no transaction behind
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
