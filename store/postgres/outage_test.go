package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/storetest"
)

func agent(n int) memory.Agent {
	return memory.Agent{ID: fmt.Sprintf("agent-%04d", n), Project: "acme", Status: memory.Running, StartMS: 1, Rev: 1}
}

func create(t *testing.T, s *store.Postgres, a memory.Agent) {
	t.Helper()
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
}

// says returns a decision that appends one message in a turn of its own.
func says(text string) memory.Decision {
	return func(tx memory.AgentView) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1}}}, nil
	}
}

// write starts concurrent writers to the first agents. The parameter each is the number of writers
// per agent.
func write(t *testing.T, servers []*store.Postgres, agents, each int) *storetest.Writers {
	list := make([]memory.Agent, agents)
	for n := range list {
		list[n] = agent(n)
	}
	return storetest.Write(t, servers, list, each)
}

// TestSeveralReplicas runs many writers of the same agents through several servers. Order and turn
// numbers must hold, and each server must read what another has written.
func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	var servers []*store.Postgres
	for range 3 {
		servers = append(servers, open(t, postgres.Options{URL: url}))
	}
	const agents = 4
	for n := range agents {
		create(t, servers[0], agent(n))
	}
	w := write(t, servers, agents, 6)
	for i := range 50 { // read what was just written, elsewhere
		w.More(t, 5)
		text := fmt.Sprint("read ", i)
		if err := servers[i%3].Update(t.Context(), "acme", agent(0).ID, says(text)); err != nil {
			t.Fatal(err)
		}
		_, list, err := servers[(i+1)%3].Recent(t.Context(), "acme", agent(0).ID, 200, false)
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
	w.Done(t, servers[1])
	if n := w.Lost.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
}

// TestRestart stops and starts the database, by shutdown and by crash, while replicas write. No
// acknowledged write may be lost, the probe must report the outage, and the replicas must recover
// by themselves.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	var servers []*store.Postgres
	for range 2 {
		servers = append(servers, open(t, postgres.Options{URL: server.URL(), Timeout: 5 * time.Second}))
	}
	const agents = 4
	for n := range agents {
		create(t, servers[0], agent(n))
	}
	w := write(t, servers, agents, 4)
	for _, crash := range []bool{false, true} {
		w.More(t, 50)
		server.Down(crash)
		for _, s := range servers {
			if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
				t.Errorf("the probe of a stopped database: %v", err)
			}
			if _, err := s.Head(t.Context(), "acme", agent(0).ID); !fault.Is(err, fault.Unavailable) {
				t.Errorf("a read of a stopped database: %v", err)
			}
		}
		server.Up()
		w.More(t, 50)
		for _, s := range servers {
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the probe once it is back: %v", err)
			}
		}
	}
	w.Done(t, servers[1])
	if w.Lost.Load() == 0 {
		t.Error("the database was away, and no write failed")
	}
}

// TestConnectionsCut makes the server close every connection again and again.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	s := open(t, postgres.Options{URL: server.URL()})
	const agents = 2
	for n := range agents {
		create(t, s, agent(n))
	}
	w := write(t, []*store.Postgres{s}, agents, 4)
	for range 20 {
		w.More(t, 20)
		postgrestest.Exec(t, server.URL(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'heardlog'")
	}
	w.More(t, 20)
	w.Done(t, s)
}
