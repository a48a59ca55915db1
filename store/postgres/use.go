package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

// Table project_use holds what projects use, so that no reader has to count it: of agents that have
// ended, and the bytes of records and of namespaces. Live agents are few, and are counted.

// addBytes adds bytes ($2) to what a project ($1) uses.
const addBytes = "INSERT INTO project_use (project, bytes) SELECT $1, $2::bigint WHERE $2::bigint <> 0"

// Of rows of table kv_count: the project of a namespace, and whether it is one that counts. What
// an agent or a saved conversation has is not counted.
const (
	spaceProject = "split_part(project, '/', 1)"
	isSpace      = "strpos(project, '/') > 0 AND project NOT LIKE '~%'"
)

// addKeys adds bytes ($2) of keys and values to what the project of a namespace ($1) uses.
const addKeys = "INSERT INTO project_use (project, bytes) SELECT " + spaceProject + ", size FROM (SELECT $1::text AS project, $2::bigint AS size) k WHERE size <> 0 AND " + isSpace

// useErased takes away what is counted of agents that are about to be erased.
const useErased = `INSERT INTO project_use (project, stopped, failed, messages, bytes)
	SELECT a.project, -count(*) FILTER (WHERE a.status = 4), -count(*) FILTER (WHERE a.status = 6), -sum(h.next_seq - 1), -sum(h.written)
	FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.no = ANY($1) AND a.status IN (4, 6) GROUP BY a.project`

// useChanges are the agents of a batch that had ended before it, or have after it.
type useChanges struct {
	nos, before, after, seqs, written []int64
	projects                          []string
}

// take adds the changes of an agent: its head after them, and how many bytes they write.
func (u *useChanges) take(no int64, before memory.Status, h *memory.Head, written int64) {
	if !before.Ended() && !h.Agent.Status.Ended() {
		return
	}
	u.nos, u.before, u.after = append(u.nos, no), append(u.before, int64(before)), append(u.after, int64(h.Agent.Status))
	u.seqs, u.written = append(u.seqs, h.NextSeq), append(u.written, written)
	u.projects = append(u.projects, pg.Stored(h.Agent.Project))
}

// write adds the part that counts them. The heads that it reads are those of before the statement.
func (u *useChanges) write(st *pg.Parts) {
	if len(u.nos) > 0 {
		st.With("used", `INSERT INTO project_use (project, stopped, failed, messages, bytes)
			SELECT u.project, (u.after = 4)::int - (u.before = 4)::int, (u.after = 6)::int - (u.before = 6)::int,
				CASE WHEN u.after IN (4, 6) THEN u.next_seq - 1 ELSE 0 END - CASE WHEN u.before IN (4, 6) THEN h.next_seq - 1 ELSE 0 END,
				CASE WHEN u.after IN (4, 6) THEN h.written + u.written ELSE 0 END - CASE WHEN u.before IN (4, 6) THEN h.written ELSE 0 END
			FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) u (agent_no, project, before, after, next_seq, written)
			JOIN agent_head h ON h.agent_no = u.agent_no WHERE u.`+found, u.nos, u.projects, u.before, u.after, u.seqs, u.written)
	}
}

// foldAbove is how many rows of project_use are left as they are.
const foldAbove = 1000

// Usage returns what each project has stored.
func (s *Store) Usage(ctx context.Context) ([]memory.Usage, error) {
	var rows int64
	list, err := pg.ReadAll(ctx, s.db, "count project usage", func(row pgx.CollectableRow) (u memory.Usage, err error) {
		err = row.Scan(&u.Project, &u.Agents, &u.Messages, &u.Bytes, &rows)
		pg.Show(&u.Project)
		return u, err
	}, `SELECT project, sum(live)::bigint, sum(messages)::bigint, sum(bytes)::bigint, (SELECT count(*) FROM project_use) FROM (
		SELECT a.project, 1 AS live, h.next_seq - 1 AS messages, h.written AS bytes
			FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.status NOT IN (4, 6)
		UNION ALL SELECT project, 0, messages, bytes FROM project_use) u GROUP BY project`)
	if err == nil && rows > foldAbove+int64(len(list)) {
		err = s.foldUse(ctx)
	}
	return list, err
}

// foldUse makes one row of the rows of each project that no other transaction has locked.
func (s *Store) foldUse(ctx context.Context) error {
	return s.db.Transact(ctx, "fold project usage", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH old AS (SELECT no FROM project_use ORDER BY no FOR UPDATE SKIP LOCKED),
			gone AS (DELETE FROM project_use WHERE no = ANY (ARRAY(SELECT no FROM old)) RETURNING project, stopped, failed, messages, bytes)
			INSERT INTO project_use (project, stopped, failed, messages, bytes)
				SELECT project, sum(stopped), sum(failed), sum(messages), sum(bytes) FROM gone GROUP BY project
				HAVING (sum(stopped), sum(failed), sum(messages), sum(bytes)) <> (0, 0, 0, 0)`)
		return err
	})
}

// Count implements memory.Store.
func (s *Store) Count(ctx context.Context) (out [memory.Statuses]int, err error) {
	err = s.db.Read(ctx, "count agents", func(ctx context.Context) error {
		out = [memory.Statuses]int{}
		var st, n int
		return pg.Each(ctx, s.db.Pool, []any{&st, &n}, func() error {
			if st >= 0 && st < len(out) {
				out[st] = n
			}
			return nil
		}, `SELECT status, count(*) FROM agent WHERE status NOT IN (4, 6) GROUP BY status
			UNION ALL SELECT 4, coalesce(sum(stopped), 0)::bigint FROM project_use UNION ALL SELECT 6, coalesce(sum(failed), 0)::bigint FROM project_use`)
	})
	return out, err
}
