package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// The strategies of an eviction: which keys go first.
const (
	LRU       = "lru"        // not used for the longest time
	LFU       = "lfu"        // used least often
	TTL       = "ttl"        // nearest to their end; those without an end go last
	SizeBased = "size_based" // largest
	Hybrid    = "hybrid"     // the highest of size × time since the last use ÷ uses
)

// Defaults of OSSA's schema.
const (
	DefaultMaxPercent    = 80
	DefaultTargetPercent = 60
)

// used notes which spaces were read and written since Service.collect last checked them. A process
// that is killed loses its notes.
type used struct {
	mu     sync.Mutex
	spaces map[Space]*usedSpace
}

type usedSpace struct {
	name  string // of the namespace, as callers name it
	dueMS int64  // when it is checked
	reads map[string]Use
}

// maxReads bounds the keys whose reads are noted of a space until Run stores them, each minute.
// Further ones are not counted.
const maxReads = 10_000

// at returns what is noted of a place. The caller holds mu.
func (u *used) at(p *place, nowMS int64) *usedSpace {
	if u.spaces == nil {
		u.spaces = map[Space]*usedSpace{}
	}
	s := u.spaces[p.Space]
	if s == nil {
		name := p.Name
		if p.Agent != "" {
			name = AgentPrefix + p.Agent
		}
		s = &usedSpace{name: name, dueMS: nowMS + int64(p.gc.EverySeconds)*1000, reads: map[string]Use{}}
		u.spaces[p.Space] = s
	}
	return s
}

func (u *used) read(p *place, entries []Entry, nowMS int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.at(p, nowMS)
	for _, e := range entries {
		if use, ok := s.reads[e.Key]; ok || len(s.reads) < maxReads {
			s.reads[e.Key] = Use{e.Key, use.Uses + 1, nowMS}
		}
	}
}

func (u *used) written(p *place, nowMS int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at(p, nowMS)
}

// take removes and returns the noted reads of a space.
func (u *used) take(space Space) map[string]Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.spaces[space]
	if s == nil {
		return nil
	}
	reads := s.reads
	s.reads = map[string]Use{}
	return reads
}

// takeAll is take of all spaces that have any.
func (u *used) takeAll() map[Space]map[string]Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[Space]map[string]Use{}
	for space, s := range u.spaces {
		if len(s.reads) > 0 {
			out[space], s.reads = s.reads, map[string]Use{}
		}
	}
	return out
}

// due removes and returns the spaces that are to be checked.
func (u *used) due(nowMS int64) map[Space]*usedSpace {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[Space]*usedSpace{}
	for space, s := range u.spaces {
		if s.dueMS <= nowMS {
			out[space] = s
			delete(u.spaces, space)
		}
	}
	return out
}

// makingRoom runs put, which stores keys of that size. If the place is full and has a strategy, it
// evicts other keys down to the target, and runs put again.
func (s *Service) makingRoom(ctx context.Context, p *place, keys []string, size int64, put func() error) error {
	err := put()
	if p.gc.Strategy == "" {
		return err
	}
	if err == nil {
		s.used.written(p, s.nowMS())
		return nil
	}
	if !fault.Is(err, fault.Quota) || size > p.limit.Bytes {
		return err
	}
	done, gcErr := s.evict(ctx, p, eviction{GC: p.gc, needed: size, keep: keys}, s.used.take(p.Space))
	if gcErr != nil || len(done.Keys) == 0 {
		return err
	}
	return put()
}

// eviction is what evict is to do.
type eviction struct {
	memory.GC
	needed int64    // bytes for which there must be room; 0 = none, and only above MaxPercent
	keep   []string // keys that stay, because the call sets them
	dry    bool     // delete nothing
}

// Evicted is what an eviction has deleted, or would delete.
type Evicted struct {
	Strategy                string
	Keys                    []string // in the order of the strategy
	KeysBefore, KeysAfter   int
	BytesBefore, BytesAfter int64
	MaxBytes                int64
}

// evictAtOnce is how many keys one call of the store evicts.
const evictAtOnce = 500

// evict deletes keys that are not pinned, in the order of the strategy, until the place is at its
// target. It deletes nothing if that would not make the room that is needed. reads are stored
// first.
func (s *Service) evict(ctx context.Context, p *place, e eviction, reads map[string]Use) (done Evicted, err error) {
	store, ok := s.Store.(Evicter)
	if !ok {
		return done, fault.New(fault.Unsupported, "the provider of keys and values evicts keys by its own settings")
	}
	if err := touch(ctx, store, p.Space, reads); err != nil {
		return done, err
	}
	now := s.nowMS()
	all, err := s.allKeys(ctx, p.Space, now)
	if err != nil {
		return done, err
	}
	done = Evicted{Strategy: e.Strategy, KeysBefore: len(all), MaxBytes: p.limit.Bytes}
	for _, k := range all {
		done.BytesBefore += k.Bytes
	}
	gone := e.choose(all, done.BytesBefore, p.limit, now)
	done.KeysAfter, done.BytesAfter = len(all)-len(gone), done.BytesBefore
	for _, k := range gone {
		done.Keys, done.BytesAfter = append(done.Keys, k.Key), done.BytesAfter-k.Bytes
	}
	if e.dry {
		return done, nil
	}
	for part := range slices.Chunk(gone, evictAtOnce) {
		n, err := store.EvictKeys(ctx, p.Space, part)
		if s.Evicted != nil {
			s.Evicted(e.Strategy, n)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// allKeys returns the keys of a space.
func (s *Service) allKeys(ctx context.Context, space Space, nowMS int64) (all []Key, err error) {
	for after := ""; ; after = all[len(all)-1].Key {
		page, err := s.Store.ListKeys(ctx, space, after, listPage, nowMS)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Keys...); len(page.Keys) < listPage {
			return all, nil
		}
	}
}

// choose returns which of all keys, which have so many bytes, to evict, in the order of the
// strategy: none if there is no need or no use. It sorts all.
func (e *eviction) choose(all []Key, bytes int64, limit Limit, nowMS int64) (gone []Key) {
	keys := len(all)
	fits := func(percent int) bool {
		return keys <= limit.Keys*percent/100 && bytes <= limit.Bytes*int64(percent)/100
	}
	switch {
	case e.needed > 0: // the keys that the call sets count as they will be
		for _, k := range all {
			if slices.Contains(e.keep, k.Key) {
				keys, bytes = keys-1, bytes-k.Bytes
			}
		}
		keys, bytes = keys+len(e.keep), bytes+e.needed
		if fits(100) {
			return nil // it is the project that is full
		}
	case keys < limit.Keys*e.MaxPercent/100 && bytes < limit.Bytes*int64(e.MaxPercent)/100:
		return nil
	}
	slices.SortFunc(all, order(e.Strategy, nowMS))
	for _, k := range all {
		if fits(e.TargetPercent) {
			break
		}
		if !k.Pinned && !slices.Contains(e.keep, k.Key) {
			gone, keys, bytes = append(gone, k), keys-1, bytes-k.Bytes
		}
	}
	if e.needed > 0 && !fits(100) {
		return nil
	}
	return gone
}

// touch stores noted reads.
func touch(ctx context.Context, store Evicter, space Space, reads map[string]Use) error {
	if len(reads) == 0 {
		return nil
	}
	return store.TouchKeys(ctx, space, slices.Collect(maps.Values(reads)))
}

// order returns the order in which a strategy evicts keys. Ties go by the last use.
func order(strategy string, nowMS int64) func(a, b Key) int {
	idle := func(a, b Key) int { return cmp.Or(cmp.Compare(a.UsedMS, b.UsedMS), cmp.Compare(a.Key, b.Key)) }
	score := func(k Key) float64 {
		return float64(k.Bytes) * math.Max(1, float64(nowMS-k.UsedMS)) / math.Max(1, float64(k.Uses))
	}
	return func(a, b Key) int {
		switch strategy {
		case LFU:
			return cmp.Or(cmp.Compare(a.Uses, b.Uses), idle(a, b))
		case TTL:
			return cmp.Or(cmp.Compare(a.ExpiresMS, b.ExpiresMS), idle(a, b))
		case SizeBased:
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), idle(a, b))
		case Hybrid:
			return cmp.Or(cmp.Compare(score(b), score(a)), idle(a, b))
		}
		return idle(a, b)
	}
}

// Evict evicts keys of a namespace down to the target if it is at or above the maximum, or only
// says which with dryRun. What gc leaves open is as in the namespace's own settings, or OSSA's
// defaults: hybrid, from 80 to 60 percent. It fails with fault.Unsupported if the keys are not in
// the server's own store.
func (s *Service) Evict(ctx context.Context, project, name string, gc memory.GC, dryRun bool) (Evicted, error) {
	p, err := s.open(ctx, project, name)
	if err != nil {
		return Evicted{}, err
	}
	e := eviction{dry: dryRun, GC: memory.GC{
		Strategy:      cmp.Or(gc.Strategy, p.gc.Strategy, Hybrid),
		MaxPercent:    cmp.Or(gc.MaxPercent, p.gc.MaxPercent, DefaultMaxPercent),
		TargetPercent: cmp.Or(gc.TargetPercent, p.gc.TargetPercent, DefaultTargetPercent),
	}}
	switch {
	case !slices.Contains([]string{LRU, LFU, TTL, SizeBased, Hybrid}, e.Strategy):
		return Evicted{}, fault.At(fault.Invalid, "strategy", "must be lru, lfu, ttl, size_based or hybrid, not %q", e.Strategy)
	case e.MaxPercent < 1 || e.MaxPercent > 100:
		return Evicted{}, fault.At(fault.Invalid, "max_memory_percent", "must be from 1 to 100, not %d", e.MaxPercent)
	case e.TargetPercent < 1 || e.TargetPercent >= e.MaxPercent:
		return Evicted{}, fault.At(fault.Invalid, "target_memory_percent", "must be at least 1 and below max_memory_percent, which is %d, not %d", e.MaxPercent, e.TargetPercent)
	}
	return s.evict(ctx, &p, e, s.used.take(p.Space))
}

// collect stores what was noted, and checks the spaces that are due.
func (s *Service) collect(ctx context.Context) (err error) {
	store, ok := s.Store.(Evicter)
	if !ok {
		return nil
	}
	for space, reads := range s.used.takeAll() {
		if e := touch(ctx, store, space, reads); e != nil && !fault.Is(e, fault.NotFound) {
			err = errors.Join(err, fmt.Errorf("note reads of keys: %w", e))
		}
	}
	for space, due := range s.used.due(s.nowMS()) {
		p, e := s.open(ctx, space.Project, due.name)
		if e != nil || p.gc.Strategy == "" { // the agent is gone
			continue
		}
		if _, e = s.evict(ctx, &p, eviction{GC: p.gc}, due.reads); e != nil && !fault.Is(e, fault.Held) {
			err = errors.Join(err, fmt.Errorf("evict keys: %w", e))
		}
	}
	return err
}
