package agents_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// awayStore is a store that cannot list its live agents the first times.
type awayStore struct {
	memory.Ledger
	away atomic.Int32
}

func (s *awayStore) Live(ctx context.Context, each func(memory.Head) error) error {
	if s.away.Add(-1) >= 0 {
		return fault.New(fault.Unavailable, "the database is away")
	}
	return s.Ledger.Live(ctx, each)
}

// A database that is away when a server begins does not end it: the agents' timers start when it is
// back.
func TestRunWaitsForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &awayStore{Ledger: storetest.New(t)}
		store.away.Store(3)
		told := 0
		s := newService(t, func(c *agents.Config) {
			c.Ledger = store
			c.OnError = func(string, error) { told++ }
		})
		a := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 5 })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Agents.Run(ctx) }()
		time.Sleep(15 * time.Second) // fake time
		synctest.Wait()
		if a, err := s.Agents.Agent(t.Context(), a.Project, a.ID); err != nil || a.Status != memory.Stopped {
			t.Errorf("the idle agent is %s, %v", a.Status, err)
		}
		stop()
		if err := <-ended; err != nil || told != 3 {
			t.Errorf("Run gave %v; %d failures were told", err, told)
		}
	})
}
