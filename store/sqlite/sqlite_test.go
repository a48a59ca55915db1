package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// dataKey is a key for Options.DataKey.
var dataKey = []byte("0123456789abcdef0123456789abcdef")

// open opens a store in a folder of the test's own, or the one that o names.
func open(t *testing.T, o sqlite.Options) *store.SQLite {
	t.Helper()
	return openWith(t, o, engine.Options{})
}

func openWith(t *testing.T, o sqlite.Options, eo engine.Options) *store.SQLite {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "data", "heardlog.db")
	}
	s, err := store.OpenSQLite(t.Context(), o, eo)
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

// sound is open for a test that does not spoil its file, which is checked when it ends.
func sound(t *testing.T, o sqlite.Options) *store.SQLite {
	t.Helper()
	o.Path = filepath.Join(t.TempDir(), "heardlog.db")
	t.Cleanup(func() {
		r, err := sqlite.OpenReader(sqlite.Options{Path: o.Path, SealKey: o.SealKey, DataKey: o.DataKey})
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		if err := r.Probe(context.WithoutCancel(t.Context()), func(f export.Finding) error { t.Error(f.What); return nil }); err != nil {
			t.Error(err)
		}
	})
	return open(t, o)
}

// TestContract is the contract of the store below the engine.
func TestContract(t *testing.T) {
	storetest.RunStore(t, func(t *testing.T) memory.Store { return sound(t, sqlite.Options{}).Store })
}

// TestStore is the contract of the store with an engine above it.
//
// Rules: 000-28, 004-3
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger { return sound(t, sqlite.Options{}) })
}

// TestStoreUncached runs the contract with next to no memory for the cache, so that everything is
// read from the database.
func TestStoreUncached(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger {
		return openWith(t, sqlite.Options{DataKey: dataKey}, engine.Options{CacheBytes: 1})
	})
}

// TestStoreSmallCache has room for a few agents, so that views come and go.
func TestStoreSmallCache(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger {
		return openWith(t, sqlite.Options{SealKey: []byte("key")}, engine.Options{CacheBytes: 64 << 10})
	})
}

func TestQueue(t *testing.T) {
	webhooktest.Run(t, func(t *testing.T) (memory.Ledger, webhook.Store) {
		s := open(t, sqlite.Options{DataKey: dataKey})
		return s, s
	})
}

func TestConversations(t *testing.T) {
	storetest.RunConversations(t, func(t *testing.T) kv.Store { return sound(t, sqlite.Options{SealKey: []byte("key")}) })
}

// TestWorking runs the contract of working memories.
//
// Rules: 004-6
func TestWorking(t *testing.T) {
	storetest.RunWorking(t, func(t *testing.T) storetest.WorkingStore { return sound(t, sqlite.Options{DataKey: dataKey}) })
}

func TestItems(t *testing.T) {
	storetest.RunItems(t, func(t *testing.T) storetest.ItemStore { return sound(t, sqlite.Options{DataKey: dataKey}) })
}

func TestUsage(t *testing.T) {
	storetest.RunUsage(t, func(t *testing.T) storetest.UsageStore { return sound(t, sqlite.Options{}) })
}

func TestDue(t *testing.T) {
	t.Parallel()
	storetest.RunDue(t, func(t *testing.T) storetest.DueStore { return sound(t, sqlite.Options{}) })
}

func TestCold(t *testing.T) {
	t.Parallel()
	storetest.RunCold(t, func(t *testing.T) storetest.ColdStore {
		return sound(t, sqlite.Options{SealKey: []byte("key"), DataKey: dataKey}).Store
	})
}

func TestHolds(t *testing.T) {
	storetest.RunHolds(t, func(t *testing.T) storetest.HoldStore { return sound(t, sqlite.Options{SealKey: []byte("key")}) })
}

func TestRecords(t *testing.T) {
	storetest.RunRecords(t, func(t *testing.T) storetest.RecordStore { return sound(t, sqlite.Options{DataKey: dataKey}) })
}

func TestFinding(t *testing.T) {
	storetest.RunFinding(t, func(t *testing.T) storetest.RecordStore { return sound(t, sqlite.Options{Terms: storetest.Terms}) })
}
