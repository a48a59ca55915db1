package postgres_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestLease checks that two kinds of work for an agent have separate leases, each held by one
// server at a time, and that erasing the agent removes them.
func TestLease(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	a, b := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
	create(t, a, agent(0))
	const other memory.Work = "other"
	lease := func(s *store.Postgres, what memory.Work, wanted bool) func() {
		t.Helper()
		giveBack, ok, err := s.Lease(t.Context(), "acme", agent(0).ID, what, time.Hour)
		if err != nil || ok != wanted {
			t.Fatalf("lease of %s: %t, want %t: %v", what, ok, wanted, err)
		}
		return giveBack
	}
	timers := lease(a, memory.WorkTimers, true)
	lease(b, memory.WorkTimers, false)
	second := lease(b, other, true)
	lease(a, other, false)
	timers()
	lease(b, memory.WorkTimers, true)
	lease(a, other, false)
	second()
	again := lease(a, other, true)
	second() // the lease belongs to another server by now
	lease(b, other, false)
	again()
	if err := a.Erase(t.Context(), "acme", agent(0).ID); err != nil {
		t.Fatal(err)
	}
	lease(b, other, false)
}
