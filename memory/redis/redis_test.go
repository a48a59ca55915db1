package redis_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// open opens a store on a prefix of the test's own, or on the one that o names.
func open(t *testing.T, o redis.Options) *redis.Store {
	t.Helper()
	if o.URL == "" {
		o.URL = redistest.URL(t)
	}
	s, err := redis.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestStore is the contract of the store.
//
// Rules: 000-28, 004-3
func TestStore(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) memory.Ledger { return open(t, redis.Options{}) })
}

// TestStoreUncached runs the contract with next to no memory for the cache, so that everything is read from the server.
func TestStoreUncached(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) memory.Ledger {
		return open(t, redis.Options{CacheBytes: 1, SealKey: []byte("key")})
	})
}

func TestConversations(t *testing.T) {
	memorytest.RunConversations(t, func(t *testing.T) memory.ConversationStore { return open(t, redis.Options{SealKey: []byte("key")}) })
}

// TestWorking runs the contract of working memories.
//
// Rules: 004-6
func TestWorking(t *testing.T) {
	memorytest.RunWorking(t, func(t *testing.T) memorytest.WorkingStore { return open(t, redis.Options{SealKey: []byte("key")}) })
}

func TestItems(t *testing.T) {
	memorytest.RunItems(t, func(t *testing.T) memorytest.ItemStore { return open(t, redis.Options{}) })
}
