package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

var _ memory.DueCalls = (*Store)(nil)

// dueChanges are the agents that a batch has ended, or changed after their end.
type dueChanges struct {
	projects, ids []string
	nos, revs     []int64
}

// take adds an agent that has ended. The last head of an agent counts.
func (d *dueChanges) take(no int64, h *memory.Head) {
	if !h.Agent.Status.Ended() {
		return
	}
	if n := len(d.nos); n > 0 && d.nos[n-1] == no {
		d.revs[n-1] = h.Rev
		return
	}
	d.projects, d.ids = append(d.projects, pg.Stored(h.Agent.Project)), append(d.ids, pg.Stored(h.Agent.ID))
	d.nos, d.revs = append(d.nos, no), append(d.revs, h.Rev)
}

// write adds the part that notes them.
func (d *dueChanges) write(st *pg.Parts) {
	if len(d.nos) > 0 {
		st.With("due", `INSERT INTO report_due (project, agent_no, id, rev) SELECT u.* FROM unnest(?::text[], ?::bigint[], ?::text[], ?::bigint[]) u (project, agent_no, id, rev)
			WHERE u.`+found+" ON CONFLICT (project, agent_no) DO UPDATE SET rev = excluded.rev", d.projects, d.nos, d.ids, d.revs)
	}
}

// dueErased notes agents that are about to be erased, if they have ended.
const dueErased = `INSERT INTO report_due (project, agent_no, id, rev) SELECT project, no, id, 0 FROM agent WHERE no = ANY($1) AND status IN (4, 6)
	ON CONFLICT (project, agent_no) DO UPDATE SET rev = 0`

// DueProjects implements memory.DueCalls.
func (s *Store) DueProjects(ctx context.Context) (list []string, err error) {
	err = s.db.Read(ctx, "find calls to count", func(ctx context.Context) (err error) {
		list, err = pg.Collect(ctx, s.db.Pool, pgx.RowTo[string], `WITH RECURSIVE p AS (
			(SELECT project FROM report_due ORDER BY project LIMIT 1)
			UNION ALL SELECT (SELECT d.project FROM report_due d WHERE d.project > p.project ORDER BY d.project LIMIT 1) FROM p WHERE p.project IS NOT NULL)
			SELECT project FROM p WHERE project IS NOT NULL`)
		return err
	})
	for i := range list {
		pg.Show(&list[i])
	}
	return list, err
}

// Due implements memory.DueCalls.
func (s *Store) Due(ctx context.Context, project string, after int64, limit int) (list []memory.Due, err error) {
	err = s.db.Read(ctx, "find calls to count", func(ctx context.Context) (err error) {
		list, err = pg.Collect(ctx, s.db.Pool, func(row pgx.CollectableRow) (memory.Due, error) {
			d := memory.Due{Ref: memory.Ref{Project: project}}
			err := row.Scan(&d.No, &d.ID, &d.Rev)
			pg.Show(&d.ID)
			return d, err
		}, "SELECT agent_no, id, rev FROM report_due WHERE project = $1 AND agent_no > $2 AND "+statements.NoImport+" ORDER BY agent_no LIMIT $3", pg.Stored(project), after, limit)
		return err
	})
	return list, err
}

// Counted implements memory.DueCalls.
func (s *Store) Counted(ctx context.Context, project string, list []memory.Due) error {
	var nos, revs []int64
	for _, d := range list {
		nos, revs = append(nos, d.No), append(revs, d.Rev)
	}
	return s.db.Transact(ctx, "note counted calls", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM report_due d USING unnest($2::bigint[], $3::bigint[]) u (no, rev)
			WHERE d.project = $1 AND d.agent_no = u.no AND d.rev = u.rev`, pg.Stored(project), nos, revs)
		return err
	})
}
