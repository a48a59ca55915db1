package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

func testSweep(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := range 6 {
		a := create(t, ctx, s, newAgent(n))
		for i := range 40 {
			update(t, ctx, s, a, says(fmt.Sprint(i)))
		}
	}
	update(t, ctx, s, newAgent(0), end(memory.Stopped, 1000))
	update(t, ctx, s, newAgent(1), end(memory.Failed, 1500))
	update(t, ctx, s, newAgent(2), end(memory.Stopped, 2000)) // ended at the time, not before it
	update(t, ctx, s, newAgent(3), end(memory.Stopping, 1000))
	n, err := s.Sweep(ctx, 2000, 100)
	if err != nil || n != 2 {
		t.Fatalf("swept %d, %v", n, err)
	}
	for n := range 6 {
		a := newAgent(n)
		if n >= 2 {
			if list := ledger(t, ctx, s, a); len(list) != 40 {
				t.Errorf("agent %d has %d messages left", n, len(list))
			}
			continue
		}
		_, err := s.Head(ctx, project, a.ID)
		wantCode(t, err, fault.NotFound)
		_, _, err = s.Recent(ctx, project, a.ID, 10, true)
		wantCode(t, err, fault.NotFound)
		_, err = s.Messages(ctx, project, a.ID, memory.MessageQuery{Limit: 10})
		wantCode(t, err, fault.NotFound)
		wantCode(t, s.Update(ctx, project, a.ID, says("x")), fault.NotFound)
	}
	if n, err := s.Sweep(ctx, 2000, 100); err != nil || n != 0 {
		t.Errorf("a second sweep erased %d, %v", n, err)
	}
	a := create(t, ctx, s, newAgent(0)) // the id comes back without what was erased
	if list := ledger(t, ctx, s, a); len(list) != 0 {
		t.Errorf("a new agent has %d messages", len(list))
	}
}

func testSweepLimit(t *testing.T, ctx context.Context, s memory.Ledger) {
	for n := range 25 {
		create(t, ctx, s, newAgent(n))
		update(t, ctx, s, newAgent(n), end(memory.Stopped, int64(100-n)))
	}
	for _, want := range []int{10, 10, 5, 0} {
		if n, err := s.Sweep(ctx, 1000, 10); err != nil || n != want {
			t.Fatalf("swept %d, want %d: %v", n, want, err)
		}
	}
	if n, err := s.Sweep(ctx, 1000, 0); err != nil || n != 0 {
		t.Errorf("swept %d with limit 0: %v", n, err)
	}
}

func testSweepFreesKeys(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := newAgent(1)
	a.JoinKey = "key"
	create(t, ctx, s, a)
	update(t, ctx, s, a, end(memory.Stopped, 1))
	if n, err := s.Sweep(ctx, 1000, 10); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	b := newAgent(2)
	b.JoinKey = "key"
	create(t, ctx, s, b)
}
