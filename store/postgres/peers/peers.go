// Package peers lets the servers of a PostgreSQL database ask and tell each other what only one of
// them knows: who is in a call, who follows an agent, who works on what.
//
// Replicas communicate through tables, which they poll. NOTIFY inside a write would halve the write
// rate, and LISTEN needs a session that a pooler may share with others. Some PostgreSQL-compatible
// databases have neither. If a call waits for an answer, notifications make it faster; see
// listen.go. All times are those of the database's clock.
package peers

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

const (
	// nowMS is the database's time.
	nowMS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	// presence is how long a replica counts as running after its last beat. questionAge is how long
	// a question may wait for a replica that polls.
	presence    = 5 * time.Second
	questionAge = 3 * time.Second
	// takenUp is how long Ask waits for a replica to take the question up, and askEvery is how
	// often it polls.
	takenUp  = 250 * time.Millisecond
	askEvery = 8 * time.Millisecond
	// askSeldom is how often Ask polls while notifications work.
	askSeldom = 50 * time.Millisecond
)

// Peers is this server among those of a database. It is a memory.Peers, but for NewLive, and a
// memory.Followed.
type Peers struct {
	db      *pg.DB
	replica string       // the name of this process
	beats   atomic.Int64 // the number of beats
	notices notices
	follows follows
	work    sync.WaitGroup  // background goroutines
	behind  context.Context // of these
	stop    context.CancelFunc
}

// New returns a server among those whose tables are in a schema of the database. Stop it before
// the database is closed.
func New(db *pg.DB, schema string) *Peers {
	p := &Peers{
		db: db, replica: rand.Text(),
		notices: notices{channel: channelOf(schema), questions: make(chan memory.Question, maxQuestions), waiting: map[int64]chan struct{}{}},
		follows: follows{changed: make(chan struct{}, 1), theirs: map[string]following{}, pending: map[uint32]bool{}},
	}
	p.behind, p.stop = context.WithCancel(context.Background())
	return p
}

// Stop ends the work in the background and waits for it.
func (p *Peers) Stop() {
	p.stop()
	p.work.Wait()
}

// runUnsynced runs statements in one round trip and one transaction. The transaction may be lost if
// the database crashes.
func (p *Peers) runUnsynced(ctx context.Context, queue func(b *pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue("SET LOCAL synchronous_commit = off")
	queue(b)
	b.Queue("COMMIT")
	conn, err := p.db.Pool.Acquire(ctx)
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
func (p *Peers) Beat(ctx context.Context, seen []memory.Seen) (others bool, err error) {
	err = p.db.Read(ctx, "tell other servers", func(ctx context.Context) error {
		return p.runUnsynced(ctx, func(b *pgx.Batch) {
			b.Queue("INSERT INTO replica (id, seen_ms) VALUES ($1, "+nowMS+") ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms", p.replica)
			if len(seen) > 0 {
				b.Queue(`INSERT INTO agent_seen AS s (agent_no, asked_ms, spoken_ms)
					SELECT a.no, u.asked, u.spoken FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) u (project, id, asked, spoken)
						JOIN agent a ON a.project = u.project AND a.id = u.id AND a.status NOT IN (4, 6) ORDER BY a.no
					ON CONFLICT (agent_no) DO UPDATE SET asked_ms = greatest(s.asked_ms, excluded.asked_ms), spoken_ms = greatest(s.spoken_ms, excluded.spoken_ms)`,
					pg.Column(seen, func(v *memory.Seen) string { return pg.Stored(v.Project) }), pg.Column(seen, func(v *memory.Seen) string { return pg.Stored(v.ID) }),
					pg.Column(seen, func(v *memory.Seen) int64 { return v.AskedMS }), pg.Column(seen, func(v *memory.Seen) int64 { return v.SpokenMS }))
			}
			b.Queue("SELECT EXISTS (SELECT 1 FROM replica WHERE id <> $1 AND seen_ms > "+nowMS+" - $2)", p.replica, presence.Milliseconds()).
				QueryRow(func(row pgx.Row) error { return row.Scan(&others) })
			if p.beats.Add(1)%60 == 0 { // now and then
				b.Queue("DELETE FROM replica WHERE seen_ms < "+nowMS+" - $1", (10 * presence).Milliseconds())
				b.Queue("DELETE FROM question WHERE at_ms < "+nowMS+" - $1", (10 * questionAge).Milliseconds())
			}
		})
	})
	if err == nil && others && p.listens() {
		p.notices.start.Do(func() { p.work.Go(func() { p.listen(p.behind) }) })
		_ = p.notify(ctx, noteEcho, "") // without echoes the tables are polled
	}
	return others, err
}

// Seen implements memory.Peers.
func (p *Peers) Seen(ctx context.Context, project, id string) (seen memory.Seen, err error) {
	seen.Project, seen.ID = project, id
	err = p.db.Read(ctx, "read what other servers have seen", func(ctx context.Context) error {
		err := p.db.Pool.QueryRow(ctx, "SELECT s.asked_ms, s.spoken_ms FROM agent_seen s JOIN agent a ON a.no = s.agent_no WHERE a.project = $1 AND a.id = $2", pg.Stored(project), pg.Stored(id)).
			Scan(&seen.AskedMS, &seen.SpokenMS)
		if pg.NoRows(err) {
			return nil
		}
		return err
	})
	return seen, err
}

// Lease implements memory.Peers.
func (p *Peers) Lease(ctx context.Context, project, id string, what memory.Work, lease time.Duration) (giveBack func(), ok bool, err error) {
	var no, fence int64
	err = p.db.Transact(ctx, "lease an agent", func(ctx context.Context, tx pgx.Tx) error {
		ok = false
		err := tx.QueryRow(ctx, `INSERT INTO agent_lease AS l (agent_no, what, until_ms, fence) SELECT no, $4, `+nowMS+` + $3, 1 FROM agent WHERE project = $1 AND id = $2
			ON CONFLICT (agent_no, what) DO UPDATE SET until_ms = excluded.until_ms, fence = l.fence + 1 WHERE l.until_ms <= `+nowMS+` RETURNING agent_no, fence`,
			pg.Stored(project), pg.Stored(id), lease.Milliseconds(), string(what)).Scan(&no, &fence)
		if pg.NoRows(err) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil || !ok {
		return nil, false, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.db.Timeout)
		defer cancel()
		// If this fails, the lease expires. If another replica has taken the lease over, its fence
		// differs.
		_, _ = p.db.Pool.Exec(ctx, "UPDATE agent_lease SET until_ms = 0 WHERE agent_no = $1 AND what = $3 AND fence = $2", no, fence, string(what))
	}, true, nil
}

// Ask implements memory.Peers.
func (p *Peers) Ask(ctx context.Context, q memory.Question) (r memory.Reply, err error) {
	no, err := p.ask(ctx, q)
	if err != nil || no == nil || q.Tell {
		return r, err
	}
	woken, leave := p.notices.wait(*no)
	defer leave()
	began := time.Now()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	taken, done := false, false // by a replica
	for looked := (time.Time{}); !done; {
		select {
		case <-ctx.Done():
			return r, fault.Ended(ctx)
		case <-woken:
		case <-tick.C:
			if !taken && time.Since(began) > takenUp {
				return r, nil
			}
			if p.notices.arrive() && time.Since(looked) < askSeldom {
				continue
			}
		}
		looked = time.Now()
		err := p.db.Read(ctx, "wait for other servers", func(ctx context.Context) error {
			return p.db.Pool.QueryRow(ctx, "SELECT taken, done, foreign_text, phase, turns FROM question WHERE no = $1", *no).Scan(&taken, &done, &r.Foreign, &r.Phase, &r.Turns)
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// ask stores a question and notifies the other replicas. no is nil if no other replica is running.
func (p *Peers) ask(ctx context.Context, q memory.Question) (no *int64, err error) {
	var heard *string
	if q.Heard != nil {
		text := pg.Stored(*q.Heard)
		heard = &text
	}
	err = p.withNotice(ctx, "ask other servers", func(b *pgx.Batch, tell bool) {
		no = nil
		args := []any{p.replica, pg.Stored(q.Project), pg.Stored(q.ID), q.Cause, q.Before, q.TurnID, heard, q.Tell, presence.Milliseconds()}
		told := "''"
		if tell {
			told = "pg_notify($10, '" + noteQuestion + " ' || $1 || ' ' || no)::text"
			args = append(args, p.notices.channel)
		}
		b.Queue(`WITH q AS (INSERT INTO question (at_ms, sender, project, agent_id, cause, before_seq, turn, heard, tell, taken, done, foreign_text, phase)
			SELECT `+nowMS+`, $1, $2, $3, $4, $5, $6, $7, $8, false, false, false, 0 WHERE EXISTS (SELECT 1 FROM replica WHERE id <> $1 AND seen_ms > `+nowMS+` - $9) RETURNING no)
			SELECT no, `+told+` FROM q`, args...).QueryRow(func(row pgx.Row) error {
			var none string
			if err := row.Scan(&no, &none); !pg.NoRows(err) {
				return err
			}
			return nil
		})
	})
	return no, err
}

// Asked implements memory.Peers.
func (p *Peers) Asked(ctx context.Context) ([]memory.Question, error) {
	return p.questions(ctx, "at_ms > "+nowMS+" - $2 AND NOT done", questionAge.Milliseconds())
}

// questions reads questions of other replicas. $2 in where is arg.
func (p *Peers) questions(ctx context.Context, where string, arg any) ([]memory.Question, error) {
	return pg.ReadAll(ctx, p.db, "look for questions", func(row pgx.CollectableRow) (q memory.Question, err error) {
		err = row.Scan(&q.No, &q.From, &q.Project, &q.ID, &q.Cause, &q.Before, &q.TurnID, &q.Heard, &q.Tell)
		pg.Show(&q.Project, &q.ID)
		if q.Heard != nil {
			pg.Show(q.Heard)
		}
		return q, err
	}, "SELECT no, sender, project, agent_id, cause, before_seq, turn, heard, tell FROM question WHERE sender <> $1 AND "+where+" ORDER BY no LIMIT 1000", p.replica, arg)
}

// Take implements memory.Peers.
func (p *Peers) Take(ctx context.Context, q memory.Question) error {
	return p.answer(ctx, "take a question up", q, "UPDATE question SET taken = true WHERE no = $1", q.No)
}

// Reply implements memory.Peers.
func (p *Peers) Reply(ctx context.Context, q memory.Question, r memory.Reply) error {
	return p.answer(ctx, "answer a question", q,
		"UPDATE question SET taken = true, done = true, foreign_text = $2, phase = $3, turns = $4 WHERE no = $1", q.No, r.Foreign, r.Phase, r.Turns)
}

// answer updates a question and notifies the replica that asked it.
func (p *Peers) answer(ctx context.Context, what string, q memory.Question, sql string, args ...any) error {
	return p.withNotice(ctx, what, func(b *pgx.Batch, tell bool) {
		b.Queue(sql, args...)
		if tell {
			b.Queue("SELECT pg_notify($1, $2)", p.notices.channel, fmt.Sprint(noteReply, " ", q.From, " ", q.No))
		}
	})
}

// Revisions implements memory.Peers.
func (p *Peers) Revisions(ctx context.Context, projects, ids []string) ([]int64, error) {
	return pg.ReadAll(ctx, p.db, "read revisions", pgx.RowTo[int64], `SELECT coalesce(h.rev, -1) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (project, id, ord)
		LEFT JOIN agent a ON a.project = u.project AND a.id = u.id LEFT JOIN agent_head h ON h.agent_no = a.no ORDER BY u.ord`, pg.StoredAll(projects), pg.StoredAll(ids))
}
