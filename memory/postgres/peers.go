package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
)

// What replicas tell each other goes through tables, and is looked for: NOTIFY inside a write costs half its speed (reference/storage.md section 3), LISTEN
// needs a session of its own that no pooler in between takes away, and other databases of PostgreSQL's kind do not have them. The clock is the database's.

var _ memory.Peers = (*Store)(nil)

const (
	// nowMS is the database's time.
	nowMS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	// presence is how long a replica counts that is not heard of, questionAge how long a question may wait for somebody who looks.
	presence    = 5 * time.Second
	questionAge = 3 * time.Second
	// takenUp is how long whoever asks waits for somebody to take a question up, askEvery how often he looks.
	takenUp  = 250 * time.Millisecond
	askEvery = 8 * time.Millisecond
)

// newReplica names a process. The name says nothing about it.
func newReplica() string {
	b := make([]byte, 12)
	rand.Read(b)
	return fmt.Sprintf("%x", b)
}

// loose runs statements in one round trip and one transaction that need not outlive a crash of the database.
func (s *Store) loose(ctx context.Context, queue func(b *pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue("SET LOCAL synchronous_commit = off")
	queue(b)
	b.Queue("COMMIT")
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = conn.SendBatch(ctx, b).Close()
	if err != nil && !conn.Conn().IsClosed() {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// Beat implements memory.Peers.
func (s *Store) Beat(ctx context.Context, seen []memory.Seen) (others bool, err error) {
	n := len(seen)
	projects, ids, asked, spoken := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)
	for i, v := range seen {
		projects[i], ids[i], asked[i], spoken[i] = stored(v.Project), stored(v.ID), v.AskedMS, v.SpokenMS
	}
	err = s.read(ctx, "tell other servers", func(ctx context.Context) error {
		return s.loose(ctx, func(b *pgx.Batch) {
			b.Queue("INSERT INTO replica (id, seen_ms) VALUES ($1, "+nowMS+") ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms", s.replica)
			if n > 0 {
				b.Queue(`INSERT INTO agent_seen AS s (agent_no, asked_ms, spoken_ms)
					SELECT a.no, u.asked, u.spoken FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) u (project, id, asked, spoken)
						JOIN agent a ON a.project = u.project AND a.id = u.id AND a.status NOT IN (4, 6) ORDER BY a.no
					ON CONFLICT (agent_no) DO UPDATE SET asked_ms = greatest(s.asked_ms, excluded.asked_ms), spoken_ms = greatest(s.spoken_ms, excluded.spoken_ms)`,
					projects, ids, asked, spoken)
			}
			b.Queue("SELECT EXISTS (SELECT 1 FROM replica WHERE id <> $1 AND seen_ms > "+nowMS+" - $2)", s.replica, presence.Milliseconds()).
				QueryRow(func(row pgx.Row) error { return row.Scan(&others) })
			if s.beats.Add(1)%60 == 0 { // now and then
				b.Queue("DELETE FROM replica WHERE seen_ms < "+nowMS+" - $1", (10 * presence).Milliseconds())
				b.Queue("DELETE FROM question WHERE at_ms < "+nowMS+" - $1", (10 * questionAge).Milliseconds())
			}
		})
	})
	return others, err
}

// Seen implements memory.Peers.
func (s *Store) Seen(ctx context.Context, project, id string) (seen memory.Seen, err error) {
	seen.Project, seen.ID = project, id
	err = s.read(ctx, "read what other servers have seen", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, "SELECT s.asked_ms, s.spoken_ms FROM agent_seen s JOIN agent a ON a.no = s.agent_no WHERE a.project = $1 AND a.id = $2", stored(project), stored(id)).
			Scan(&seen.AskedMS, &seen.SpokenMS)
		if noRows(err) {
			return nil
		}
		return err
	})
	return seen, err
}

// NewLive implements memory.Peers.
func (s *Store) NewLive(ctx context.Context, after int64, each func(memory.Head) error) (int64, error) {
	return s.liveSince(ctx, after, each)
}

// Lease implements memory.Peers.
func (s *Store) Lease(ctx context.Context, project, id string, what memory.Work, lease time.Duration) (giveBack func(), ok bool, err error) {
	var no, fence int64
	err = s.transact(ctx, "lease an agent", func(ctx context.Context, tx pgx.Tx) error {
		ok = false
		err := tx.QueryRow(ctx, `INSERT INTO agent_lease AS l (agent_no, what, until_ms, fence) SELECT no, $4, `+nowMS+` + $3, 1 FROM agent WHERE project = $1 AND id = $2
			ON CONFLICT (agent_no, what) DO UPDATE SET until_ms = excluded.until_ms, fence = l.fence + 1 WHERE l.until_ms <= `+nowMS+` RETURNING agent_no, fence`,
			stored(project), stored(id), lease.Milliseconds(), string(what)).Scan(&no, &fence)
		if noRows(err) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil || !ok {
		return nil, false, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		// Where this fails the lease ends by itself. A lease that others have taken over since has another fence.
		_, _ = s.pool.Exec(ctx, "UPDATE agent_lease SET until_ms = 0 WHERE agent_no = $1 AND what = $3 AND fence = $2", no, fence, string(what))
	}, true, nil
}

// Ask implements memory.Peers.
func (s *Store) Ask(ctx context.Context, q memory.Question) (r memory.Reply, err error) {
	var no *int64
	var heard *string
	if q.Heard != nil {
		text := stored(*q.Heard)
		heard = &text
	}
	err = s.read(ctx, "ask other servers", func(ctx context.Context) error {
		no = nil
		return s.loose(ctx, func(b *pgx.Batch) {
			b.Queue(`INSERT INTO question (at_ms, sender, project, agent_id, cause, turn, heard, tell, taken, done, foreign_text, phase)
				SELECT `+nowMS+`, $1, $2, $3, $4, $5, $6, $7, false, false, false, 0 WHERE EXISTS (SELECT 1 FROM replica WHERE id <> $1 AND seen_ms > `+nowMS+` - $8) RETURNING no`,
				s.replica, stored(q.Project), stored(q.ID), q.Cause, q.TurnID, heard, q.Tell, presence.Milliseconds()).QueryRow(func(row pgx.Row) error {
				err := row.Scan(&no)
				if noRows(err) {
					return nil
				}
				return err
			})
		})
	})
	if err != nil || no == nil || q.Tell {
		return r, err
	}
	began := time.Now()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return r, ended(ctx)
		case <-tick.C:
		}
		var up, done bool
		err := s.read(ctx, "wait for other servers", func(ctx context.Context) error {
			return s.pool.QueryRow(ctx, "SELECT taken, done, foreign_text, phase, turns FROM question WHERE no = $1", *no).Scan(&up, &done, &r.Foreign, &r.Phase, &r.Turns)
		})
		if err != nil || done || !up && time.Since(began) > takenUp {
			return r, err
		}
	}
}

// Asked implements memory.Peers.
func (s *Store) Asked(ctx context.Context) (list []memory.Question, err error) {
	err = s.read(ctx, "look for questions", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT no, project, agent_id, cause, turn, heard, tell FROM question WHERE at_ms > `+nowMS+` - $2 AND sender <> $1 AND NOT done
			ORDER BY no LIMIT 1000`, s.replica, questionAge.Milliseconds())
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (q memory.Question, err error) {
			err = row.Scan(&q.No, &q.Project, &q.ID, &q.Cause, &q.TurnID, &q.Heard, &q.Tell)
			q.Project, q.ID = shown(q.Project), shown(q.ID)
			if q.Heard != nil {
				text := shown(*q.Heard)
				q.Heard = &text
			}
			return q, err
		})
		return err
	})
	return list, err
}

// Take implements memory.Peers.
func (s *Store) Take(ctx context.Context, q memory.Question) error {
	return s.read(ctx, "take a question up", func(ctx context.Context) error {
		return s.loose(ctx, func(b *pgx.Batch) { b.Queue("UPDATE question SET taken = true WHERE no = $1", q.No) })
	})
}

// Reply implements memory.Peers.
func (s *Store) Reply(ctx context.Context, q memory.Question, r memory.Reply) error {
	return s.read(ctx, "answer a question", func(ctx context.Context) error {
		return s.loose(ctx, func(b *pgx.Batch) {
			b.Queue("UPDATE question SET taken = true, done = true, foreign_text = $2, phase = $3, turns = $4 WHERE no = $1", q.No, r.Foreign, r.Phase, r.Turns)
		})
	})
}

// Revisions implements memory.Peers.
func (s *Store) Revisions(ctx context.Context, projects, ids []string) (revs []int64, err error) {
	p, names := make([]string, len(projects)), make([]string, len(ids))
	for i := range projects {
		p[i], names[i] = stored(projects[i]), stored(ids[i])
	}
	err = s.read(ctx, "read revisions", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT coalesce(h.rev, -1) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (project, id, ord)
			LEFT JOIN agent a ON a.project = u.project AND a.id = u.id LEFT JOIN agent_head h ON h.agent_no = a.no ORDER BY u.ord`, p, names)
		if err == nil {
			revs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	return revs, err
}
