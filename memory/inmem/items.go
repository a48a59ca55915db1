package inmem

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory"
)

var _ memory.ItemStore = (*Store)(nil)

// itemPlace is where an item is. agent is the one that it was written to; another may have its key
// later.
type itemPlace struct {
	key   key
	agent *agent
	seq   int64
}

// noteItems notes the items of a change. The caller holds mu.
func (s *Store) noteItems(k key, a *agent, c memory.Change) {
	for _, list := range [][]memory.Message{c.Append, c.Replace} {
		for i := range list {
			p := itemPlace{k, a, list[i].Seq}
			if _, ok := list[i].ItemRow(k.project, k.id); ok && !slices.Contains(s.items, p) {
				s.items = append(s.items, p)
			}
		}
	}
}

// item returns the item at a place of the list, unless it is no longer one of the project. The
// caller holds mu.
func (s *Store) item(project string, at int) (memory.StoredItem, bool) {
	p := s.items[at]
	i, ok := place(p.agent.list, p.seq)
	if !ok || memory.ItemProject(p.key.project) != project || s.agents[p.key] != p.agent {
		return memory.StoredItem{}, false
	}
	m := p.agent.list[i]
	row, ok := m.ItemRow(p.key.project, p.key.id)
	return memory.StoredItem{No: int64(at) + 1, Project: p.key.project, AgentID: p.key.id, Message: m, Row: row}, ok
}

// Items returns a project's items, newest first.
func (s *Store) Items(ctx context.Context, project string, q memory.ItemQuery) ([]memory.StoredItem, int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	from := len(s.items)
	if q.Before > 0 {
		from = int(q.Before) - 1
	}
	var out []memory.StoredItem
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
func (s *Store) Item(ctx context.Context, project, id string) (memory.StoredItem, error) {
	if err := s.enter(ctx); err != nil {
		return memory.StoredItem{}, err
	}
	defer s.mu.Unlock()
	for i := range s.items {
		if it, ok := s.item(project, i); ok && it.Row.ID == id {
			return it, nil
		}
	}
	return memory.StoredItem{}, memory.ErrNoItem(id)
}
