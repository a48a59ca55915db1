// Package resident keeps in memory what searches need, so that a search does not read all that a
// caller said, or all documents of a collection, from the store. A Cache holds one value a key,
// such as the index of a caller's calls, within a budget of bytes: when it is full, the value that
// was not used for the longest time goes. A value is brought up to date before each use, so that it
// shows what any server has stored before. Spaces is the Cache of values that are made of records;
// it reads the records that changed since the last time.
//
// A value that was not yet read to its end is cold. A caller with a deadline leaves the reading to
// Run, which reads two at a time while projects take turns.
package resident

import (
	"context"
	"sync"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
)

const (
	readers   = 2    // cold values that are read at a time
	maxWarm   = 32   // entries of a project that wait for Run
	entrySize = 1024 // bytes of an entry beside its value
)

// Value is a value in a Cache.
type Value interface {
	// Bytes returns about how much memory the value takes.
	Bytes() int64
}

// Cache keeps values by key. Its methods are safe for concurrent use.
type Cache[K comparable, T Value] struct {
	entries *cache.Cache[K, *Entry[K, T]]
	wake    chan struct{} // has a value when Run has work

	mu       sync.Mutex                // guards the rest, and Entry.queued
	waiting  map[string][]*Entry[K, T] // entries that wait for Run, by project
	projects []string                  // those with waiting entries, the next one first
}

// New returns an empty Cache whose values take at most maxBytes in all.
func New[K comparable, T Value](maxBytes int64) *Cache[K, T] {
	return &Cache[K, T]{
		entries: cache.New[K](maxBytes, func(e *Entry[K, T]) int64 { return e.size + entrySize }),
		wake:    make(chan struct{}, readers), waiting: map[string][]*Entry[K, T]{},
	}
}

// Entry is the place of a value.
type Entry[K comparable, T Value] struct {
	Value T // Spaces replace it when they must read all records again

	cache  *Cache[K, T]
	key    K
	busy   chan struct{} // has a value while a caller is in the entry, so that others can give up
	ready  chan struct{} // closed when the value was read to its end
	size   int64         // of Value, when the last caller left
	queued bool          // waits for Run, or Run is in it
	follower
}

// Get returns the entry of a key without waiting. fresh returns the value of a new entry, which has
// not read anything yet.
func (c *Cache[K, T]) Get(k K, fresh func() T) *Entry[K, T] {
	return c.entries.GetOrSet(k, func() *Entry[K, T] {
		return &Entry[K, T]{Value: fresh(), cache: c, key: k, busy: make(chan struct{}, 1), ready: make(chan struct{})}
	})
}

// Remove drops the entry of a key. A caller in it can still use it.
func (c *Cache[K, T]) Remove(k K) { c.entries.Remove(k) }

// Keys returns the keys of all entries.
func (c *Cache[K, T]) Keys() []K { return c.entries.Keys() }

// Enter waits until no other caller is in the entry and calls load, which brings the value up to
// date. The caller is in the entry then, until Leave, unless Enter returns an error: that of load,
// or fault.Canceled if ctx ended first.
func (e *Entry[K, T]) Enter(ctx context.Context, load func() error) error {
	select {
	case e.busy <- struct{}{}:
	case <-ctx.Done():
		return givenUp(ctx)
	}
	entered := false
	defer func() { // also if load panics
		if !entered {
			e.Leave()
		}
	}()
	if err := load(); err != nil {
		return err
	}
	if entered = true; e.Cold() {
		close(e.ready)
	}
	return nil
}

// Leave lets the next caller enter. The value is weighed again.
func (e *Entry[K, T]) Leave() {
	if size := e.Value.Bytes(); size != e.size {
		e.size = size
		e.cache.entries.Reweigh(e.key, e)
	}
	<-e.busy
}

func givenUp(ctx context.Context) error {
	return fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
}

// Cold reports whether the value was not yet read to its end.
func (e *Entry[K, T]) Cold() bool {
	select {
	case <-e.ready:
		return false
	default:
		return true
	}
}

// Warm asks Run to bring the entry up to date, and returns what is closed when it is not cold. If
// too many entries of the project wait already, it asks for nothing.
func (e *Entry[K, T]) Warm(project string) <-chan struct{} {
	c := e.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.waiting[project]
	if e.queued || len(list) == maxWarm {
		return e.ready
	}
	if len(list) == 0 {
		c.projects = append(c.projects, project)
	}
	c.waiting[project], e.queued = append(list, e), true
	select {
	case c.wake <- struct{}{}:
	default: // all look for work anyway
	}
	return e.ready
}

// next returns the next entry that waits, or nil.
func (c *Cache[K, T]) next() *Entry[K, T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.projects) == 0 {
		return nil
	}
	p := c.projects[0]
	c.projects = c.projects[1:]
	list := c.waiting[p]
	if len(list) == 1 {
		delete(c.waiting, p)
	} else {
		c.waiting[p] = list[1:]
		c.projects = append(c.projects, p)
	}
	return list[0]
}

// Run brings entries up to date that Warm asked for, until ctx is done. load reports its errors
// itself. It returns nil.
func (c *Cache[K, T]) Run(ctx context.Context, load func(context.Context, T) error) error {
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for ctx.Err() == nil {
				e := c.next()
				if e == nil {
					select {
					case <-ctx.Done():
					case <-c.wake:
					}
					continue
				}
				if e.Enter(ctx, func() error { return load(ctx, e.Value) }) == nil {
					e.Leave()
				}
				c.mu.Lock()
				e.queued = false
				c.mu.Unlock()
			}
		})
	}
	group.Wait()
	return nil
}
