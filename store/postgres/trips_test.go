package postgres_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestRoundTrips checks that an append by a single caller costs one round trip, also after many
// callers were active, and that concurrent reads share queries.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 40
	proxy := postgrestest.NewProxy(t, postgrestest.URL(t))
	var commits, items atomic.Int64
	s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: proxy.URL() + "&pool_max_conns=4&pool_max_conn_idle_time=1h"}, engine.Options{Observe: func(c engine.Commit) {
		commits.Add(1)
		items.Add(int64(c.Items))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range callers {
		create(t, s, agent(n))
	}
	together := func(do func(n int)) (asked int64) {
		before := proxy.Trips()
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				for range each {
					do(n)
				}
			})
		}
		wg.Wait()
		return proxy.Trips() - before
	}
	append1 := func(n int) {
		if err := s.Update(t.Context(), "acme", agent(n).ID, says("word")); err != nil {
			t.Error(err)
		}
	}
	if asked := together(append1); asked > commits.Load()*3/2+20 {
		t.Errorf("%d round trips for %d commits of %d appends: some waited twice", asked, commits.Load(), items.Load())
	}
	if items.Load() < 2*commits.Load() {
		t.Errorf("%d commits for %d appends by %d callers: they share too few", commits.Load(), items.Load(), callers)
	}
	commits.Store(0)
	before := proxy.Trips()
	for range each {
		append1(0)
	}
	// The pool sometimes checks a connection that was idle for a second.
	if asked := proxy.Trips() - before; commits.Load() != each || asked > each*3/2 {
		t.Errorf("%d commits and %d round trips for %d appends of one caller, want %d", commits.Load(), asked, each, each)
	}
	if asked := together(func(n int) {
		if _, list, err := s.Recent(t.Context(), "acme", agent(n).ID, 8, true); err != nil || len(list) != 8 {
			t.Errorf("%d messages: %v", len(list), err)
		}
	}); asked > callers*each/2 {
		t.Errorf("%d round trips for %d reads by %d callers: they share too few", asked, callers*each, callers)
	}
	storetest.Whole(t, s, agent(0))
}

// TestWrittenElsewhere checks that a server does not decide by a cached agent that another server
// has changed.
func TestWrittenElsewhere(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	var servers []*store.Postgres
	for range 2 {
		s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: to}, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		servers = append(servers, s)
	}
	create(t, servers[0], agent(0))
	const rounds = 40
	for i := range rounds {
		s := servers[i/3%2]
		var seen int64
		err := s.Update(t.Context(), "acme", agent(0).ID, func(tx memory.AgentView) (memory.Change, error) {
			seen = tx.Head().NextSeq
			return says("word")(tx)
		})
		if err != nil || seen != int64(i+1) {
			t.Errorf("append %d was decided at seq %d: %v", i, seen, err)
		}
		// A decision that writes nothing does not use an outdated agent either.
		err = servers[(i/3+1)%2].Update(t.Context(), "acme", agent(0).ID, func(tx memory.AgentView) (memory.Change, error) {
			seen = tx.Head().NextSeq
			return memory.Change{}, nil
		})
		if err != nil || seen != int64(i+2) {
			t.Errorf("after append %d the other server sees seq %d: %v", i, seen, err)
		}
	}
	if got := storetest.Whole(t, servers[1], agent(0)); got["word"] != rounds {
		t.Errorf("%v, want %d", got, rounds)
	}
}

// TestColdGroup checks that a batch reads the agents that are not cached with the same number of
// round trips for many of them as for few.
func TestColdGroup(t *testing.T) {
	t.Parallel()
	const agents = 24
	to := postgrestest.URL(t)
	first := open(t, postgres.Options{URL: to})
	for n := range agents {
		create(t, first, agent(n))
		for i := range n {
			if err := first.Update(t.Context(), "acme", agent(n).ID, says(fmt.Sprint(n, " ", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	proxy := postgrestest.NewProxy(t, to)
	s := openWith(t, postgres.Options{URL: proxy.URL() + "&pool_max_conn_idle_time=1h"}, engine.Options{Committers: 1})
	// Their rows are known from now on, but not their contents: another server writes to all of
	// them.
	for n := range agents {
		if _, err := s.Head(t.Context(), "acme", agent(n).ID); err != nil {
			t.Fatal(err)
		}
		if err := first.Update(t.Context(), "acme", agent(n).ID, says("elsewhere")); err != nil {
			t.Fatal(err)
		}
	}
	// A first call holds the committer while the others come together.
	gate := make(chan struct{})
	var wg sync.WaitGroup
	began := make(chan struct{})
	wg.Go(func() {
		once := sync.OnceFunc(func() { close(began); <-gate })
		if err := s.Update(t.Context(), "acme", agent(0).ID, func(tx memory.AgentView) (memory.Change, error) { once(); return says("first")(tx) }); err != nil {
			t.Error(err)
		}
	})
	<-began
	var queued atomic.Int64
	for n := range agents {
		wg.Go(func() {
			queued.Add(1)
			var got memory.Message
			err := s.Update(t.Context(), "acme", agent(n).ID, func(tx memory.AgentView) (memory.Change, error) {
				got = tx.Head().Last
				return says("together")(tx)
			})
			if want := "elsewhere"; err != nil || n > 0 && got.Content != want {
				t.Errorf("agent %d: decided behind %q: %v", n, got.Content, err)
			}
		})
	}
	for queued.Load() < agents {
		runtime.Gosched()
	}
	before := proxy.Trips()
	close(gate)
	wg.Wait()
	if asked := proxy.Trips() - before; asked > agents {
		t.Errorf("%d round trips for a group of %d agents that had to be read", asked, agents)
	}
	for n := range agents {
		storetest.Whole(t, s, agent(n))
	}
}
