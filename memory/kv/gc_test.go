package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/storetest"
)

// shelf is a service whose namespace n may hold 1 MiB.
type shelf struct {
	*kv.Service
	t *testing.T
}

func newShelf(t *testing.T, gc memory.GC) shelf {
	store := storetest.New(t)
	return shelf{&kv.Service{Store: store, Agents: store, Now: time.Now, MaxMB: 1, GC: gc}, t}
}

// set sets a key to a value of so many percent of the namespace, and lets a second pass.
func (s shelf) set(key string, percent int, more ...func(*kv.Value)) error {
	v := kv.Value{Key: key, JSON: fmt.Appendf(nil, "%q", strings.Repeat("x", percent*(1<<20)/100-len(key)-2))}
	for _, change := range more {
		change(&v)
	}
	_, err := s.Set(s.t.Context(), "p", "n", v)
	time.Sleep(time.Second)
	return err
}

func (s shelf) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s shelf) get(keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		_, err := s.Get(s.t.Context(), "p", "n", key)
		s.must(err)
		time.Sleep(time.Second)
	}
}

func (s shelf) wantKeys(want ...string) {
	s.t.Helper()
	page, _, _, err := s.List(s.t.Context(), "p", "n", "", "", 100)
	s.must(err)
	var got []string
	for _, k := range page.Keys {
		got = append(got, k.Key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Error(diff)
	}
}

func pinned(v *kv.Value)          { v.Pinned = true }
func ttl(n int) func(v *kv.Value) { return func(v *kv.Value) { v.TTL = n } }

// TestEvictionOrder: each strategy takes what it says, first what comes first, and no pinned key.
func TestEvictionOrder(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string][]string{
		kv.LRU:       {"d", "c", "b", "a"},
		kv.LFU:       {"a", "c", "b", "d"},
		kv.TTL:       {"c", "a", "d", "b"}, // of those without an end, the one that is idle longest
		kv.SizeBased: {"c", "b", "a", "d"},
		kv.Hybrid:    {"c", "b", "d", "a"}, // 25×3÷3, 20×2÷3, 5×6÷4, 10×1÷2
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t, memory.GC{Strategy: kv.LRU, EverySeconds: 3600, MaxPercent: 95, TargetPercent: 1})
				s.must(s.set("pin", 25, pinned))
				s.must(s.set("a", 10, ttl(2000)))
				s.must(s.set("b", 20))
				s.must(s.set("c", 25, ttl(1000)))
				s.must(s.set("d", 5))
				s.get("d", "d", "d", "b", "c", "c", "b", "a")
				for _, dry := range []bool{true, false} {
					done, err := s.Evict(t.Context(), "p", "n", memory.GC{Strategy: strategy, MaxPercent: 80, TargetPercent: 1}, dry)
					s.must(err)
					if diff := cmp.Diff(want, done.Keys); diff != "" {
						t.Error(diff)
					}
					if done.KeysBefore != 5 || done.KeysAfter != 1 || done.BytesBefore/(1<<20/100) != 85 || done.BytesAfter/(1<<20/100) != 25 {
						t.Errorf("%+v", done)
					}
					if dry {
						s.wantKeys("a", "b", "c", "d", "pin")
					}
				}
				s.wantKeys("pin")
			})
		})
	}
}

// TestEvictionBounds: nothing goes below the maximum, and no more than to the target.
func TestEvictionBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, memory.GC{})
		for i := range 8 {
			s.must(s.set(fmt.Sprint(i), 10))
		}
		evict := func(gc memory.GC) kv.Evicted {
			t.Helper()
			done, err := s.Evict(t.Context(), "p", "n", gc, false)
			s.must(err)
			return done
		}
		if done := evict(memory.GC{MaxPercent: 81}); len(done.Keys) != 0 || done.Strategy != kv.Hybrid || done.MaxBytes != 1<<20 {
			t.Errorf("%+v", done)
		}
		evict(memory.GC{Strategy: kv.LRU, MaxPercent: 79})
		s.wantKeys("2", "3", "4", "5", "6", "7")
		for field, gc := range map[string]memory.GC{"strategy": {Strategy: "fifo"}, "max_memory_percent": {MaxPercent: 101}, "target_memory_percent": {TargetPercent: 80}} {
			_, err := s.Evict(t.Context(), "p", "n", gc, false)
			if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), field) {
				t.Errorf("%v, want %s", err, field)
			}
		}
	})
}

// TestEvictionMakesRoom: a full namespace takes a new key in the place of others, but not of pinned
// ones, nor of keys of the same call.
func TestEvictionMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, memory.GC{Strategy: kv.LRU, EverySeconds: 3600, MaxPercent: 80, TargetPercent: 60})
		s.must(s.set("pin", 40, pinned))
		s.must(s.set("a", 25))
		s.must(s.set("b", 25))
		s.must(s.set("c", 25)) // b, too, leaves for the target
		s.wantKeys("c", "pin")
		s.must(s.set("c", 60))
		s.wantKeys("c", "pin")
		if err := s.set("d", 61); !fault.Is(err, fault.Quota) {
			t.Errorf("%v; the pinned key leaves no room", err)
		}
		s.wantKeys("c", "pin")
		if _, err := s.Increment(t.Context(), "p", "n", "count", "1", 0, ""); err != nil {
			t.Error(err)
		}
		s.wantKeys("count", "pin")
		if _, err := s.Increment(t.Context(), "p", "n", "count", "1", 0, ""); err != nil {
			t.Error(err)
		}
		s = newShelf(t, memory.GC{})
		s.must(s.set("a", 60))
		if err := s.set("b", 60); !fault.Is(err, fault.Quota) {
			t.Errorf("%v without a strategy", err)
		}
	})
}

// TestEvictionRuns: a namespace is looked at each interval after it was written to.
func TestEvictionRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, memory.GC{Strategy: kv.LRU, EverySeconds: 600, MaxPercent: 80, TargetPercent: 60})
		ctx, stop := context.WithCancelCause(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- sweep(ctx, s.Service) }()
		for i := range 9 {
			s.must(s.set(fmt.Sprint(i), 10))
		}
		s.get("0")
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		s.wantKeys("0", "1", "2", "3", "4", "5", "6", "7", "8")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s.wantKeys("0", "4", "5", "6", "7", "8")
		stop(errors.New("the test is over"))
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
