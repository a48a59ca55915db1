package inmem_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// TestContract is the contract of the store below the engine.
func TestContract(t *testing.T) {
	memorytest.RunStore(t, func(t *testing.T) memory.Store { return inmem.New() })
}

// TestStore is the contract of the store with an engine above it.
//
// Rules: 000-28, 004-3
func TestStore(t *testing.T) {
	memorytest.Run(t, func(*testing.T) memory.Ledger { return memorytest.New() })
}

func TestQueue(t *testing.T) {
	webhooktest.Run(t, func(*testing.T) (memory.Ledger, webhook.Store) {
		s := memorytest.New()
		return s, s
	})
}

func TestConversations(t *testing.T) {
	memorytest.RunConversations(t, func(*testing.T) kv.Store { return memorytest.New() })
}

// TestWorking runs the contract of working memories.
//
// Rules: 004-6
func TestWorking(t *testing.T) {
	memorytest.RunWorking(t, func(*testing.T) memorytest.WorkingStore { return memorytest.New() })
}

func TestItems(t *testing.T) {
	memorytest.RunItems(t, func(*testing.T) memorytest.ItemStore { return memorytest.New() })
}
