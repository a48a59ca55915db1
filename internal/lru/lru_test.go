package lru_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/lru"
)

// held gives which of the keys are there, without asking for them in an order that matters later.
func held(c *lru.Cache[string, int], keys string) string {
	var out strings.Builder
	for _, k := range strings.Split(keys, "") {
		if _, ok := c.Get(k); ok {
			out.WriteString(k)
		}
	}
	return out.String()
}

func TestCache(t *testing.T) {
	t.Parallel()
	c := lru.New[string, int](10)
	for i, k := range []string{"a", "b", "c"} {
		c.Put(k, i, 3, nil)
	}
	c.Get("a")
	c.Put("d", 3, 3, nil) // b is the one that nobody asked for
	if got := held(c, "abcd"); got != "acd" {
		t.Errorf("held: %s", got)
	}
	c.Put("a", 9, 1, func(there int) bool { return there == 0 })
	if v, _ := c.Get("a"); v != 0 {
		t.Errorf("a became %d, and was to stay", v)
	}
	c.Put("a", 9, 4, func(there int) bool { return there != 0 })
	if v, ok := c.Get("a"); v != 9 || !ok {
		t.Errorf("a is %d, %t", v, ok)
	}
	if got := held(c, "acd"); got != "acd" { // 10 bytes
		t.Errorf("held: %s", got)
	}
	c.Put("a", 9, 5, nil)
	if got := held(c, "acd"); got != "ad" {
		t.Errorf("held, when one has grown: %s", got)
	}
	c.Put("huge", 1, 11, nil)
	if got := held(c, "ad"); got != "" {
		t.Errorf("held beside what is too large: %s", got)
	}
	c.Put("a", 1, 10, nil)
	c.Drop("a")
	c.Drop("a")
	c.Put("b", 1, 10, nil)
	if got := held(c, "ab"); got != "b" {
		t.Errorf("held after a drop: %s", got)
	}
	c.Clear()
	c.Put("a", 1, 10, nil)
	if got := held(c, "ab"); got != "a" {
		t.Errorf("held after a clear: %s", got)
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	c := lru.New[int, int](100)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				k := (i*7 + w) % 50
				switch i % 5 {
				case 0:
					c.Drop(k)
				case 1, 2:
					c.Put(k, k, 9, func(there int) bool { return there > k })
				default:
					if v, ok := c.Get(k); ok && v != k {
						t.Errorf("%d holds %d", k, v)
					}
				}
			}
			c.Clear()
		})
	}
	wg.Wait()
}
