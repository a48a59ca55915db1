package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// A list of many endpoints in several states gives each delivery once and in order, wherever its
// pages end, and a replay selects the same ones.
func TestListMerges(t *testing.T) {
	t.Parallel()
	const endpoints, events = 7, 60
	s := open(t, sqlite.Options{})
	for i := range endpoints {
		if err := webhook.CreateEndpoint(t.Context(), s, webhook.Endpoint{ID: fmt.Sprint("e", i), Project: "p", URL: "https://x.example"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var list []memory.Event
	for i := range events {
		list = append(list, memory.Event{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: int64(100 + i/10), Body: []byte("{}")})
	}
	if _, _, err := s.Create(t.Context(), agent("p", 1), 0, memory.Change{Events: list}); err != nil {
		t.Fatal(err)
	}
	for id := int64(1); id <= endpoints*events; id += 3 {
		if _, err := s.Cancel(t.Context(), "p", id, 500); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 13, 500} {
		at, n, cursor := webhook.Cursor{MS: 1 << 62}, 0, ""
		for more := true; more; more = cursor != "" {
			page, err := s.Deliveries(t.Context(), webhook.DeliveryQuery{Project: "p", Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Deliveries {
				if r.CreatedMS > at.MS || r.CreatedMS == at.MS && r.ID >= at.ID {
					t.Fatalf("pages of %d: %d at %d comes after %d at %d", limit, r.ID, r.CreatedMS, at.ID, at.MS)
				}
				at = webhook.Cursor{MS: r.CreatedMS, ID: r.ID}
			}
			n, cursor = n+len(page.Deliveries), page.Next
		}
		if n != endpoints*events {
			t.Errorf("pages of %d: %d deliveries, want %d", limit, n, endpoints*events)
		}
	}
	canceled := webhook.DeliveryQuery{Project: "p", States: []webhook.DeliveryState{webhook.Canceled}}
	if r, err := s.ReplayAll(t.Context(), webhook.Replay{Filter: canceled, DryRun: true}); err != nil || r.Count != endpoints*events/3 {
		t.Errorf("%+v %v", r, err)
	}
}
