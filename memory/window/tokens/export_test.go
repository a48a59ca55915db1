package tokens

// Encoded returns how many texts have been encoded, over all families.
func (c *Counters) Encoded() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for _, k := range c.byName {
		n += k.encoded.Load()
	}
	return n
}

// Cached returns how many counts are cached, over all families.
func (c *Counters) Cached() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.byName {
		n += len(k.cache.counts.Keys())
	}
	return n
}
