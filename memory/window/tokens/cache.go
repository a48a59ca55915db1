package tokens

import (
	"hash/maphash"

	lru "github.com/heardlog/heardlog/internal/cache"
)

// key stands for a text: two hashes with secret seeds, so that two texts cannot share a key even on
// purpose.
type key [2]uint64

// cache holds token counts by text, without the texts.
type cache struct {
	seeds  [2]maphash.Seed
	counts *lru.Cache[key, int32]
}

func newCache(entries int) cache {
	return cache{
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		counts: lru.New[key, int32](int64(entries), nil),
	}
}

func (c *cache) key(s string) key {
	return key{maphash.String(c.seeds[0], s), maphash.String(c.seeds[1], s)}
}

// keyOf returns the key of a value that is not a plain text. kind, from 1 on, separates values that
// are counted in different ways.
func (c *cache) keyOf(kind uint64, raw []byte) key {
	return key{maphash.Bytes(c.seeds[0], raw), maphash.Bytes(c.seeds[1], raw) + kind}
}

func (c *cache) get(k key) (int, bool) {
	n, ok := c.counts.Get(k)
	return int(n), ok
}

func (c *cache) put(k key, n int) { c.counts.Set(k, int32(min(n, 1<<31-1))) }
