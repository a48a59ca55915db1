package tokens

import (
	"hash/maphash"
	"sync"
)

const shards = 16

// key identifies a text by two hashes with secret seeds, so that nobody can construct two texts
// with the same key.
type key [2]uint64

// cache stores the counts of texts, not the texts. It evicts by generations: a full shard becomes
// the old one, and entries that are used again move to the new one.
type cache struct {
	seeds [2]maphash.Seed
	most  int // of one generation of one shard
	parts *[shards]shard
}

type shard struct {
	mu         sync.Mutex
	young, old map[key]int32
}

func newCache(entries int) cache {
	c := cache{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, most: max(entries/shards/2, 1), parts: new([shards]shard)}
	for i := range c.parts {
		c.parts[i].young = map[key]int32{}
	}
	return c
}

func (c *cache) key(s string) key {
	return key{maphash.String(c.seeds[0], s), maphash.String(c.seeds[1], s)}
}

// keyOf returns the key of a value of another kind than a text. Kinds are numbered from 1.
func (c *cache) keyOf(kind uint64, raw []byte) key {
	return key{maphash.Bytes(c.seeds[0], raw), maphash.Bytes(c.seeds[1], raw) + kind}
}

func (c *cache) get(k key) (int, bool) {
	p := &c.parts[k[0]%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.young[k]; ok {
		return int(n), true
	}
	n, ok := p.old[k]
	if ok {
		p.put(k, n, c.most)
	}
	return int(n), ok
}

func (c *cache) put(k key, n int) {
	p := &c.parts[k[0]%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(k, int32(min(n, 1<<31-1)), c.most)
}

func (p *shard) put(k key, n int32, most int) {
	if len(p.young) >= most {
		p.young, p.old = map[key]int32{}, p.young
	}
	p.young[k] = n
}
