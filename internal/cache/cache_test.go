package cache_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/cache"
)

// has fails the test unless the keys of c are these, the one that was used last at the end.
func has[V comparable](t *testing.T, c *cache.Cache[string, V], want ...string) {
	t.Helper()
	if got := c.Keys(); !slices.Equal(got, want) {
		t.Errorf("the keys are %q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	c := cache.New[string, int](2, nil)
	c.Set("a", 1)
	c.Set("b", 2)
	if v, ok := c.Get("a"); v != 1 || !ok {
		t.Errorf("a is %d, %t", v, ok)
	}
	c.Set("c", 3)
	has(t, c, "a", "c")
	if v, ok := c.Get("b"); v != 0 || ok {
		t.Errorf("b is still %d", v)
	}
	c.Set("a", 4)
	has(t, c, "c", "a")
	if v := c.GetOrSet("a", func() int { return 5 }); v != 4 {
		t.Errorf("a was replaced by %d", v)
	}
	if v := c.GetOrSet("d", func() int { return 6 }); v != 6 {
		t.Errorf("d is %d", v)
	}
	has(t, c, "a", "d")
	c.Remove("a")
	c.Remove("none")
	c.Set("e", 7)
	has(t, c, "d", "e")
	c.Clear()
	has(t, c)
	c.Set("f", 8)
	c.Set("g", 9)
	has(t, c, "f", "g")
}

type sized struct{ size int64 }

func TestWeights(t *testing.T) {
	t.Parallel()
	c := cache.New[string](10, func(v *sized) int64 { return v.size })
	a, b := &sized{4}, &sized{4}
	c.Set("a", a)
	c.Set("b", b)
	c.Set("heavy", &sized{11})
	has(t, c, "a", "b")
	b.size = 6
	c.Reweigh("b", b)
	has(t, c, "a", "b") // exactly full
	a.size = 5
	c.Reweigh("a", a)
	has(t, c, "a")
	c.Reweigh("b", b) // it is gone
	has(t, c, "a")
	c.Set("a", &sized{1})
	c.Reweigh("a", a) // another value is there
	c.Set("c", &sized{9})
	has(t, c, "a", "c")
	c.Set("a", &sized{11})
	has(t, c, "c")
	c.Set("d", &sized{1})
	has(t, c, "c", "d")
}

// TestRace needs the race detector to find anything.
func TestRace(t *testing.T) {
	t.Parallel()
	c := cache.New[int, int](50, nil)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 1000 {
				c.Set(i%100, i)
				c.Get(i % 70)
				c.GetOrSet(i%30, func() int { return i })
				c.Reweigh(i%100, i)
				c.Remove(i % 10)
			}
		})
	}
	group.Wait()
	if n := len(c.Keys()); n == 0 || n > 50 {
		t.Errorf("%d keys are kept", n)
	}
}
