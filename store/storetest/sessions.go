package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// testCreateSessions: of joins at the same time with one memory model, as many succeed as it
// allows. Agents without it and with another do not count.
func testCreateSessions(t *testing.T, ctx context.Context, s memory.Ledger) {
	const limit = 3
	with := func(i int, model string) memory.Agent {
		a := newAgent(i)
		a.Settings.Memory.Model, a.Settings.Memory.MaxSessions = model, limit
		return a
	}
	create(t, ctx, s, newAgent(50))
	create(t, ctx, s, with(51, "another"))
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() { _, _, errs[i] = s.Create(ctx, with(i, "m"), 0, memory.Change{}) })
	}
	wg.Wait()
	won, first := 0, -1
	for i, err := range errs {
		if err == nil {
			won, first = won+1, i
		} else {
			wantCode(t, err, fault.Quota)
		}
	}
	if won != limit {
		t.Fatalf("%d agents live, limit %d", won, limit)
	}
	update(t, ctx, s, with(first, "m"), end(memory.Stopped, 9))
	if _, _, err := s.Create(ctx, with(101, "m"), 0, memory.Change{}); err != nil {
		t.Errorf("an ended agent still counts: %v", err)
	}
	page, err := s.Agents(ctx, memory.AgentQuery{Project: newAgent(1).Project, Labels: map[string]string{memory.ModelTag: "m"}, Statuses: []memory.Status{memory.Running}, Limit: 10})
	if err != nil || page.Total != limit {
		t.Errorf("%d agents are found by their model, %v", page.Total, err)
	}
}
