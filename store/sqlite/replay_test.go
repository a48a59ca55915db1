package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// TestReplayIsFinished: a replay that a crash cut short in the middle is finished when the file is
// opened again, each delivery once and at its pace; a call of its name gives the result.
func TestReplayIsFinished(t *testing.T) {
	t.Parallel()
	const events = 1300 // three slices
	path := filepath.Join(t.TempDir(), "s.db")
	ctx, cut := context.WithCancel(t.Context())
	armed, wrote := false, 0
	s := open(t, sqlite.Options{Path: path, Observe: func(sqlite.Commit) {
		if armed {
			if wrote++; wrote == 2 { // what is to be done, and the first slice
				cut()
			}
		}
	}})
	a := memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"}); err != nil {
		t.Fatal(err)
	}
	var list []memory.Event
	for i := range events {
		list = append(list, memory.Event{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: int64(i + 1), Body: []byte("{}")})
	}
	if err := s.Update(t.Context(), "p", "a", func(memory.AgentView) (memory.Change, error) { return memory.Change{Events: list}, nil }); err != nil {
		t.Fatal(err)
	}
	r := webhook.Replay{Filter: webhook.DeliveryQuery{Project: "p", States: []webhook.DeliveryState{webhook.Pending}}, NowMS: 10_000, PerSecond: 1000, Name: "k"}
	armed = true
	if got, err := s.ReplayAll(ctx, r); err == nil || got.Count == 0 || got.Count >= events {
		t.Fatalf("it was not cut short: %+v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sqlite.Options{Path: path})
	b, err := s.Backlog(t.Context())
	if err != nil || b.Pending != 2*events {
		t.Errorf("%d wait, want %d (%v)", b.Pending, 2*events, err)
	}
	r.NowMS = 20_000
	if got, err := s.ReplayAll(t.Context(), r); err != nil || got.Count != events || got.More {
		t.Errorf("%+v, %v", got, err)
	}
	seen, last := map[string]bool{}, int64(0)
	cursor := ""
	for more := true; more; {
		page, err := s.Deliveries(t.Context(), webhook.DeliveryQuery{Project: "p", FromMS: 10_000, Limit: webhook.MaxPage, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Deliveries {
			if seen[d.EventID] {
				t.Errorf("%s was replayed twice", d.EventID)
			}
			seen[d.EventID], last = true, max(last, d.DueMS)
		}
		cursor, more = page.Next, page.Next != ""
	}
	if len(seen) != events || last != 10_000+events-1 {
		t.Errorf("%d events were replayed, the last due at %d", len(seen), last)
	}
}

// TestReplayFailed: a replay without a name whose caller was told that it failed is not gone on
// with after a restart, perhaps weeks later, when he has asked again. One that cannot be read keeps
// neither the file from being opened nor the others from being finished.
func TestReplayFailed(t *testing.T) {
	t.Parallel()
	const events = 1300 // three slices
	path := filepath.Join(t.TempDir(), "s.db")
	ctx, cut := context.WithCancel(t.Context())
	armed, wrote := false, 0
	s := open(t, sqlite.Options{Path: path, Observe: func(sqlite.Commit) {
		if armed {
			if wrote++; wrote == 2 { // what is to be done, and the first slice
				cut()
			}
		}
	}})
	if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"}); err != nil {
		t.Fatal(err)
	}
	var c memory.Change
	for i := range events {
		c.Events = append(c.Events, memory.Event{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: int64(i + 1), Body: []byte("{}")})
	}
	if _, _, err := s.Create(t.Context(), memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, c); err != nil {
		t.Fatal(err)
	}
	armed = true
	got, err := s.ReplayAll(ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "p"}, NowMS: 10_000})
	if err == nil || got.Count == 0 || got.Count >= events {
		t.Fatalf("it was not cut short: %+v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rawSQL(t, path, `INSERT INTO replay (id, project, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done) VALUES ('r:1', 'p', '{', 1, 9, 9, 9, 0, 0, 0, 0, 0),
		('r:2', 'p', '{"filter":{"Project":"p","EventID":"n7"}}', 20000, 1300, 1<<62, 1<<62, 0, 0, 0, 0, 0)`)
	s = open(t, sqlite.Options{Path: path})
	if b, err := s.Backlog(t.Context()); err != nil || b.Pending != events+got.Count+1 {
		t.Errorf("%d wait, want %d (%v)", b.Pending, events+got.Count+1, err)
	}
}

// TestReplayOfErased: between an agent's erasure and that of its rows nothing of it is replayed: it
// would be accepted and then erased unsent.
func TestReplayOfErased(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, sqlite.Options{Path: path})
	if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"}); err != nil {
		t.Fatal(err)
	}
	a := memory.Agent{ID: "a", Project: "p", Status: memory.Stopped, StartMS: 1, StopMS: 2, Rev: 1}
	c := memory.Change{Events: []memory.Event{{ID: "n", Type: event.Left, CreatedMS: 2, Body: []byte("{}")}}}
	if _, _, err := s.Create(t.Context(), a, 0, c); err != nil {
		t.Fatal(err)
	}
	list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: 3, Limit: 1, Lease: 1})
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := s.Finish(t.Context(), list[0], webhook.Result{State: webhook.Delivered, AtMS: 3}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The first half of a sweep.
	rawSQL(t, path, "INSERT INTO erased SELECT no FROM agent; DELETE FROM agent")
	s = open(t, sqlite.Options{Path: path})
	if _, err := s.Replay(t.Context(), "p", list[0].ID, 5, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("replayed: %v", err)
	}
	got, err := s.ReplayAll(t.Context(), webhook.Replay{Filter: webhook.DeliveryQuery{Project: "p"}, NowMS: 5})
	if err != nil || got.Count != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if b, err := s.Backlog(t.Context()); err != nil || b.Pending != 0 {
		t.Errorf("%+v, %v", b, err)
	}
}
