package context

import (
	"sync"

	lru "github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/memory"
)

// maxCached limits the messages in the cache, of all agents together. They take about 20 MB in
// addition to their texts.
const maxCached = 20_000

// maxContents is how long cached contents may grow, before they are read again.
const maxContents = memory.MaxRead + 1024

// cache keeps the contents of memories by agent. The caller checks what it gets against the agent's
// head.
type cache struct {
	mu    sync.Mutex // held while contents are replaced by a later version that shares their arrays
	byKey *lru.Cache[memory.Ref, *contents]
}

func newCache() *cache {
	return &cache{byKey: lru.New[memory.Ref](maxCached, func(r *contents) int64 { return int64(len(r.stored)) })}
}

func (c *cache) get(ref memory.Ref) *contents {
	r, _ := c.byKey.Get(ref)
	return r
}

func (c *cache) put(r *contents) { c.byKey.Set(r.key, r) }

func (c *cache) remove(ref memory.Ref) { c.byKey.Remove(ref) }
