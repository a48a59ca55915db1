package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

var _ memory.DueCalls = (*Store)(nil)

// due notes an agent that has ended as due for the reports.
func (t *tx) due(no int64, h *memory.Head) error {
	a := h.Agent
	if !a.Status.Ended() {
		return nil
	}
	_, err := t.Exec("INSERT INTO report_due (project, agent_no, id, rev) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET rev = excluded.rev", a.Project, no, a.ID, h.Rev)
	return err
}

// dueErased notes an agent that is about to be erased, if it has ended.
const dueErased = `INSERT INTO report_due (project, agent_no, id, rev) SELECT project, no, id, 0 FROM agent WHERE no = ? AND status IN (4, 6)
	ON CONFLICT DO UPDATE SET rev = 0`

// DueProjects implements memory.DueCalls.
func (s *Store) DueProjects(ctx context.Context) (list []string, err error) {
	err = s.db.Read(ctx, "find calls to count", func(c *dbfile.Conn) (err error) {
		list, err = dbfile.Collect(c, func(row dbfile.Row) (string, error) { return row.Text(0), nil }, `WITH RECURSIVE p (project) AS (
			SELECT min(project) FROM report_due UNION ALL SELECT (SELECT min(project) FROM report_due d WHERE d.project > p.project) FROM p WHERE p.project IS NOT NULL)
			SELECT project FROM p WHERE project IS NOT NULL`)
		return err
	})
	return list, err
}

// Due implements memory.DueCalls.
func (s *Store) Due(ctx context.Context, project string, after int64, limit int) (list []memory.Due, err error) {
	err = s.db.Read(ctx, "find calls to count", func(c *dbfile.Conn) (err error) {
		list, err = dbfile.Collect(c, func(row dbfile.Row) (memory.Due, error) {
			return memory.Due{Ref: memory.Ref{Project: project, ID: row.Text(1)}, No: row.Int(0), Rev: row.Int(2)}, nil
		}, "SELECT agent_no, id, rev FROM report_due WHERE project = ? AND agent_no > ? AND "+statements.NoImport+" ORDER BY agent_no LIMIT ?+0", project, after, int64(limit))
		return err
	})
	return list, err
}

// Counted implements memory.DueCalls.
func (s *Store) Counted(ctx context.Context, project string, list []memory.Due) error {
	return s.write(ctx, "note counted calls", func(t *tx) error {
		for _, d := range list {
			if _, err := t.Exec("DELETE FROM report_due WHERE project = ? AND agent_no = ? AND rev = ?", project, d.No, d.Rev); err != nil {
				return err
			}
		}
		return nil
	})
}
