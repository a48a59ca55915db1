package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

var (
	_ export.Source = (*Store)(nil)
	_ export.Prober = (*Store)(nil)
)

// snapshot runs fn in one transaction that only reads, as of one moment, for as long as fn takes.
func (s *Store) snapshot(ctx context.Context, what string, fn func(tx pgx.Tx) error) error {
	if s.db.Closed() {
		return pg.ErrClosed()
	}
	conn, err := s.db.Pool.Acquire(ctx)
	if err != nil {
		return s.db.Failed(ctx, err, what)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// The receiver of the records may be slow.
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			return err
		}
		// Every query is read to its end, and its plan should suit the values. A database without
		// such a setting works too.
		for _, set := range []string{"SET LOCAL plan_cache_mode = force_custom_plan", "SET LOCAL cursor_tuple_fraction = 1"} {
			// The savepoint keeps the transaction usable if the setting is unknown.
			err := pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { _, err := part.Exec(ctx, set); return err })
			if pg.Broken(err) {
				return err
			}
		}
		return fn(tx)
	})
	return s.db.Failed(ctx, err, what)
}

// Export implements export.Source.
func (s *Store) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return s.snapshot(ctx, "export", func(tx pgx.Tx) error {
		x := statements.Exporter{
			DB: pg.NewStatements(ctx, tx), Sealer: s.sealer, Packed: packedBody, Claimed: "d.claimed", Bytes: `"C"`,
			Agents: "h.rev, h.next_seq, h.last_turn, a.settings, h.tally FROM agent a JOIN agent_head h ON h.agent_no = a.no",
		}
		return x.Run(sc, each)
	})
}

// probes count rows that must not exist, besides those of package statements.
var probes = [][2]string{
	{"%d agents have no head", "SELECT count(*) FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_head h WHERE h.agent_no = a.no)"},
	{"%d heads belong to no agent", "SELECT count(*) FROM agent_head h WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = h.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = h.agent_no)"},
	{"%d projects have another number of conversations than is noted", `SELECT count(*) FROM (SELECT project FROM
		(SELECT project, count(*) AS n FROM kv WHERE agent_no = 0 GROUP BY project UNION ALL SELECT project, -n FROM kv_count) c GROUP BY project HAVING sum(n) <> 0) p`},
	{"%d keys do not go with the status of their agent", "SELECT count(*) FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.live <> (a.status NOT IN (4, 6))"},
	{"%d deliveries are kept with another project than their event", "SELECT count(*) FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.project <> e.project"},
	{"%d deliveries do not tell a first try from others", "SELECT count(*) FROM delivery WHERE state = 0 AND retry <> (attempt > 0)"},
	{"%d endpoints are noted as disabled and are not, or the other way", "SELECT count(*) FROM endpoint WHERE id IS NOT NULL AND disabled <> (position('\"disabled\":true' IN body) > 0)"},
	{"%d projects use another amount than is noted", `SELECT count(*) FROM (SELECT project FROM (
		SELECT a.project, (a.status = 4)::int AS stopped, (a.status = 6)::int AS failed, h.next_seq - 1 AS messages, h.written AS bytes
			FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.status IN (4, 6)
		UNION ALL SELECT project, 0, 0, 0, bytes FROM record_space
		UNION ALL SELECT ` + spaceProject + `, 0, 0, 0, size FROM kv_count WHERE ` + isSpace + `
		UNION ALL SELECT project, -stopped, -failed, -messages, -bytes FROM project_use) u
		GROUP BY project HAVING (sum(stopped), sum(failed), sum(messages), sum(bytes)) <> (0, 0, 0, 0)) p`},
	{"%d counters are missing", "SELECT 2 - count(*) FROM counter WHERE key IN ('endpoints', 'ping')"},
}

// Probe implements export.Prober.
func (s *Store) Probe(ctx context.Context, each func(export.Finding) error) error {
	return s.snapshot(ctx, "look for what is wrong", func(tx pgx.Tx) error {
		return statements.Check(pg.NewStatements(ctx, tx), probes, each)
	})
}
