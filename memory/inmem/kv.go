package inmem

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
)

var _ kv.Store = (*Store)(nil)

// inSpace runs fn under the store's lock on the entries of a space that have not expired.
func (s *Store) inSpace(ctx context.Context, space kv.Space, nowMS int64, fn func(map[string]kv.Entry) error) error {
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
func (s *Store) entries(space kv.Space, nowMS int64) map[string]kv.Entry {
	list := s.spaces[space]
	maps.DeleteFunc(list, func(_ string, e kv.Entry) bool { return e.ExpiresMS <= nowMS })
	return list
}

// PutKey implements kv.Store.
func (s *Store) PutKey(ctx context.Context, space kv.Space, e kv.Entry, limit kv.Limit, nowMS int64) error {
	return s.inSpace(ctx, space, nowMS, func(list map[string]kv.Entry) error {
		if space.Agent != "" {
			if err := s.agents[key{space.Project, space.Agent}].head.Agent.MustBeActive(fault.Stopped); err != nil {
				return err
			}
		}
		if _, there := list[e.Key]; there && limit.New {
			return kv.ErrTaken(e.Key)
		}
		keys, size := int64(1), e.Size()
		for key, other := range list {
			if key != e.Key {
				keys, size = keys+1, size+other.Size()
			}
		}
		if _, replaced := list[e.Key]; replaced && space.Agent == "" {
			keys = 0 // a conversation may be saved in the place of one however many there are
		}
		if err := limit.Check(space, keys, size); err != nil {
			return err
		}
		if list == nil {
			list = map[string]kv.Entry{}
			s.spaces[space] = list
		}
		e.Value = bytes.Clone(e.Value)
		list[e.Key] = e
		return nil
	})
}

// GetKey implements kv.Store.
func (s *Store) GetKey(ctx context.Context, space kv.Space, key string, nowMS int64) (e kv.Entry, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kv.Entry) error {
		var ok bool
		if e, ok = list[key]; !ok {
			return kv.ErrNoKey(space, key)
		}
		e.Value = bytes.Clone(e.Value)
		return nil
	})
	return e, err
}

// DeleteKey implements kv.Store.
func (s *Store) DeleteKey(ctx context.Context, space kv.Space, key string, nowMS int64) (found bool, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kv.Entry) error {
		_, found = list[key]
		delete(list, key)
		return nil
	})
	return found, err
}

// ListKeys implements kv.Store.
func (s *Store) ListKeys(ctx context.Context, space kv.Space, after string, limit int, nowMS int64) (page kv.Page, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kv.Entry) error {
		// By bytes, which in UTF-8 is by code point.
		for _, key := range slices.Sorted(maps.Keys(list)) {
			e := list[key]
			page.Total, page.Bytes = page.Total+1, page.Bytes+e.Size()
			if key > after && len(page.Keys) < max(limit, 1) {
				page.Keys = append(page.Keys, kv.Key{Key: key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS})
			}
		}
		return nil
	})
	return page, err
}

// ClearKeys implements kv.Store.
func (s *Store) ClearKeys(ctx context.Context, space kv.Space, nowMS int64) (n int, err error) {
	err = s.inSpace(ctx, space, nowMS, func(list map[string]kv.Entry) error {
		n = len(list)
		delete(s.spaces, space)
		return nil
	})
	return n, err
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
