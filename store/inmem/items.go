package inmem

import (
	"context"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

var _ memories.Store = (*Store)(nil)

// itemPlace is where an item is. agent is the one that it was written to; another may have its key
// later.
type itemPlace struct {
	key   memory.Ref
	agent *agent
	seq   int64
}

// noteItems notes the items of a change. The caller holds mu.
func (s *Store) noteItems(k memory.Ref, a *agent, c memory.Change) {
	for _, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			p := itemPlace{k, a, list[i].Seq}
			if _, ok := memories.RowOf(&list[i], k.Project, k.ID); ok && !slices.Contains(s.items, p) {
				s.items = append(s.items, p)
			}
		}
	}
}

// item returns the item at a place of the list, unless it is no longer one of the project. The
// caller holds mu.
func (s *Store) item(project string, at int) (memories.Item, bool) {
	p := s.items[at]
	i, ok := place(p.agent.list, p.seq)
	if !ok || memories.ProjectOf(p.key.Project) != project || s.agents[p.key] != p.agent {
		return memories.Item{}, false
	}
	m := p.agent.list[i]
	row, ok := memories.RowOf(&m, p.key.Project, p.key.ID)
	return memories.Item{No: int64(at) + 1, Project: p.key.Project, AgentID: p.key.ID, Message: m, Row: row}, ok
}

// Items returns a project's items, newest first.
func (s *Store) Items(ctx context.Context, project string, q memories.Query) ([]memories.Item, int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	from := len(s.items)
	if q.Before > 0 {
		from = int(q.Before) - 1
	}
	var out []memories.Item
	for i, looked := from-1, 0; i >= 0; i-- {
		if looked == max(q.Limit, 1) {
			return out, int64(i) + 2, nil
		}
		it, ok := s.item(project, i)
		if !ok {
			continue
		}
		looked++
		fits := true
		for _, id := range [][2]string{{q.UserID, it.Row.UserID}, {q.SessionID, it.Row.SessionID}, {q.TaskID, it.Row.TaskID}, {q.AgentID, it.Row.AgentID}} {
			fits = fits && (id[0] == "" || id[0] == id[1])
		}
		if fits {
			out = append(out, it)
		}
	}
	return out, 0, nil
}

// Item returns the first item with an ID.
func (s *Store) Item(ctx context.Context, project, id string) (memories.Item, error) {
	if err := s.enter(ctx); err != nil {
		return memories.Item{}, err
	}
	defer s.mu.Unlock()
	for i := range s.items {
		if it, ok := s.item(project, i); ok && it.Row.ID == id {
			return it, nil
		}
	}
	return memories.Item{}, memories.ErrNotFound(id)
}

// AgentsOf returns the agents with messages of a user.
func (s *Store) AgentsOf(ctx context.Context, project, user string) (out []memories.AgentVersion, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	seen := map[memory.Ref]bool{}
	for i := range s.items {
		k := s.items[i].key
		if it, ok := s.item(project, i); ok && it.Row.UserID == user && k.Project == project && !seen[k] {
			seen[k] = true
			a := s.agents[k]
			out = append(out, memories.AgentVersion{ID: k.ID, Version: memory.Version{No: int64(a.no), Rev: a.head.Rev, Ver: a.ver}})
		}
	}
	return out, nil
}

// Users returns the users of a project's items.
func (s *Store) Users(ctx context.Context, project, after string, limit int) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	seen := map[string]bool{}
	for i := range s.items {
		if it, ok := s.item(project, i); ok && it.Row.UserID > after {
			seen[it.Row.UserID] = true
		}
	}
	users := slices.Sorted(maps.Keys(seen))
	return users[:min(limit, len(users))], nil
}
