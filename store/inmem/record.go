package inmem

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

var _ record.Store = (*Store)(nil)

// records is all spaces that hold records or deletions.
type records struct {
	spaces map[record.Space]*recordSpace
	// The revision from which new spaces of a project begin: higher than those of all that are
	// gone.
	floors map[string]int64
}

// recordSpace is one space. Its records by ID include the deleted ones.
type recordSpace struct {
	state record.State
	rows  map[string]record.Record
	words map[string]map[string]bool // by ID; nil for records without
}

func newRecords() records {
	return records{spaces: map[record.Space]*recordSpace{}, floors: map[string]int64{}}
}

// space returns a space for reading.
func (r *records) space(at record.Space) *recordSpace {
	if space := r.spaces[at]; space != nil {
		return space
	}
	floor := r.floors[at.Project]
	return &recordSpace{state: record.State{Rev: floor, CompactedRev: floor}}
}

// own returns a space for writing.
func (r *records) own(at record.Space) *recordSpace {
	space := r.space(at)
	if space.rows == nil {
		space.rows, space.words = map[string]record.Record{}, map[string]map[string]bool{}
		r.spaces[at] = space
	}
	return space
}

// drop removes a space.
func (r *records) drop(at record.Space) {
	r.floors[at.Project] = max(r.floors[at.Project], r.spaces[at].state.Rev+1)
	delete(r.spaces, at)
}

// ChangeRecords implements record.Store.
func (s *Store) ChangeRecords(ctx context.Context, at record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (record.State, error) {
	if err := record.Check(at, changes); err != nil {
		return record.State{}, err
	}
	if err := s.enter(ctx); err != nil {
		return record.State{}, err
	}
	defer s.mu.Unlock()
	space := s.records.space(at)
	next, changes, err := record.Decide(space.state, changes, limit, func(id string) (rev, size int64) {
		if row, there := space.rows[id]; there && !row.Deleted {
			rev, size = row.Rev, row.Size()
		}
		return rev, size
	})
	if err != nil {
		return record.State{}, err
	}
	if err := s.enqueue(memory.Ref{Project: at.Project}, events); err != nil {
		return record.State{}, err
	}
	if len(changes) == 0 {
		return next, nil
	}
	space = s.records.own(at)
	space.state = next
	for _, c := range changes {
		space.rows[c.ID] = record.Record{ID: c.ID, Rev: next.Rev, UpdatedMS: nowMS, Body: bytes.Clone(c.Body), Deleted: c.Body == nil}
		delete(space.words, c.ID)
		if s.Terms == nil || c.Body == nil {
			continue
		}
		words := map[string]bool{}
		for _, w := range s.Terms(at, c.Body) {
			words[w] = true
		}
		space.words[c.ID] = words
	}
	return next, nil
}

// Record implements record.Store.
func (s *Store) Record(ctx context.Context, at record.Space, id string) (record.Record, error) {
	if err := s.enter(ctx); err != nil {
		return record.Record{}, err
	}
	defer s.mu.Unlock()
	row, there := s.records.space(at).rows[id]
	if !there || row.Deleted {
		return record.Record{}, record.ErrNoRecord(id)
	}
	row.Body = bytes.Clone(row.Body)
	return row, nil
}

// Records implements record.Store.
func (s *Store) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	if err := s.enter(ctx); err != nil {
		return nil, record.State{}, err
	}
	defer s.mu.Unlock()
	space := s.records.space(at)
	list := slices.SortedFunc(maps.Values(space.rows), func(a, b record.Record) int {
		if q.ByRev && a.Rev != b.Rev {
			return cmp.Compare(a.Rev, b.Rev)
		}
		return cmp.Compare(a.ID, b.ID)
	})
	list = slices.DeleteFunc(list, func(r record.Record) bool {
		return q.ByRev && r.Rev <= q.AfterRev || !q.ByRev && (r.Deleted || r.ID <= q.AfterID)
	})
	n := min(len(list), max(q.Limit, 1))
	for q.ByRev && n < len(list) && list[n].Rev == list[n-1].Rev {
		n++
	}
	list = list[:n]
	for i := range list {
		list[i].Body = bytes.Clone(list[i].Body)
	}
	return list, space.state, nil
}

// FindRecords implements record.Store.
func (s *Store) FindRecords(ctx context.Context, at record.Space, q record.Find) (found record.Found, err error) {
	if err := s.enter(ctx); err != nil {
		return record.Found{}, err
	}
	defer s.mu.Unlock()
	space := s.records.space(at)
	ids, with, err := record.Rank(q, space.state.Count, func(words [][]string) (list []record.Match, err error) {
		for id, has := range space.words {
			lacks := func(forms []string) bool { return !slices.ContainsFunc(forms, func(w string) bool { return has[w] }) }
			if !slices.ContainsFunc(words, lacks) && len(list) < record.MaxMatches {
				row := space.rows[id]
				list = append(list, record.Match{ID: id, Size: row.Size()})
			}
		}
		return list, nil
	})
	for _, id := range ids {
		row := space.rows[id]
		row.Body = bytes.Clone(row.Body)
		found.Records = append(found.Records, row)
	}
	found.Count, found.With = space.state.Count, with
	return found, err
}

// RecordSpaces implements record.Store.
func (s *Store) RecordSpaces(ctx context.Context, project, prefix string, after record.Space, limit int) ([]record.Space, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []record.Space
	for at, space := range s.records.spaces {
		if at.Project == project && strings.HasPrefix(at.Name, prefix) && space.state.Count > 0 && (at.Name > after.Name || at.Name == after.Name && at.User > after.User) {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b record.Space) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.User, b.User)) })
	return list[:min(len(list), max(limit, 1))], nil
}

// EraseRecords implements record.Store.
func (s *Store) EraseRecords(ctx context.Context, project, user, prefix string) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for at, space := range s.records.spaces {
		if at.Project == project && strings.HasPrefix(at.Name, prefix) && (user == "" || at.User == user) {
			n += int(space.state.Count)
			s.records.drop(at)
		}
	}
	return n, nil
}

// SweepRecords implements record.Store.
func (s *Store) SweepRecords(ctx context.Context, beforeMS int64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for at, space := range s.records.spaces {
		for id, row := range space.rows {
			if row.Deleted && row.UpdatedMS < beforeMS {
				delete(space.rows, id)
				space.state.CompactedRev = max(space.state.CompactedRev, row.Rev)
			}
		}
		if len(space.rows) == 0 {
			s.records.drop(at)
		}
	}
	return nil
}
