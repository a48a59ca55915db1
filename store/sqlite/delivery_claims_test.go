package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// A claim dies with the process that held it: its delivery is due again at once, whatever its lease
// says, as the attempt of which nothing was noted. What the old owner says of it, who may be a
// goroutine that was forgotten, counts for nothing.
func TestClaimsEndWithTheirOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s) // one delivery is done, one waits
	claim := webhook.Claim{NowMS: 10, Limit: 10, Lease: time.Hour}
	before, err := webhook.ClaimFrom(t.Context(), s, claim)
	if err != nil || len(before) != 1 {
		t.Fatalf("claimed %d: %v", len(before), err)
	}
	if again, err := webhook.ClaimFrom(t.Context(), s, claim); err != nil || len(again) != 0 {
		t.Fatalf("claimed %d twice: %v", len(again), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sqlite.Options{Path: path})
	after, err := webhook.ClaimFrom(t.Context(), s, claim)
	if err != nil || len(after) != 1 {
		t.Fatalf("claimed %d after reopening, want 1: %v", len(after), err)
	}
	if d := after[0]; d.EventID != before[0].EventID || d.Attempt != before[0].Attempt || d.Fence <= before[0].Fence {
		t.Errorf("claimed %s attempt %d fence %d after %s attempt %d fence %d",
			d.EventID, d.Attempt, d.Fence, before[0].EventID, before[0].Attempt, before[0].Fence)
	}
	if err := s.Finish(t.Context(), before[0], webhook.Result{State: webhook.Delivered, AtMS: 20, Try: webhook.Attempt{N: 1}}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the old owner's result: %v", err)
	}
}
