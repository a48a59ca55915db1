package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

// Find returns the ID of an agent by one of its keys, or by the name under which it ended.
func (s *Store) Find(ctx context.Context, project string, by memory.Lookup) (id string, err error) {
	sql, arg := `SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = ? AND k.key = ?
		ORDER BY a.status IN (4, 6), a.no DESC LIMIT 1`, by.Key
	missing := fault.New(fault.NotFound, "no agent has the key %q", by.Key)
	if by.Ended != "" {
		sql, arg = `SELECT id FROM agent INDEXED BY agent_ended_name WHERE project = ? AND name = ? AND status IN (4, 6) AND name <> ''
			ORDER BY stop_ms DESC, no DESC LIMIT 1`, by.Ended
		missing = fault.New(fault.NotFound, "no agent of the name %q has ended", by.Ended)
	}
	err = s.db.Read(ctx, "find an agent", func(c *dbfile.Conn) error {
		row, err := c.First(sql, project, arg)
		if err == nil && row == nil {
			err = missing
		}
		if err == nil {
			id = row.Text(0)
		}
		return err
	})
	return id, err
}
