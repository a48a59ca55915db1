package postgres_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/postgres/postgrestest"
)

// counted gives a URL that leads to the same database through a relay, which counts how often the database was asked and answered: round trips.
func counted(t *testing.T, to string) (string, *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var trips atomic.Int64
	server := u.Host
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relay(client, server, &trips)
		}
	}()
	u.Host = l.Addr().String()
	return u.String(), &trips
}

// relay passes on what comes until one side closes. What a client sends before it is answered is one question.
func relay(client net.Conn, server string, trips *atomic.Int64) {
	defer client.Close()
	db, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer db.Close()
	var mu sync.Mutex
	asked := false
	pass := func(to, from net.Conn, question bool) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			mu.Lock()
			if n > 0 && question && !asked {
				trips.Add(1)
			}
			if n > 0 {
				asked = question
			}
			mu.Unlock()
			if _, werr := to.Write(buf[:n]); werr != nil || err != nil && err != io.EOF || n == 0 {
				return
			}
		}
	}
	done := make(chan struct{})
	go func() { pass(client, db, false); close(done) }()
	pass(db, client, true)
	<-done
}

// TestRoundTrips: a lone caller waits for the database once an append, also after many callers have come together; many who read at once share looks.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 40
	to, trips := counted(t, postgrestest.URL(t))
	var commits, items atomic.Int64
	s, err := postgres.Open(t.Context(), postgres.Options{URL: to + "&pool_max_conns=4&pool_max_conn_idle_time=1h", Observe: func(c postgres.Commit) {
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
		before := trips.Load()
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				for range each {
					do(n)
				}
			})
		}
		wg.Wait()
		return trips.Load() - before
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
	before := trips.Load()
	for range each {
		append1(0)
	}
	// Now and then the pool looks whether a connection that was idle for a second still lives.
	if asked := trips.Load() - before; commits.Load() != each || asked > each*3/2 {
		t.Errorf("%d commits and %d round trips for %d appends of one caller, want %d", commits.Load(), asked, each, each)
	}
	if asked := together(func(n int) {
		if _, list, err := s.Recent(t.Context(), "acme", agent(n).ID, 8, true); err != nil || len(list) != 8 {
			t.Errorf("%d messages: %v", len(list), err)
		}
	}); asked > callers*each/2 {
		t.Errorf("%d round trips for %d reads by %d callers: they share too few", asked, callers*each, callers)
	}
	whole(t, s, agent(0))
}

// TestWrittenElsewhere: what a server knows of an agent is not what it decides by when another has written.
func TestWrittenElsewhere(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	var stores []*postgres.Store
	for range 2 {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: to})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	create(t, stores[0], agent(0))
	const rounds = 40
	for i := range rounds {
		s := stores[i/3%2]
		var seen int64
		err := s.Update(t.Context(), "acme", agent(0).ID, func(tx memory.Tx) (memory.Change, error) {
			seen = tx.Head().NextSeq
			return says("word")(tx)
		})
		if err != nil || seen != int64(i+1) {
			t.Errorf("append %d was decided at seq %d: %v", i, seen, err)
		}
		// Nor does a decision that writes nothing answer by what is out of date.
		err = stores[(i/3+1)%2].Update(t.Context(), "acme", agent(0).ID, func(tx memory.Tx) (memory.Change, error) {
			seen = tx.Head().NextSeq
			return memory.Change{}, nil
		})
		if err != nil || seen != int64(i+2) {
			t.Errorf("after append %d the other server sees seq %d: %v", i, seen, err)
		}
	}
	if got := whole(t, stores[1], agent(0)); got["word"] != rounds {
		t.Errorf("%v, want %d", got, rounds)
	}
}
