package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// sweepAgents is how many agents a transaction erases.
const sweepAgents = 16

// Erase implements memory.Store. An agent disappears at once, and its rows are deleted in slices.
// If an erasure is interrupted, even by the end of the process, the next sweep of any server
// finishes it. Servers skip agents that another server has locked.
func (s *Store) Erase(ctx context.Context, e memory.Erasure) ([]memory.Ref, error) {
	if e.Ref != (memory.Ref{}) {
		no, err := s.eraseOne(ctx, e.Project, e.ID)
		if err != nil {
			return nil, err
		}
		return []memory.Ref{e.Ref}, s.eraseRows(context.WithoutCancel(ctx), no)
	}
	if err := s.eraseRows(ctx, 0); err != nil {
		return nil, err
	}
	var gone []memory.Ref
	for len(gone) < e.Limit {
		projects, err := s.endedProjects(ctx, e.BeforeMS)
		if err != nil || len(projects) == 0 {
			return gone, err
		}
		var list []memory.Ref
		err = s.db.Transact(ctx, "erase agents", func(ctx context.Context, tx pgx.Tx) (err error) {
			list, err = s.eraseAgents(ctx, tx, projects, e.BeforeMS, min(sweepAgents, e.Limit-len(gone)))
			return err
		})
		if err != nil || len(list) == 0 {
			return gone, err
		}
		gone = append(gone, list...)
		if err := s.eraseRows(ctx, 0); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// endedProjects returns the projects of the agents that a sweep erases next, in order, as they are
// stored.
func (s *Store) endedProjects(ctx context.Context, beforeMS int64) ([]string, error) {
	return pg.ReadAll(ctx, s.db, "find ended agents", pgx.RowTo[string], `SELECT DISTINCT project FROM (SELECT a.project FROM agent a
		WHERE a.status IN (4, 6) AND a.stop_ms < $1 AND NOT EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)
			AND `+statements.NotHeld+` ORDER BY a.stop_ms, a.no LIMIT $2) p ORDER BY project`, beforeMS, sweepAgents)
}

// eraseAgents erases agents that ended before the time and have no pending deliveries. It notes
// that their rows are still to be erased.
func (s *Store) eraseAgents(ctx context.Context, tx pgx.Tx, projects []string, beforeMS int64, limit int) ([]memory.Ref, error) {
	if err := s.lockHolds(ctx, tx, projects); err != nil {
		return nil, err
	}
	// Heads are locked first, as by every writer, then the agents, which a replay of their events
	// locks. Only what is read after that is certain.
	const waits = "EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = a.no AND d.state = 0)"
	nos, err := pg.Collect(ctx, tx, pgx.RowTo[int64], `SELECT h.agent_no FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.status IN (4, 6) AND a.stop_ms < $1 AND a.project = ANY($3) AND NOT `+waits+` AND `+statements.NotHeld+`
		ORDER BY a.stop_ms, a.no LIMIT $2 FOR UPDATE OF h SKIP LOCKED`, beforeMS, limit, projects)
	if err != nil || len(nos) == 0 {
		return nil, err
	}
	nos, err = pg.Collect(ctx, tx, pgx.RowTo[int64], "SELECT no FROM agent WHERE no = ANY($1) AND status IN (4, 6) AND stop_ms < $2 ORDER BY no FOR UPDATE SKIP LOCKED", nos, beforeMS)
	if err != nil || len(nos) == 0 {
		return nil, err
	}
	var gone []int64
	list, err := pg.Collect(ctx, tx, func(row pgx.CollectableRow) (r memory.Ref, err error) {
		var no int64
		err = row.Scan(&no, &r.Project, &r.ID)
		pg.Show(&r.Project, &r.ID)
		gone = append(gone, no)
		return r, err
	}, "SELECT a.no, a.project, a.id FROM agent a WHERE a.no = ANY($1) AND NOT "+waits+" AND "+statements.NotHeld, nos)
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	return list, eraseAgentRows(ctx, tx, gone)
}

// eraseAgentRows erases agents, except for the rows that belong to them. It starts with their
// heads, which writers lock.
func eraseAgentRows(ctx context.Context, tx pgx.Tx, nos []int64) error {
	b := &pgx.Batch{}
	b.Queue(dueErased, nos)
	b.Queue("UPDATE archived SET used = 0, made_ms = 0 WHERE agent_no = ANY($1)", nos)
	b.Queue(useErased, nos)
	b.Queue("DELETE FROM agent_head WHERE agent_no = ANY($1)", nos)
	b.Queue("DELETE FROM agent_key WHERE agent_no = ANY($1)", nos)
	b.Queue("DELETE FROM agent_tag WHERE agent_no = ANY($1)", nos)
	b.Queue("DELETE FROM agent_seen WHERE agent_no = ANY($1)", nos)
	b.Queue("DELETE FROM agent_lease WHERE agent_no = ANY($1)", nos)
	b.Queue("DELETE FROM agent WHERE no = ANY($1)", nos)
	b.Queue("INSERT INTO erased (agent_no) SELECT * FROM unnest($1::bigint[])", nos)
	return tx.SendBatch(ctx, b).Close()
}

// eraseOne erases an agent, except for the rows that belong to it. Its pending deliveries are
// deleted at once.
func (s *Store) eraseOne(ctx context.Context, project, id string) (no int64, err error) {
	err = s.db.Transact(ctx, "erase agent", func(ctx context.Context, tx pgx.Tx) (err error) {
		h, err := s.holds(ctx, tx, project)
		if err != nil {
			return err
		}
		// The lock keeps writers out, which could add events after the deletion.
		if no, err = lockAgent(ctx, tx, project, id); err != nil {
			return err
		}
		if err := h.Erase(project, no); err != nil {
			return err
		}
		for _, sql := range []string{
			"DELETE FROM attempt WHERE delivery_id IN (SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = $1 AND d.state = 0)",
			"DELETE FROM delivery WHERE state = 0 AND event_no IN (SELECT no FROM event WHERE agent_no = $1)",
		} {
			if _, err := tx.Exec(ctx, sql, no); err != nil {
				return err
			}
		}
		return eraseAgentRows(ctx, tx, []int64{no})
	})
	return no, err
}

// eraseRows deletes the rows of the erased agent with a number, also while a sweep is about to.
// With number 0 it deletes those of all that no other call is about to.
func (s *Store) eraseRows(ctx context.Context, of int64) error {
	for more := true; more; {
		err := s.db.Transact(ctx, "erase rows", func(ctx context.Context, tx pgx.Tx) error {
			more = false
			var no int64
			which, args := "WHERE agent_no = $1 FOR UPDATE", []any{of}
			if of == 0 {
				which, args = "LIMIT 1 FOR UPDATE SKIP LOCKED", nil
			}
			err := tx.QueryRow(ctx, "SELECT agent_no FROM erased "+which, args...).Scan(&no)
			if pg.NoRows(err) {
				return nil
			}
			if err != nil {
				return err
			}
			more = true
			// Another server may have written these while the agent was erased.
			for _, table := range []string{"agent_lease", "agent_seen"} {
				if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE agent_no = $1", no); err != nil {
					return err
				}
			}
			for _, sql := range []string{
				"DELETE FROM kv WHERE agent_no = $1 AND project = '' AND key <= (SELECT max(key) FROM (SELECT key FROM kv WHERE agent_no = $1 AND project = '' ORDER BY key LIMIT $2) k)",
				"DELETE FROM item WHERE agent_no = $1 AND seq <= (SELECT max(seq) FROM (SELECT seq FROM item WHERE agent_no = $1 ORDER BY seq LIMIT $2) m)",
				"DELETE FROM message WHERE agent_no = $1 AND seq <= (SELECT max(seq) FROM (SELECT seq FROM message WHERE agent_no = $1 ORDER BY seq LIMIT $2) m)",
				`DELETE FROM attempt WHERE delivery_id = ANY(ARRAY(SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = $1
					AND EXISTS (SELECT 1 FROM attempt x WHERE x.delivery_id = d.id) LIMIT $2))`,
				"DELETE FROM delivery WHERE id = ANY(ARRAY(SELECT d.id FROM delivery d JOIN event e ON d.event_no = e.no WHERE e.agent_no = $1 LIMIT $2))",
				"DELETE FROM event WHERE no = ANY(ARRAY(SELECT no FROM event WHERE agent_no = $1 LIMIT $2))",
			} {
				done, err := tx.Exec(ctx, sql, no, sliceRows)
				if err != nil || done.RowsAffected() >= sliceRows {
					return err // the next slice goes on here
				}
			}
			_, err = tx.Exec(ctx, "DELETE FROM erased WHERE agent_no = $1", no)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lostReplay is how much longer the row of an unnamed, unfinished replay is kept. The call that
// runs it reads the row until it is done.
const lostReplay = 24 * time.Hour

// forgetRows is smaller than sliceRows because a delivery takes its attempts, with up to 16 KiB
// each, and its event along.
const forgetRows = 64

// ForgetDone erases deliveries that ended before the time, and events that have none any more.
func (s *Store) ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (int, error) {
	erased := 0
	for n := int64(forgetRows); n == forgetRows; {
		projects, err := pg.ReadAll(ctx, s.db, "find old deliveries", pgx.RowTo[string], `SELECT DISTINCT e.project FROM (SELECT event_no FROM delivery WHERE state <> 0 AND done_ms < $1
			AND (NOT $3 OR (SELECT agent_no FROM event WHERE no = event_no) = 0) AND `+statements.DeliveryNotHeld+` ORDER BY done_ms LIMIT $2) d JOIN event e ON e.no = d.event_no ORDER BY e.project`,
			beforeMS, forgetRows, agentless)
		if err != nil {
			return erased, err
		}
		err = s.db.Transact(ctx, "erase deliveries", func(ctx context.Context, tx pgx.Tx) error {
			if err := s.lockHolds(ctx, tx, projects); err != nil {
				return err
			}
			var ids, events []int64
			var id, event int64
			if err := pg.Each(ctx, tx, []any{&id, &event}, func() error { ids, events = append(ids, id), append(events, event); return nil }, `SELECT id, event_no FROM delivery WHERE state <> 0 AND done_ms < $1
				AND (NOT $3 OR (SELECT agent_no FROM event WHERE no = event_no) = 0) AND EXISTS (SELECT 1 FROM event e WHERE e.no = event_no AND e.project = ANY($4))
				AND `+statements.DeliveryNotHeld+` ORDER BY done_ms LIMIT $2 FOR UPDATE SKIP LOCKED`, beforeMS, forgetRows, agentless, projects); err != nil {
				return err
			}
			n = int64(len(ids))
			b := &pgx.Batch{}
			b.Queue("DELETE FROM attempt WHERE delivery_id = ANY($1)", ids)
			b.Queue("DELETE FROM delivery WHERE id = ANY($1)", ids)
			// Locks first: a server that adds a delivery of one of these events holds it
			// (keptEvents), and so does one that erases other deliveries of it. Only then is it
			// certain which events have none left.
			b.Queue("SELECT 1 FROM event WHERE no = ANY($1) ORDER BY no FOR UPDATE", events)
			b.Queue("DELETE FROM event e WHERE e.no = ANY($1) AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.event_no = e.no)", events)
			return tx.SendBatch(ctx, b).Close()
		})
		if err != nil {
			return erased, err
		}
		erased += int(n)
	}
	return erased, s.db.Transact(ctx, "erase endpoints", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM replay WHERE now_ms < $1 AND (done OR name IS NULL AND now_ms < $1 - $2)", beforeMS, lostReplay.Milliseconds()); err != nil {
			return err
		}
		return dropEndpoints(ctx, tx)
	})
}
