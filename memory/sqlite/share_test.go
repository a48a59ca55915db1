package sqlite_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// TestAppendsGoBeforeDeliveries: an append that waits together with the results of many attempts
// does not wait for all of them, and none of them is lost.
func TestAppendsGoBeforeDeliveries(t *testing.T) {
	t.Parallel()
	const attempts = 500
	var most atomic.Int32
	hold := make(chan func(), 1) // run while the writer is held
	s := open(t, sqlite.Options{Observe: func(c sqlite.Commit) {
		most.Store(max(most.Load(), int32(c.Items)))
		select {
		case meanwhile := <-hold:
			meanwhile()
		default:
		}
	}})
	a := memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutEndpoint(t.Context(), webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"}); err != nil {
		t.Fatal(err)
	}
	update := func(c memory.Change) {
		t.Helper()
		err := s.Update(t.Context(), "p", "a", func(memory.AgentView) (memory.Change, error) { return c, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	var events []memory.Event
	for i := range attempts {
		events = append(events, memory.Event{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: 1, Body: []byte("{}")})
	}
	update(memory.Change{Events: events})
	list, err := s.Claim(t.Context(), webhook.Claim{NowMS: 2, Limit: attempts, Lease: time.Hour})
	if err != nil || len(list) != attempts {
		t.Fatalf("claimed %d: %v", len(list), err)
	}
	var wg sync.WaitGroup
	var done, begun atomic.Int32
	hold <- func() { // all others queue up meanwhile
		for _, d := range list {
			wg.Go(func() {
				begun.Add(1)
				if err := s.Finish(t.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 3, Try: webhook.Attempt{N: 1, Status: 200}}); err != nil {
					t.Errorf("finish: %v", err)
				}
				done.Add(1)
			})
		}
		for turns := 0; begun.Load() < attempts || turns < 1000; turns++ {
			runtime.Gosched()
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	update(memory.Change{Append: []memory.Message{{Seq: 1, Rev: 2, Role: memory.User, Content: "x"}}})
	if n := done.Load(); n > attempts/2 {
		t.Errorf("the append came after %d of %d results", n, attempts)
	}
	wg.Wait()
	if n := most.Load(); n > 256+1 || n < 2 { // maxLater and the append
		t.Errorf("one commit had %d calls", n)
	}
	if b, err := s.Backlog(t.Context()); err != nil || b.Pending != 0 {
		t.Errorf("%d still wait (%v)", b.Pending, err)
	}
}
