package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

// Load implements memory.Store. Loads that come together share round trips.
func (s *Store) Load(ctx context.Context, project, id string, n int, known memory.Version) (st memory.Stored, err error) {
	unchanged := false
	err = s.db.Read(ctx, "read agent", func(ctx context.Context) error {
		if known.No != 0 {
			ver, endpoints, err := s.versionOf(ctx, known.No)
			if err == nil {
				err = s.freshEndpoints(ctx, s.db.Pool, endpoints)
			}
			if unchanged = err == nil && ver == known.Ver; err != nil || unchanged {
				return err
			}
		}
		l, err := s.loads.Do(ctx, s.db.Timeout, load{k: memory.Ref{Project: project, ID: id}, n: max(n, 1)})
		switch {
		case err != nil:
			return err
		case l.stored.No == 0:
			return noAgent(id)
		}
		if st = l.stored; n <= 0 {
			st.Tail = nil
		}
		return s.freshEndpoints(ctx, s.db.Pool, l.endpoints)
	})
	if unchanged && err == nil {
		err = memory.ErrUnchanged
	}
	return st, err
}

// version is the version of an agent's row.
type version struct {
	no        int64
	ver       int64 // -1: the row is gone
	endpoints int64 // the number of changes of endpoints
}

// versionOf returns the ver of an agent's row and the number of endpoints' changes, as of a moment
// after the call began.
func (s *Store) versionOf(ctx context.Context, no int64) (ver, endpoints int64, err error) {
	v, err := s.versions.Do(ctx, s.db.Timeout, version{no: no})
	return v.ver, v.endpoints, err
}

// askVersions reads the versions of agents.
func (s *Store) askVersions(ctx context.Context, list []*pg.Question[version]) {
	nos := make([]int64, len(list))
	for i, q := range list {
		nos[i] = q.About.no
	}
	vers := make(map[int64]int64, len(nos))
	var endpoints, no, ver int64
	err := pg.Each(ctx, s.db.Pool, []any{&endpoints, &no, &ver}, func() error { vers[no] = ver; return nil },
		`SELECT (SELECT n FROM counter WHERE key = 'endpoints'), u.no, coalesce(h.ver, -1) FROM unnest($1::bigint[]) u (no) LEFT JOIN agent_head h ON h.agent_no = u.no`, nos)
	for _, q := range list {
		q.About.ver, q.About.endpoints, q.Err = vers[q.About.no], endpoints, err
	}
}

// load is an agent that is to be read.
type load struct {
	k         memory.Ref
	n         int
	stored    memory.Stored // No is 0 if there is none
	endpoints int64
}

const (
	loadHeads = "SELECT " + agentColumns + ", " + headColumns + `, (SELECT n FROM counter WHERE key = 'endpoints'), u.ord
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u (project, id, ord)
		JOIN agent a ON a.project = u.project AND a.id = u.id JOIN agent_head h ON h.agent_no = a.no`
	loadTails = "SELECT u.ord, " + messageColumns + ` FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY u (project, id, n, ord)
		JOIN agent a ON a.project = u.project AND a.id = u.id
		CROSS JOIN LATERAL (SELECT * FROM message m WHERE m.agent_no = a.no ORDER BY m.seq DESC LIMIT u.n) m ORDER BY u.ord, m.seq`
)

// askLoads reads agents as of one moment, in one round trip.
func (s *Store) askLoads(ctx context.Context, list []*pg.Question[load]) {
	projects, ids, most := make([]string, len(list)), make([]string, len(list)), make([]int64, len(list))
	for i, q := range list {
		projects[i], ids[i], most[i] = pg.Stored(q.About.k.Project), pg.Stored(q.About.k.ID), int64(q.About.n)
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	b.Queue(loadHeads, projects, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var at int
			var st memory.Stored
			var endpoints int64
			h := &st.Head
			h.Agent = new(memory.Agent)
			// What cannot be read is that agent's error alone.
			err := s.scanAgent(rows, h.Agent, &st.No, &st.Ver, &h.Rev, &h.NextSeq, &h.LastTurn, tallyOf{h}, &endpoints, &at)
			if at == 0 {
				return err
			}
			q := list[at-1]
			q.About.stored, q.About.endpoints, q.Err = st, endpoints, err
		}
		return rows.Err()
	})
	b.Queue(loadTails, projects, ids, most).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var at int
			m, err := s.scanMessage(rows, &at)
			if at == 0 {
				return err
			}
			q := list[at-1]
			if err != nil {
				q.Err = err
			}
			st := &q.About.stored
			st.Tail = append(st.Tail, m)
			st.Head.Last = m
		}
		return rows.Err()
	})
	b.Queue("COMMIT")
	conn, err := s.db.Pool.Acquire(ctx)
	if err == nil {
		err = conn.SendBatch(ctx, b).Close()
		conn.Release() // which drops a connection whose transaction is still open
	}
	if err != nil {
		for _, q := range list {
			q.Err = err
		}
	}
}

// Page implements memory.Store.
func (s *Store) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	sql, args := "SELECT "+messageColumns+" FROM message m WHERE m.agent_no = $1", []any{no}
	switch {
	case len(q.IDs) > 0:
		sql, args = sql+" AND m.client_id = ANY($2)", append(args, pg.StoredAll(q.IDs))
	case q.Turn != nil:
		sql, args = sql+" AND m.turn = $2", append(args, *q.Turn)
	default:
		sql, args = sql+" AND m.seq > $2 AND m.rev > $3", append(args, q.AfterSeq, q.AfterRev)
	}
	if q.HistoryOnly {
		sql += " AND m.shown"
	}
	args = append(args, max(q.Limit, 1))
	sql += fmt.Sprintf(" ORDER BY m.seq LIMIT $%d", len(args))
	var list []memory.Message
	err := s.db.Read(ctx, "read messages", func(ctx context.Context) error {
		list = nil
		rows, err := s.db.Pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for size := int64(0); (q.Bytes == 0 || size < q.Bytes) && rows.Next(); {
			m, err := s.scanMessage(rows)
			if err != nil {
				return err
			}
			list, size = append(list, m), size+m.Bytes()
		}
		rows.Close()
		return rows.Err()
	})
	return list, err
}
