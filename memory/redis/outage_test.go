package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

func agent(n int) memory.Agent {
	return memory.Agent{ID: fmt.Sprintf("agent-%04d", n), Project: "acme", Status: memory.Running, StartMS: 1, Rev: 1}
}

func create(t *testing.T, s *redis.Store, a memory.Agent) {
	t.Helper()
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
}

// says gives a decision that appends one message in a turn of its own.
func says(text string) memory.Decision {
	return func(tx memory.AgentView) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1}}}, nil
	}
}

// ends gives a decision that ends the agent.
func ends(stopMS int64) memory.Decision {
	return func(tx memory.AgentView) (memory.Change, error) {
		a := tx.Head().Agent
		a.Status, a.StopMS, a.Message, a.Rev = memory.Stopped, stopMS, memory.EndOK, tx.Head().Rev+1
		return memory.Change{Agent: &a}, nil
	}
}

// write starts each writers for each of the first agents.
func write(t *testing.T, stores []*redis.Store, agents, each int) *memorytest.Writers {
	list := make([]memory.Agent, agents)
	for n := range list {
		list[n] = agent(n)
	}
	return memorytest.Write(t, stores, list, each)
}

// TestSeveralServers has many write to the same agents through several stores: order and turn numbers hold, and each reads what another wrote.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	var stores []*redis.Store
	for range 3 {
		stores = append(stores, open(t, redis.Options{URL: url}))
	}
	const agents = 4
	for n := range agents {
		create(t, stores[0], agent(n))
	}
	w := write(t, stores, agents, 6)
	for i := range 30 { // read what was just written, elsewhere
		w.More(t, 5)
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
			t.Fatalf("another server does not show %q", text)
		}
	}
	w.Done(t, stores[1])
	if n := w.Lost.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
}

// TestRestart stops and starts a Redis that keeps everything, by shutdown and by kill -9, while servers write. What was acknowledged is there, the probe tells of the outage, and
// everything goes on by itself.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	var stores []*redis.Store
	for range 2 {
		stores = append(stores, open(t, redis.Options{URL: server.URL(), Timeout: 5 * time.Second}))
	}
	const agents = 4
	for n := range agents {
		create(t, stores[0], agent(n))
	}
	w := write(t, stores, agents, 4)
	for _, crash := range []bool{false, true} {
		w.More(t, 50)
		server.Down(crash)
		for _, s := range stores {
			if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
				t.Errorf("the probe of a stopped server: %v", err)
			}
			if _, err := s.Head(t.Context(), "acme", agent(0).ID); !fault.Is(err, fault.Unavailable) {
				t.Errorf("a read of a stopped server: %v", err)
			}
		}
		server.Up()
		w.More(t, 50)
		for _, s := range stores {
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the probe once it is back: %v", err)
			}
		}
	}
	w.Done(t, stores[1])
	if w.Lost.Load() == 0 {
		t.Error("the server was away, and no write failed")
	}
}

// notices collects what the operator is told.
type notices struct {
	mu   sync.Mutex
	list []string
	told chan struct{}
}

func (n *notices) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, text)
	select {
	case n.told <- struct{}{}:
	default:
	}
}

// want waits for a notice with the words.
func (n *notices) want(t *testing.T, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n.mu.Lock()
		text := strings.Join(n.list, "\n")
		n.mu.Unlock()
		if strings.Contains(text, words) {
			return
		}
		select {
		case <-n.told:
		case <-ctx.Done():
			t.Fatalf("nobody was told of %q:\n%s", words, text)
		}
	}
}

// again tries until what is tried is not fault.Unavailable any more; then it must have succeeded.
func again(t *testing.T, try func() error) {
	t.Helper()
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return
		}
		if !fault.Is(err, fault.Unavailable) || n == 50 {
			t.Fatalf("try %d: %v", n, err)
		}
	}
}

// TestLost restarts a Redis that keeps nothing. Agents from before are not found, scripts are loaded anew, the operator is told, and new agents of the same names and ids work.
func TestLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	told := &notices{told: make(chan struct{}, 1)}
	s := open(t, redis.Options{URL: server.URL(), Notice: told.add})
	told.want(t, "keeps nothing on disk: all memory is gone when it restarts")
	a := agent(1)
	a.Name = "desk"
	create(t, s, a)
	if err := s.Update(t.Context(), "acme", a.ID, says("before")); err != nil {
		t.Fatal(err)
	}
	server.Down(true)
	server.Up()
	// Each connection is found broken once, by whoever uses it next.
	for err := s.Update(t.Context(), "acme", a.ID, says("after")); !fault.Is(err, fault.NotFound); err = s.Update(t.Context(), "acme", a.ID, says("after")) {
		if !fault.Is(err, fault.Unavailable) || t.Context().Err() != nil {
			t.Fatalf("a write to an agent that is gone: %v", err)
		}
	}
	if _, err := s.Head(t.Context(), "acme", a.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("an agent that is gone: %v", err)
	}
	again(t, func() error { _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); return err })
	again(t, func() error { return s.Update(t.Context(), "acme", a.ID, says("anew")) })
	if got := memorytest.Whole(t, s, a); len(got) != 1 || got["anew"] != 1 {
		t.Errorf("the new agent holds %v", got)
	}
	n := 0
	if err := s.Live(t.Context(), func(memory.Head) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d live agents, %v", n, err)
	}
	told.want(t, "has lost what it held")
}

// TestUnwilling: a server that takes no writes now is fault.Unavailable, and what it is asked for works again once it does.
func TestUnwilling(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redis.Options{URL: server.URL()})
	create(t, s, agent(1))
	for _, tt := range []struct{ name, on, off string }{
		{"a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
		{"no memory left", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
	} {
		redistest.Do(t, server.URL(), strings.Fields(tt.on)...)
		if err := s.Update(t.Context(), "acme", agent(1).ID, says("x")); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s, the probe: %v", tt.name, err)
		}
		redistest.Do(t, server.URL(), strings.Fields(tt.off)...)
		again(t, func() error { return s.Update(t.Context(), "acme", agent(1).ID, says("x")) })
	}
}

// TestRollback has a server go back to its last snapshot under a store that does not notice: what another store writes in place of what was lost is what the first one shows and builds on, and both are told.
func TestRollback(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	told := &notices{told: make(chan struct{}, 1)}
	a, b := open(t, redis.Options{URL: srv.URL(), Notice: told.add}), open(t, redis.Options{URL: srv.URL()})
	create(t, a, agent(1))
	if err := a.Update(t.Context(), "acme", agent(1).ID, says("one")); err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, srv.URL(), "SAVE")
	if err := a.Update(t.Context(), "acme", agent(1).ID, says("lost")); err != nil {
		t.Fatal(err)
	}
	srv.Down(true)
	srv.Up()
	again(t, func() error { return b.Update(t.Context(), "acme", agent(1).ID, says("acked")) })
	amend := func(tx memory.AgentView) (memory.Change, error) {
		m := tx.Head().Last
		m.Rev = tx.Head().Rev + 1
		m.Content += " (heard)"
		return memory.Change{Replace: []memory.Message{m}}, nil
	}
	again(t, func() error { return a.Update(t.Context(), "acme", agent(1).ID, amend) })
	for _, s := range []*redis.Store{a, b, open(t, redis.Options{URL: srv.URL()})} {
		if got := memorytest.Whole(t, s, agent(1)); len(got) != 2 || got["one"] != 1 || got["acked (heard)"] != 1 {
			t.Errorf("the ledger is %v", got)
		}
	}
	told.want(t, "was started anew")
}
