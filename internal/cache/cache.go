// Package cache keeps in memory what was used last.
package cache

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps values by key, as many as fit. When it is full, the one that was not used for the
// longest time goes. Its methods are safe for concurrent use.
type Cache[K, V comparable] struct {
	weigh func(V) int64
	max   int64

	mu   sync.Mutex // guards the rest
	lru  *simplelru.LRU[K, item[V]]
	used int64 // sum of all weights
}

type item[V any] struct {
	value  V
	weight int64
}

// New returns a cache for values whose weights are at most limit in all. If weigh is nil, each
// weighs 1, and limit is their number. A value that is heavier than limit is not kept.
func New[K, V comparable](limit int64, weigh func(V) int64) *Cache[K, V] {
	if weigh == nil {
		weigh = func(V) int64 { return 1 }
	}
	c := &Cache[K, V]{weigh: weigh, max: limit}
	c.lru, _ = simplelru.NewLRU[K, item[V]](math.MaxInt, nil) // fails only for a size below 1
	return c
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.lru.Get(k)
	return i.value, ok
}

// Set stores the value of a key.
func (c *Cache[K, V]) Set(k K, v V) {
	weight := c.weigh(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(k, v, weight)
}

// GetOrSet returns the value of a key. If there is none, it stores and returns a new one. The cache
// is locked while fresh runs.
func (c *Cache[K, V]) GetOrSet(k K, fresh func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.lru.Get(k); ok {
		return i.value
	}
	v := fresh()
	c.set(k, v, c.weigh(v))
	return v
}

// Reweigh weighs a value again that has changed. It does nothing if the key has another value now.
func (c *Cache[K, V]) Reweigh(k K, v V) {
	weight := c.weigh(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.lru.Peek(k); ok && i.value == v {
		c.set(k, v, weight)
	}
}

// set stores a value. The caller holds mu.
func (c *Cache[K, V]) set(k K, v V, weight int64) {
	if weight > c.max {
		c.remove(k)
		return
	}
	old, _ := c.lru.Peek(k)
	c.lru.Add(k, item[V]{v, weight})
	for c.used += weight - old.weight; c.used > c.max; {
		_, oldest, _ := c.lru.RemoveOldest()
		c.used -= oldest.weight
	}
}

// Remove removes a key.
func (c *Cache[K, V]) Remove(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(k)
}

func (c *Cache[K, V]) remove(k K) {
	i, _ := c.lru.Peek(k)
	c.lru.Remove(k)
	c.used -= i.weight
}

// Clear removes all keys.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
	c.used = 0
}

// Keys returns all keys, from the one that was not used for the longest time.
func (c *Cache[K, V]) Keys() []K {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Keys()
}
