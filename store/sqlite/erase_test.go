package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// Agents that are kept since something is still to be sent of them, be they many, are passed over
// and keep no other from being swept.
func TestSweepPassesOver(t *testing.T) {
	t.Parallel()
	const kept, swept = 300, 40
	s := open(t, sqlite.Options{})
	if err := webhook.CreateEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://x.example"}, 0); err != nil {
		t.Fatal(err)
	}
	for i := range kept + swept {
		a := agent("p", i)
		a.Status, a.StopMS = memory.Stopped, int64(5+i/100)
		c := memory.Change{}
		if i < kept {
			c.Events = []memory.Event{{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: 5, Body: []byte("{}")}}
		}
		if _, _, err := s.Create(t.Context(), a, 0, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{30, swept - 30, 0} {
		if n, err := s.Sweep(t.Context(), 1000, 30); err != nil || n != want {
			t.Fatalf("swept %d, want %d: %v", n, want, err)
		}
	}
	list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: 1000, Limit: kept, Lease: 1})
	if err != nil || len(list) != kept {
		t.Fatalf("%d wait, want %d: %v", len(list), kept, err)
	}
	for _, d := range list {
		if err := s.Finish(t.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Sweep(t.Context(), 1000, 1000); err != nil || n != kept {
		t.Errorf("swept %d once they were sent, want %d: %v", n, kept, err)
	}
}
