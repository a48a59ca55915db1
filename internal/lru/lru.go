// Package lru keeps values up to a size, those that were asked for last.
package lru

import (
	"container/list"
	"sync"
)

// Cache keeps values by key. Its methods are safe for concurrent use.
type Cache[K comparable, V any] struct {
	most int64

	mu    sync.Mutex
	size  int64
	order *list.List // of *entry, the one asked for last in front
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	k    K
	v    V
	size int64
}

// New makes a cache of at most so many bytes, as Put is told of them. A value that is larger than that is not kept.
func New[K comparable, V any](most int64) *Cache[K, V] {
	return &Cache[K, V]{most: most, order: list.New(), byKey: map[K]*list.Element{}}
}

// Get gives a value; false where there is none.
func (c *Cache[K, V]) Get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[k]
	if e == nil {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).v, true
}

// Put keeps a value of so many bytes in place of what is there, unless that is to stay by what stays, if not nil, says of it. It runs while others wait.
func (c *Cache[K, V]) Put(k K, v V, size int64, stays func(there V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[k]; e != nil {
		there := e.Value.(*entry[K, V])
		if stays != nil && stays(there.v) {
			return
		}
		c.size += size - there.size
		there.v, there.size = v, size
		c.order.MoveToFront(e)
	} else {
		c.byKey[k] = c.order.PushFront(&entry[K, V]{k, v, size})
		c.size += size
	}
	for c.size > c.most && c.order.Len() > 0 {
		c.remove(c.order.Back())
	}
}

func (c *Cache[K, V]) remove(e *list.Element) {
	gone := c.order.Remove(e).(*entry[K, V])
	delete(c.byKey, gone.k)
	c.size -= gone.size
}

// Drop takes a value away, if it is there.
func (c *Cache[K, V]) Drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[k]; e != nil {
		c.remove(e)
	}
}

// Clear takes all values away.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.byKey)
	c.size = 0
}
