package sqlite

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// key names an agent.
type key struct{ project, id string }

// cache keeps views of agents, bounded in bytes and number. The committer is the only one that moves an agent's view on,
// after the commit and before the caller is answered, so that what a reader finds here is never older than what was
// acknowledged. Readers only fill what is not there, by fill, which gives way to any commit in between.
//
// What goes first when it is full: tails, then whole views, of agents that nobody asked for since the hand last came by.
type cache struct {
	maxBytes   int64
	maxEntries int64
	bytes      atomic.Int64
	entries    atomic.Int64
	seed       maphash.Seed
	shards     [16]shard
	evicting   sync.Mutex
	hand       int // the shard whose turn it is; under evicting
}

type shard struct {
	sync.RWMutex
	byKey map[key]*entry
	ring  []*entry
	hand  int
}

// entry is an agent's place in the cache. Its view is nil while somebody is reading it from the database.
type entry struct {
	key  key
	at   int // in the ring
	view atomic.Pointer[view]
	used atomic.Bool
}

// gone stands in an entry that was taken out, so that a late fill fails.
var gone = new(view)

func newCache(maxBytes, maxEntries int64) *cache {
	c := &cache{maxBytes: maxBytes, maxEntries: maxEntries, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].byKey = map[key]*entry{}
	}
	return c
}

func (c *cache) shard(k key) *shard {
	return &c.shards[maphash.Comparable(c.seed, k)%uint64(len(c.shards))]
}

// get gives the agent's view, nil if there is none.
func (c *cache) get(k key) *view {
	s := c.shard(k)
	s.RLock()
	e := s.byKey[k]
	s.RUnlock()
	if e == nil {
		return nil
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	if v := e.view.Load(); v != gone {
		return v
	}
	return nil
}

// hold gives the agent's entry, made if need be, and the view in it. Call it before reading the database, fill after it.
func (c *cache) hold(k key) (*entry, *view) {
	s := c.shard(k)
	s.Lock()
	defer s.Unlock()
	e := c.place(s, k)
	return e, e.view.Load()
}

func (c *cache) place(s *shard, k key) *entry {
	e := s.byKey[k]
	if e == nil {
		e = &entry{key: k, at: len(s.ring)}
		s.byKey[k] = e
		s.ring = append(s.ring, e)
		c.entries.Add(1)
	}
	e.used.Store(true)
	return e
}

// fill stores what was read from the database, unless a commit or an eviction came between; it tells whether it did.
func (c *cache) fill(e *entry, old, v *view) bool {
	if !e.view.CompareAndSwap(old, v) {
		return false
	}
	c.account(old, v)
	c.evict()
	return true
}

// install stores the view of a commit.
func (c *cache) install(k key, v *view) {
	s := c.shard(k)
	s.Lock()
	old := c.place(s, k).view.Swap(v)
	s.Unlock()
	c.account(old, v)
	c.evict()
}

// remove takes the agent out.
func (c *cache) remove(k key) {
	s := c.shard(k)
	s.Lock()
	defer s.Unlock()
	if e := s.byKey[k]; e != nil {
		c.drop(s, e)
	}
}

// forget takes an entry out that nobody filled: the agent does not exist.
func (c *cache) forget(e *entry) {
	s := c.shard(e.key)
	s.Lock()
	defer s.Unlock()
	if s.byKey[e.key] == e && e.view.Load() == nil {
		c.drop(s, e)
	}
}

func (c *cache) drop(s *shard, e *entry) {
	delete(s.byKey, e.key)
	last := len(s.ring) - 1
	s.ring[e.at] = s.ring[last]
	s.ring[e.at].at = e.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
	c.entries.Add(-1)
	c.account(e.view.Swap(gone), nil)
}

func (c *cache) account(old, v *view) {
	var n int64
	if v != nil {
		n += v.size()
	}
	if old != nil && old != gone {
		n -= old.size()
	}
	c.bytes.Add(n)
}

func (c *cache) over() bool { return c.bytes.Load() > c.maxBytes || c.entries.Load() > c.maxEntries }

// evict makes room. One caller does it; the others go on.
func (c *cache) evict() {
	if !c.over() || !c.evicting.TryLock() {
		return
	}
	defer c.evicting.Unlock()
	// In four rounds every tail can go and then every view: the first round only takes the marks off.
	for round := range 4 {
		for range c.shards {
			s := &c.shards[c.hand]
			c.hand = (c.hand + 1) % len(c.shards)
			s.Lock()
			for n := len(s.ring); n > 0 && c.over(); n-- {
				c.step(s, round)
			}
			s.Unlock()
			if !c.over() {
				return
			}
		}
	}
}

// step moves the shard's hand over one entry.
func (c *cache) step(s *shard, round int) {
	if len(s.ring) == 0 {
		return
	}
	s.hand %= len(s.ring)
	e := s.ring[s.hand]
	v := e.view.Load()
	switch {
	case v == nil: // being read
		s.hand++
	case e.used.Swap(false) && round < 2:
		s.hand++
	case v.tail != nil:
		if b := v.bare(); e.view.CompareAndSwap(v, b) {
			c.account(v, b)
		}
		s.hand++
	case c.entries.Load() > c.maxEntries || round >= 2:
		c.drop(s, e)
	default:
		s.hand++
	}
}
