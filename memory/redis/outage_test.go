package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
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
func says(text string) memory.Decide {
	return func(tx memory.Tx) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1}}}, nil
	}
}

// ends gives a decision that ends the agent.
func ends(stopMS int64) memory.Decide {
	return func(tx memory.Tx) (memory.Change, error) {
		a := tx.Head().Agent
		a.Status, a.StopMS, a.Message, a.Rev = memory.Stopped, stopMS, memory.EndOK, tx.Head().Rev+1
		return memory.Change{Agent: &a}, nil
	}
}

// whole reads an agent's ledger and checks its numbers.
func whole(t *testing.T, s *redis.Store, a memory.Agent) map[string]int {
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

func write(t *testing.T, stores []*redis.Store, agents, each int) *writers {
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
func (w *writers) done(t *testing.T, s *redis.Store, agents int) {
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
			t.Fatalf("another server does not show %q", text)
		}
	}
	w.done(t, stores[1], agents)
	if n := w.lost.Load(); n > 0 {
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
		w.more(t, 50)
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
		w.more(t, 50)
		for _, s := range stores {
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the probe once it is back: %v", err)
			}
		}
	}
	w.done(t, stores[1], agents)
	if w.lost.Load() == 0 {
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
	if got := whole(t, s, a); len(got) != 1 || got["anew"] != 1 {
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
	amend := func(tx memory.Tx) (memory.Change, error) {
		m := tx.Head().Last
		m.Rev = tx.Head().Rev + 1
		m.Content += " (heard)"
		return memory.Change{Replace: []memory.Message{m}}, nil
	}
	again(t, func() error { return a.Update(t.Context(), "acme", agent(1).ID, amend) })
	for _, s := range []*redis.Store{a, b, open(t, redis.Options{URL: srv.URL()})} {
		if got := whole(t, s, agent(1)); len(got) != 2 || got["one"] != 1 || got["acked (heard)"] != 1 {
			t.Errorf("the ledger is %v", got)
		}
	}
	told.want(t, "was started anew")
}
