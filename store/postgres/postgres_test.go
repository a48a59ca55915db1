package postgres_test

import (
	"context"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// dataKey is a key for Options.DataKey.
var dataKey = []byte("0123456789abcdef0123456789abcdef")

// open opens a store on a schema of the test's own, or on the one that o names.
func open(t *testing.T, o postgres.Options) *store.Postgres {
	t.Helper()
	return openWith(t, o, engine.Options{})
}

// openWith is open with an engine of other options.
func openWith(t *testing.T, o postgres.Options, e engine.Options) *store.Postgres {
	t.Helper()
	if o.URL == "" {
		o.URL = postgrestest.URL(t)
	}
	s, err := store.OpenPostgres(t.Context(), o, e)
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

// sound is open for a test that does not spoil its tables: they are checked when it ends, unless it
// has closed the store.
func sound(t *testing.T, o postgres.Options) *store.Postgres {
	t.Helper()
	s := open(t, o)
	t.Cleanup(func() {
		if err := s.Probe(context.WithoutCancel(t.Context()), func(f export.Finding) error { t.Error(f.What); return nil }); err != nil && !fault.Is(err, fault.Unavailable) {
			t.Error(err)
		}
	})
	return s
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, false, func(t *testing.T) kv.Store {
		return sound(t, postgres.Options{SealKey: []byte("a long enough secret")})
	})
}

// TestContract is the contract of the store below the engine.
func TestContract(t *testing.T) {
	storetest.RunStore(t, func(t *testing.T) memory.Store { return sound(t, postgres.Options{}).Store })
}

// TestStore is the contract of the store with an engine above it.
//
// Rules: 000-28, 004-3
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger { return sound(t, postgres.Options{}) })
}

// TestStoreUncached runs the contract with almost no memory for the cache, so that every read goes
// to the database.
func TestStoreUncached(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger {
		return openWith(t, postgres.Options{DataKey: dataKey}, engine.Options{CacheBytes: 1})
	})
}

// TestStoreAlone runs the contract with a transaction for each call.
func TestStoreAlone(t *testing.T) {
	storetest.Run(t, func(t *testing.T) memory.Ledger {
		return openWith(t, postgres.Options{}, engine.Options{MaxGroup: 1, Committers: 4})
	})
}

func TestConversations(t *testing.T) {
	storetest.RunConversations(t, func(t *testing.T) kv.Store { return sound(t, postgres.Options{SealKey: []byte("key")}) })
}

// TestWorking runs the contract of working memories.
//
// Rules: 004-6
func TestWorking(t *testing.T) {
	storetest.RunWorking(t, func(t *testing.T) storetest.WorkingStore { return sound(t, postgres.Options{DataKey: dataKey}) })
}

func TestItems(t *testing.T) {
	storetest.RunItems(t, func(t *testing.T) storetest.ItemStore { return sound(t, postgres.Options{DataKey: dataKey}) })
}

func TestQueue(t *testing.T) {
	webhooktest.Run(t, func(t *testing.T) (memory.Ledger, webhook.Store) {
		s := open(t, postgres.Options{DataKey: dataKey})
		return s, s
	})
}

func TestUsage(t *testing.T) {
	storetest.RunUsage(t, func(t *testing.T) storetest.UsageStore { return sound(t, postgres.Options{}) })
}

func TestDue(t *testing.T) {
	t.Parallel()
	storetest.RunDue(t, func(t *testing.T) storetest.DueStore { return sound(t, postgres.Options{}) })
}

func TestCold(t *testing.T) {
	t.Parallel()
	storetest.RunCold(t, func(t *testing.T) storetest.ColdStore {
		return sound(t, postgres.Options{SealKey: []byte("key"), DataKey: dataKey}).Store
	})
}

func TestHolds(t *testing.T) {
	storetest.RunHolds(t, func(t *testing.T) storetest.HoldStore { return sound(t, postgres.Options{SealKey: []byte("key")}) })
}

func TestRecords(t *testing.T) {
	storetest.RunRecords(t, func(t *testing.T) storetest.RecordStore { return sound(t, postgres.Options{DataKey: dataKey}) })
}

func TestFinding(t *testing.T) {
	storetest.RunFinding(t, func(t *testing.T) storetest.RecordStore { return sound(t, postgres.Options{Terms: storetest.Terms}) })
}

// TestRecordsOfServers: two servers change one space, and a reader by revision of a third misses
// nothing.
func TestRecordsOfServers(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	a, b, c := open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})
	storetest.FollowRecords(t, t.Context(), record.Space{Project: "p", Name: "fact", User: "u"}, c, a, b)
}
