package sqlite_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// TestInMemory runs the contracts on stores in memory.
//
// Rules: 000-28, 004-3, 004-6
func TestInMemory(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"Contract": func(t *testing.T) {
			storetest.RunStore(t, func(t *testing.T) memory.Store { return storetest.New(t).Store })
		},
		"Store": func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) memory.Ledger { return storetest.New(t) })
		},
		"Queue": func(t *testing.T) {
			webhooktest.Run(t, func(t *testing.T) (memory.Ledger, webhook.Store) {
				s := storetest.New(t)
				return s, s
			})
		},
		"Keys": func(t *testing.T) {
			kvtest.Run(t, false, func(t *testing.T) kv.Store { return storetest.New(t) })
		},
		"Conversations": func(t *testing.T) {
			storetest.RunConversations(t, func(t *testing.T) kv.Store { return storetest.New(t) })
		},
		"Working": func(t *testing.T) {
			storetest.RunWorking(t, func(t *testing.T) storetest.WorkingStore { return storetest.New(t) })
		},
		"Items": func(t *testing.T) {
			storetest.RunItems(t, func(t *testing.T) storetest.ItemStore { return storetest.New(t) })
		},
		"Usage": func(t *testing.T) {
			storetest.RunUsage(t, func(t *testing.T) storetest.UsageStore { return storetest.New(t) })
		},
		"Records": func(t *testing.T) {
			storetest.RunRecords(t, func(t *testing.T) storetest.RecordStore { return storetest.New(t) })
		},
		"Finding": func(t *testing.T) {
			storetest.RunFinding(t, func(t *testing.T) storetest.RecordStore {
				return storetest.NewWith(t, sqlite.Options{Terms: storetest.Terms})
			})
		},
	} {
		t.Run(name, run)
	}
}

// TestInMemoryTurns: a read in memory keeps out writes while it lasts. Those that wait for it end
// with their contexts, and Close waits for it.
func TestInMemoryTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fake time
		s := storetest.New(t)
		a := memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
		if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
		reading, goOn := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			err := s.Live(t.Context(), func(memory.Head) error {
				close(reading)
				<-goOn
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-reading
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Usage(ctx); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a read that waited for too long: %v", err)
		}
		if _, err := s.Store.Erase(ctx, memory.Erasure{Ref: a.Ref()}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a write that waited for too long: %v", err)
		}
		closed := false
		wg.Go(func() {
			if err := s.Store.Close(); err != nil {
				t.Error(err)
			}
			closed = true
		})
		synctest.Wait()
		if closed {
			t.Error("closed during a read")
		}
		close(goOn)
		wg.Wait()
		if _, err := s.Usage(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a read of a closed store: %v", err)
		}
	})
}
