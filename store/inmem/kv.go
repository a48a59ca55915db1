package inmem

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

var (
	_ kv.Source  = (*Store)(nil)
	_ kv.Evicter = (*Store)(nil)
)

// inSpace runs fn under the store's lock on the entries of a space that have not expired.
func (s *Store) inSpace(ctx context.Context, space kv.Space, nowMS int64, fn func(map[string]kept) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if space.Agent != "" {
		if _, err := s.find(space.Project, space.Agent); err != nil {
			return err
		}
	}
	return fn(s.entries(space, nowMS))
}

// entries returns a space's entries without those that have expired. The caller holds mu.
func (s *Store) entries(space kv.Space, nowMS int64) map[string]kept {
	list := s.spaces[space]
	maps.DeleteFunc(list, func(_ string, e kept) bool { return e.ExpiresMS <= nowMS })
	return list
}

// kept is an entry with how it was used.
type kept struct {
	kv.Entry
	usedMS, uses int64
}

func (e *kept) key() kv.Key {
	return kv.Key{Key: e.Key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS, Pinned: e.Pinned, UsedMS: e.usedMS, Uses: e.uses}
}

// PutKeys implements kv.Store.
func (s *Store) PutKeys(ctx context.Context, space kv.Space, entries []kv.Entry, limit kv.Limit, nowMS int64) error {
	return s.inSpace(ctx, space, nowMS, func(list map[string]kept) error {
		return s.put(space, list, entries, limit)
	})
}

// put stores entries in a space. The caller holds mu.
func (s *Store) put(space kv.Space, list map[string]kept, entries []kv.Entry, limit kv.Limit) error {
	if space.Agent != "" {
		if err := s.agents[memory.Ref{Project: space.Project, ID: space.Agent}].head.Agent.MustBeActive(fault.Stopped); err != nil {
			return err
		}
	}
	keys, size, grows := int64(len(list)), int64(0), false
	for _, e := range list {
		size += e.Size()
	}
	for _, e := range entries {
		old, replaced := list[e.Key]
		if !replaced {
			keys, grows = keys+1, true
		} else {
			size -= old.Size()
		}
		size += e.Size()
	}
	if !grows && space.Agent == "" {
		keys = 0 // an entry may be replaced however many there are
	}
	if err := limit.Check(space, keys, size); err != nil {
		return err
	}
	if list == nil {
		list = map[string]kept{}
		s.spaces[space] = list
	}
	for _, e := range entries {
		e.Value = bytes.Clone(e.Value)
		list[e.Key] = kept{e, e.UpdatedMS, list[e.Key].uses + 1}
	}
	return nil
}

// UpdateKey implements kv.Store.
func (s *Store) UpdateKey(ctx context.Context, space kv.Space, key string, once kv.Once, limit kv.Limit, nowMS int64, decide func(*kv.Entry) (kv.Entry, error)) (e kv.Entry, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kept) (err error) {
		marks := space.Marks()
		if m, ok := s.entries(marks, nowMS)[once.ID]; ok {
			e, err = once.Repeat(key, m.Value)
			return err
		}
		var old *kv.Entry
		if there, ok := list[key]; ok {
			there.Value = bytes.Clone(there.Value)
			old = &there.Entry
		}
		if e, err = decide(old); err != nil {
			return err
		}
		if err = s.put(space, list, []kv.Entry{e}, limit); err != nil || once.ID == "" {
			return err
		}
		m, err := once.Mark(&e, nowMS)
		if err == nil {
			err = s.put(marks, s.spaces[marks], []kv.Entry{m}, kv.Limit{})
		}
		return err
	})
	return e, err
}

// GetKeys implements kv.Store.
func (s *Store) GetKeys(ctx context.Context, space kv.Space, keys []string, nowMS int64) (found []kv.Entry, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kept) error {
		for _, key := range keys {
			if e, ok := list[key]; ok {
				e.Value = bytes.Clone(e.Value)
				found = append(found, e.Entry)
			}
		}
		return nil
	})
	return found, err
}

// KeySpaces implements kv.Store.
func (s *Store) KeySpaces(ctx context.Context, project string) (names []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for space, list := range s.spaces {
		if space.Project == project && space.Name != "" && len(list) > 0 {
			names = append(names, space.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Spaces implements kv.Lister.
func (s *Store) Spaces(ctx context.Context) (spaces []kv.Space, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for space, list := range s.spaces {
		if (space.Name != "" || space.Agent != "") && len(list) > 0 {
			spaces = append(spaces, space)
		}
	}
	return spaces, nil
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (found bool, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kept) error {
		_, found = list[key]
		delete(list, key)
		return nil
	})
	return found, err
}

// ListKeys implements kv.Store.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kept) error {
		// By bytes, which in UTF-8 is by code point.
		for _, key := range slices.Sorted(maps.Keys(list)) {
			e := list[key]
			page.Total, page.Bytes = page.Total+1, page.Bytes+e.Size()
			if key > after && len(page.Keys) < max(limit, 1) {
				page.Keys = append(page.Keys, e.key())
			}
		}
		return nil
	})
	return page, err
}

// ClearKeys implements kv.Store.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (n int, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kept) error {
		n = len(list)
		delete(s.spaces, space)
		return nil
	})
	return n, err
}

// EvictKeys implements kv.Evicter.
func (s *Store) EvictKeys(ctx context.Context, space kv.Space, keys []kv.Key) (n int, err error) {
	err = s.inSpace(ctx, space, 0, func(list map[string]kept) error {
		for _, k := range keys {
			if e, ok := list[k.Key]; ok && !e.Pinned && e.UpdatedMS == k.UpdatedMS {
				delete(list, k.Key)
				n++
			}
		}
		return nil
	})
	return n, err
}

// TouchKeys implements kv.Evicter.
func (s *Store) TouchKeys(ctx context.Context, space kv.Space, uses []kv.Use) error {
	return s.inSpace(ctx, space, 0, func(list map[string]kept) error {
		for _, u := range uses {
			if e, ok := list[u.Key]; ok {
				e.usedMS, e.uses = max(e.usedMS, u.UsedMS), e.uses+u.Uses
				list[u.Key] = e
			}
		}
		return nil
	})
}

// SweepKeys implements kv.Store.
func (s *Store) SweepKeys(ctx context.Context, nowMS int64) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for space, list := range s.spaces {
		n += len(list) - len(s.entries(space, nowMS))
	}
	return n, nil
}
