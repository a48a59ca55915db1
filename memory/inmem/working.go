package inmem

import (
	"bytes"
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.WorkingStore = (*Store)(nil)

// within finds an agent and runs fn under the store's lock.
func (s *Store) within(ctx context.Context, project, id string, fn func(*agent) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return err
	}
	return fn(a)
}

// workingAt gives an agent's working memory at a time; what has expired is gone.
func (a *agent) workingAt(nowMS int64) map[string]memory.WorkingEntry {
	for key, e := range a.working {
		if e.ExpiresMS <= nowMS {
			delete(a.working, key)
		}
	}
	return a.working
}

// PutWorking stores an entry.
func (s *Store) PutWorking(ctx context.Context, project, id string, e memory.WorkingEntry, limit memory.WorkingLimit, nowMS int64) error {
	return s.within(ctx, project, id, func(a *agent) error {
		if err := a.head.Agent.MustBeActive(fault.Stopped); err != nil {
			return err
		}
		keys, size := int64(1), e.Size()
		for key, other := range a.workingAt(nowMS) {
			if key != e.Key {
				keys, size = keys+1, size+other.Size()
			}
		}
		if err := limit.Check(keys, size); err != nil {
			return err
		}
		if a.working == nil {
			a.working = map[string]memory.WorkingEntry{}
		}
		e.Value = bytes.Clone(e.Value)
		a.working[e.Key] = e
		return nil
	})
}

// Working gives an entry.
func (s *Store) Working(ctx context.Context, project, id, key string, nowMS int64) (e memory.WorkingEntry, err error) {
	err = s.within(ctx, project, id, func(a *agent) (err error) {
		e, err = a.entry(key, nowMS)
		return err
	})
	return e, err
}

func (a *agent) entry(key string, nowMS int64) (memory.WorkingEntry, error) {
	e, ok := a.workingAt(nowMS)[key]
	if !ok {
		return e, memory.ErrNoWorking(key)
	}
	e.Value = bytes.Clone(e.Value)
	return e, nil
}

// DeleteWorking takes an entry away.
func (s *Store) DeleteWorking(ctx context.Context, project, id, key string, nowMS int64) (found bool, err error) {
	err = s.within(ctx, project, id, func(a *agent) error {
		_, found = a.workingAt(nowMS)[key]
		delete(a.working, key)
		return nil
	})
	return found, err
}

// WorkingKeys lists an agent's keys.
func (s *Store) WorkingKeys(ctx context.Context, project, id, after string, limit int, nowMS int64) (page memory.WorkingPage, err error) {
	err = s.within(ctx, project, id, func(a *agent) error {
		var keys []string
		for key, e := range a.workingAt(nowMS) {
			page.Bytes += e.Size()
			keys = append(keys, key)
		}
		page.Total = len(keys)
		slices.Sort(keys) // by bytes, which in UTF-8 is by code point
		for _, key := range keys {
			if e := a.working[key]; key > after && len(page.Keys) < max(limit, 1) {
				page.Keys = append(page.Keys, memory.WorkingKey{Key: key, Bytes: e.Size(), UpdatedMS: e.UpdatedMS, ExpiresMS: e.ExpiresMS})
			}
		}
		return nil
	})
	return page, err
}

// ClearWorking takes all of an agent's entries away.
func (s *Store) ClearWorking(ctx context.Context, project, id string, nowMS int64) (n int, err error) {
	err = s.within(ctx, project, id, func(a *agent) error {
		n = len(a.workingAt(nowMS))
		a.working = nil
		return nil
	})
	return n, err
}

// SweepWorking erases what has expired.
func (s *Store) SweepWorking(ctx context.Context, nowMS int64) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.agents {
		before := len(a.working)
		n += before - len(a.workingAt(nowMS))
	}
	return n, nil
}
