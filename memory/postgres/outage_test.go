package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/postgres/postgrestest"
)

func agent(n int) memory.Agent {
	return memory.Agent{ID: fmt.Sprintf("agent-%04d", n), Project: "acme", Status: memory.Running, StartMS: 1, Rev: 1}
}

func create(t *testing.T, s *postgres.Store, a memory.Agent) {
	t.Helper()
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
}

// says gives a decision that appends one message in a turn of its own.
func says(text string) memory.Decide {
	return func(tx memory.Tx) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1}}}, nil
	}
}

// whole reads an agent's ledger and checks its numbers.
func whole(t *testing.T, s *postgres.Store, a memory.Agent) map[string]int {
	t.Helper()
	list, err := s.Messages(t.Context(), a.Project, a.ID, memory.MessageQuery{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, m := range list {
		if m.Seq != int64(i+1) || m.TurnID != int64(i) {
			t.Fatalf("message %d has seq %d and turn %d", i, m.Seq, m.TurnID)
		}
		seen[m.Content]++
	}
	return seen
}

// writers write to agents through stores until told to stop, and note what was acknowledged. They want no error but fault.Unavailable.
type writers struct {
	acked [][]string // by writer
	total atomic.Int64
	lost  atomic.Int64 // answers that were errors
	stop  chan struct{}
	wg    sync.WaitGroup
}

func write(t *testing.T, stores []*postgres.Store, agents, each int) *writers {
	w := &writers{stop: make(chan struct{}), acked: make([][]string, agents*each)}
	for i := range w.acked {
		w.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-w.stop:
					return
				default:
				}
				text := fmt.Sprintf("%d/%d", i, n)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := stores[(i+n)%len(stores)].Update(ctx, "acme", agent(i%agents).ID, says(text))
				cancel()
				switch {
				case err == nil:
					w.acked[i] = append(w.acked[i], text)
					w.total.Add(1)
				case fault.Is(err, fault.Unavailable):
					w.lost.Add(1)
				default:
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	return w
}

// more waits until so many more were acknowledged.
func (w *writers) more(t *testing.T, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for want := w.total.Load() + n; w.total.Load() < want; {
		if ctx.Err() != nil {
			t.Fatalf("%d writes were acknowledged, want %d", w.total.Load(), want)
		}
		time.Sleep(time.Millisecond) // between looks at a counter, not in place of a result
	}
}

// done stops and demands everything that was acknowledged, once.
func (w *writers) done(t *testing.T, s *postgres.Store, agents int) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	seen := make([]map[string]int, agents)
	for n := range agents {
		seen[n] = whole(t, s, agent(n))
	}
	for i, texts := range w.acked {
		for _, text := range texts {
			if got := seen[i%agents][text]; got != 1 {
				t.Fatalf("%q was acknowledged and is there %d times", text, got)
			}
		}
	}
	for _, texts := range seen {
		for text, n := range texts {
			if n > 1 {
				t.Errorf("%q is there %d times", text, n)
			}
		}
	}
}

// TestSeveralReplicas has many write to the same agents through several stores: order and turn numbers hold, and each reads what another wrote.
func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	var stores []*postgres.Store
	for range 3 {
		stores = append(stores, open(t, postgres.Options{URL: url}))
	}
	const agents = 4
	for n := range agents {
		create(t, stores[0], agent(n))
	}
	w := write(t, stores, agents, 6)
	for i := range 50 { // read what was just written, elsewhere
		w.more(t, 5)
		text := fmt.Sprint("read ", i)
		if err := stores[i%3].Update(t.Context(), "acme", agent(0).ID, says(text)); err != nil {
			t.Fatal(err)
		}
		_, list, err := stores[(i+1)%3].Recent(t.Context(), "acme", agent(0).ID, 200, false)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, m := range list {
			found = found || m.Content == text
		}
		if !found {
			t.Fatalf("another replica does not show %q", text)
		}
	}
	w.done(t, stores[1], agents)
	if n := w.lost.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
}

// TestRestart stops and starts the database, by shutdown and by crash, while replicas write. What was acknowledged is there, the probe tells of the outage, and
// everything goes on by itself.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	var stores []*postgres.Store
	for range 2 {
		stores = append(stores, open(t, postgres.Options{URL: server.URL(), Timeout: 5 * time.Second}))
	}
	const agents = 4
	for n := range agents {
		create(t, stores[0], agent(n))
	}
	w := write(t, stores, agents, 4)
	for _, crash := range []bool{false, true} {
		w.more(t, 50)
		server.Down(crash)
		for _, s := range stores {
			if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
				t.Errorf("the probe of a stopped database: %v", err)
			}
			if _, err := s.Head(t.Context(), "acme", agent(0).ID); !fault.Is(err, fault.Unavailable) {
				t.Errorf("a read of a stopped database: %v", err)
			}
		}
		server.Up()
		w.more(t, 50)
		for _, s := range stores {
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the probe once it is back: %v", err)
			}
		}
	}
	w.done(t, stores[1], agents)
	if w.lost.Load() == 0 {
		t.Error("the database was away, and no write failed")
	}
}

// TestConnectionsCut has the server end every connection again and again.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	s := open(t, postgres.Options{URL: server.URL()})
	const agents = 2
	for n := range agents {
		create(t, s, agent(n))
	}
	w := write(t, []*postgres.Store{s}, agents, 4)
	for range 20 {
		w.more(t, 20)
		postgrestest.Exec(t, server.URL(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'heardlog'")
	}
	w.more(t, 20)
	w.done(t, s, agents)
}
