package inmem_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/store/inmem"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// TestContract is the contract of the store below the engine.
func TestContract(t *testing.T) {
	storetest.RunStore(t, func(t *testing.T) memory.Store { return inmem.New() })
}

// TestStore is the contract of the store with an engine above it.
//
// Rules: 000-28, 004-3
func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) memory.Ledger { return storetest.New() })
}

func TestQueue(t *testing.T) {
	webhooktest.Run(t, func(*testing.T) (memory.Ledger, webhook.Store) {
		s := storetest.New()
		return s, s
	})
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, false, func(*testing.T) kv.Store { return storetest.New() })
}

func TestConversations(t *testing.T) {
	storetest.RunConversations(t, func(*testing.T) kv.Store { return storetest.New() })
}

// TestWorking runs the contract of working memories.
//
// Rules: 004-6
func TestWorking(t *testing.T) {
	storetest.RunWorking(t, func(*testing.T) storetest.WorkingStore { return storetest.New() })
}

func TestItems(t *testing.T) {
	storetest.RunItems(t, func(*testing.T) storetest.ItemStore { return storetest.New() })
}

func TestUsage(t *testing.T) {
	storetest.RunUsage(t, func(*testing.T) storetest.UsageStore { return storetest.New() })
}

func TestRecords(t *testing.T) {
	storetest.RunRecords(t, func(*testing.T) storetest.RecordStore { return storetest.New() })
}

func TestFinding(t *testing.T) {
	storetest.RunFinding(t, func(*testing.T) storetest.RecordStore {
		s := storetest.New()
		s.Terms = storetest.Terms
		return s
	})
}
