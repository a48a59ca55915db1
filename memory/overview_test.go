package memory_test

import (
	"context"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// manyCalls is a ledger of so many calls.
type manyCalls struct {
	memory.Ledger
	calls int
}

func (m manyCalls) Tallies(_ context.Context, _ string, fromMS, _ int64, each func(int64, []byte) error) error {
	for range m.calls {
		if err := each(fromMS, nil); err != nil {
			return err
		}
	}
	return nil
}

// TestOverviewBounded: an overview reads no more calls than it may.
func TestOverviewBounded(t *testing.T) {
	t.Parallel()
	got, err := memory.ReadOverview(t.Context(), manyCalls{calls: memory.MaxOverviewCalls}, "p", 0, 1000)
	if err != nil || got.Total.Calls != memory.MaxOverviewCalls {
		t.Errorf("%d calls, %v", got.Total.Calls, err)
	}
	if _, err := memory.ReadOverview(t.Context(), manyCalls{calls: memory.MaxOverviewCalls + 1}, "p", 0, 1000); !fault.Is(err, fault.Invalid) {
		t.Errorf("one more: %v", err)
	}
}
