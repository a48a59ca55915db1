package postgres

import (
	"context"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

// bodyTables returns the tables of bodies that no data key has sealed.
func bodyTables() []sealedTable {
	body := "coalesce(m.packed, convert_to(m.body, 'UTF8'))"
	return []sealedTable{
		{
			kind: "message",
			get: "SELECT a.project, " + callerOf("m.agent_no") + ", ARRAY[m.agent_no::text, m.seq::text], " + body + ", m.agent_no, m.seq FROM message m JOIN agent a ON a.no = m.agent_no WHERE (m.agent_no, m.seq) > ($1, $2) AND " +
				stored(body, notByDataKey) + " ORDER BY m.agent_no, m.seq LIMIT 200 FOR UPDATE OF m",
			set: "UPDATE message SET packed = $1, body = '' WHERE agent_no = $2 AND seq = $3", first: []any{int64(-1), int64(-1)}, body: true,
		},
		{
			kind: "event",
			get:  "SELECT e.project, " + callerOf("e.agent_no") + ", ARRAY[e.id], e.body, e.no FROM event e WHERE e.no > $1 AND " + stored("e.body", notByDataKey) + " ORDER BY e.no LIMIT 200 FOR UPDATE",
			set:  "UPDATE event SET size = coalesce(size, length(body)), body = $1 WHERE no = $2", first: []any{int64(-1)}, body: true,
		},
	}
}

// notByDataKey is a comparison for values that no data key has sealed.
const notByDataKey = "<> 2"

// SealOld seals with data keys what a database holds that is not sealed with one, a few rows in
// each transaction, and returns how many values it has sealed. Servers go on meanwhile. If it is
// interrupted, the next call goes on.
func SealOld(ctx context.Context, o Options) (n int, err error) {
	s, err := Open(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !s.sealer.HasKeys() {
		return 0, fault.New(fault.Invalid, "HEARDLOG_DATA_KEY is not set")
	}
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return 0, pg.Classify(err, "encrypt")
	}
	defer conn.Release()
	for _, table := range append(bodyTables(), sealedTables(notByDataKey)...) {
		sealed, err := table.seal(ctx, conn.Conn(), s.sealer, s.key)
		if n += sealed; err != nil {
			return n, pg.Classify(err, "encrypt")
		}
	}
	// The old versions of the rows.
	_, _, err = s.Vacuum(ctx)
	return n, err
}
