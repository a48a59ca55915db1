package memcachedkv_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/memory/kv/memcachedkv"
)

func open(t *testing.T) kv.Store {
	s, err := memcachedkv.Open(memcachedkv.Options{Address: kvtest.StartMemcached(t).Addr, Conns: 10, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, true, open)
}

// TestLimits: what memcached cannot do is refused with its name.
func TestLimits(t *testing.T) {
	t.Parallel()
	s, at := open(t), kv.Space{Project: "p", Name: "n"}
	if _, err := s.ListKeys(t.Context(), at, "", 1, 1); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "memcached") {
		t.Errorf("list: %v", err)
	}
	small := kv.Entry{Key: "small", Value: []byte("1"), ExpiresMS: kv.Never}
	if err := kv.Put(t.Context(), s, at, small, kv.Limit{}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.EraseProject(t.Context(), s, "p", math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	if found, err := s.GetKeys(t.Context(), at, []string{"small"}, 1); err != nil || len(found) > 0 {
		t.Errorf("after the project was erased: %v, %v", found, err)
	}
	big := kv.Entry{Key: "k", Value: make([]byte, memcachedkv.MaxValue+1), ExpiresMS: kv.Never}
	if err := kv.Put(t.Context(), s, at, big, kv.Limit{}, 1); !fault.Is(err, fault.TooLarge) {
		t.Errorf("a large value: %v", err)
	}
	big.Value = make([]byte, memcachedkv.MaxValue)
	if err := kv.Put(t.Context(), s, at, big, kv.Limit{}, 1); err != nil {
		t.Errorf("the largest value: %v", err)
	}
}
