package context

import (
	"sync"

	"github.com/maypok86/otter/v2"
)

// maxCached limits the messages in the cache, of all agents together. They take about 20 MB in
// addition to their texts.
const maxCached = 20_000

// cache keeps the contents of memories by agent. The caller checks what it gets against the agent's
// head.
type cache struct {
	mu    sync.Mutex // held while contents are replaced by a later version that shares their arrays
	byKey *otter.Cache[agentKey, *contents]
}

func newCache() *cache {
	return &cache{byKey: otter.Must(&otter.Options[agentKey, *contents]{
		MaximumWeight: maxCached,
		Weigher:       func(_ agentKey, r *contents) uint32 { return uint32(len(r.stored)) },
	})}
}

func (c *cache) get(k agentKey) *contents {
	r, _ := c.byKey.GetIfPresent(k)
	return r
}

func (c *cache) put(r *contents) {
	if len(r.stored) > maxCached/2 { // it would evict all others; it is read each time instead
		c.byKey.Invalidate(r.key)
		return
	}
	c.byKey.Set(r.key, r)
}

func (c *cache) remove(k agentKey) { c.byKey.Invalidate(k) }
