package sqlite

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// ByKey gives the id of the agent that a key finds.
func (s *Store) ByKey(ctx context.Context, project, callKey string) (string, error) {
	id := ""
	err := s.readers.do(ctx, func(c *conn) error {
		row, err := c.first(`SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = ? AND k.key = ?
			ORDER BY a.status IN (4, 6), a.no DESC LIMIT 1`, project, callKey)
		if err == nil && row != nil {
			id = text(row[0])
		}
		return err
	})
	if err != nil {
		return "", classify(err, "look for the key")
	}
	if id == "" {
		return "", fault.New(fault.NotFound, "no agent has the key %q", callKey)
	}
	return id, nil
}

// LastNamed gives the id of the agent of that name which ended last.
func (s *Store) LastNamed(ctx context.Context, project, name string) (string, error) {
	id := ""
	err := s.readers.do(ctx, func(c *conn) error {
		row, err := c.first(`SELECT id FROM agent INDEXED BY agent_ended_name WHERE project = ? AND name = ? AND status IN (4, 6) AND name <> ''
			ORDER BY stop_ms DESC, no DESC LIMIT 1`, project, name)
		if err == nil && row != nil {
			id = text(row[0])
		}
		return err
	})
	if err != nil {
		return "", classify(err, "look for the name")
	}
	if id == "" {
		return "", fault.New(fault.NotFound, "no agent of the name %q has ended", name)
	}
	return id, nil
}

// freeKeys fails where a live agent has one of a new agent's own keys.
func (g *group) freeKeys(a *memory.Agent) error {
	for _, k := range a.Settings.Call.Keys {
		row, err := g.w.first(`SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no
			WHERE k.project = ? AND k.key = ? AND k.shared = 0 AND a.status NOT IN (4, 6) LIMIT 1`, a.Project, k)
		if err != nil {
			return classify(err, "look for the key")
		}
		if row != nil {
			return memory.KeyTaken(k, text(row[0]))
		}
	}
	return nil
}

// writeKeys stores what finds a new agent.
func (g *group) writeKeys(no int64, a *memory.Agent) error {
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		for _, k := range keys {
			_, _, err := g.exec("insert key", "INSERT INTO agent_key (project, key, agent_no, shared) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", a.Project, k, no, int64(shared))
			if err != nil {
				return err
			}
			g.pages += 2
		}
	}
	return nil
}
