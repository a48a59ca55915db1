package context

import (
	"container/list"
	"sync"
)

// maxCached limits the messages in the cache, of all agents together. They take some 20 MB beside their
// texts.
const maxCached = 20_000

// cache keeps the contents of memories by agent, the least recently used ones last. Its zero value is
// ready. The caller checks what it gets against the agent's head.
type cache struct {
	mu    sync.Mutex
	byKey map[agentKey]*contents
	order list.List // of *contents
	size  int
}

func (c *cache) get(k agentKey) *contents {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.byKey[k]
	if r != nil {
		c.order.MoveToFront(r.place)
	}
	return r
}

func (c *cache) put(r *contents) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(r)
}

// putLocked replaces what is cached of an agent. The caller holds mu.
func (c *cache) putLocked(r *contents) {
	if c.byKey == nil {
		c.byKey = map[agentKey]*contents{}
	}
	c.removeLocked(c.byKey[r.key])
	if len(r.stored) > maxCached/2 {
		return // it would evict all others; it is read each time instead
	}
	r.place = c.order.PushFront(r)
	c.byKey[r.key] = r
	c.size += len(r.stored)
	for c.size > maxCached {
		c.removeLocked(c.order.Back().Value.(*contents))
	}
}

func (c *cache) remove(k agentKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(c.byKey[k])
}

func (c *cache) removeLocked(r *contents) {
	if r == nil || c.byKey[r.key] != r {
		return
	}
	c.order.Remove(r.place)
	delete(c.byKey, r.key)
	c.size -= len(r.stored)
}
