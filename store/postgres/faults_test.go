package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
)

// holding runs a statement in a transaction that keeps its locks until letGo is called.
func holding(t *testing.T, url, sql string, args ...any) (letGo func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if _, err = conn.Exec(ctx, "BEGIN"); err == nil {
		_, err = conn.Exec(ctx, sql, args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	letGo = sync.OnceFunc(func() {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	t.Cleanup(letGo)
	return letGo
}

// TestAnswerLost breaks the connection between a commit and its answer. The message must be stored
// at most once, even if another server has read it meanwhile, and exactly once if the append is
// acknowledged.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprint("read meanwhile: ", read), func(t *testing.T) {
			t.Parallel()
			to := postgrestest.URL(t)
			proxy := postgrestest.NewProxy(t, to)
			s, other := open(t, postgres.Options{URL: proxy.URL()}), open(t, postgres.Options{URL: to})
			create(t, s, agent(0))
			if err := s.Update(t.Context(), "acme", agent(0).ID, says("first")); err != nil {
				t.Fatal(err)
			}
			proxy.Deaf(true)
			done := make(chan error, 1)
			go func() { done <- s.Update(t.Context(), "acme", agent(0).ID, says("second")) }()
			<-proxy.Lost()
			for stored := 0; stored < 2; { // it is committed
				stored = len(storetest.Whole(t, other, agent(0)))
			}
			proxy.Deaf(false)
			if read {
				if h, err := s.Head(t.Context(), "acme", agent(0).ID); err != nil || h.Last.Content != "second" {
					t.Fatalf("%q, %v", h.Last.Content, err)
				}
			}
			proxy.Cut()
			if err := <-done; err != nil && !fault.Is(err, fault.Unavailable) {
				t.Error(err)
			}
			if got := storetest.Whole(t, other, agent(0)); got["second"] != 1 {
				t.Errorf("it is there %d times", got["second"])
			}
		})
	}
}

// TestHeldRow checks that only the writes of an agent fail whose row another session holds. Writes
// of other agents in the same batch wait for the lock once.
func TestHeldRow(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := openWith(t, postgres.Options{URL: to, Timeout: 4 * time.Second}, engine.Options{Committers: 1})
	const agents = 6
	for n := range agents {
		create(t, s, agent(n))
	}
	letGo := holding(t, to, "SELECT 1 FROM agent_head h JOIN agent a ON a.no = h.agent_no WHERE a.id = $1 FOR UPDATE OF h", agent(0).ID)
	w := write(t, []*store.Postgres{s}, agents, 2)
	w.More(t, 100)
	if held := len(w.Acked[0]) + len(w.Acked[agents]); held != 0 {
		t.Errorf("%d writes to the agent that is held", held)
	}
	letGo()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for s.Update(ctx, "acme", agent(0).ID, says("free")) != nil && ctx.Err() == nil {
		// Until the row is checked again.
	}
	w.Done(t, s)
	if got := storetest.Whole(t, s, agent(0)); got["free"] != 1 {
		t.Error("an agent that is free again takes no writes")
	}
	for n, acked := range w.Acked {
		if n%agents != 0 && len(acked) == 0 {
			t.Errorf("writer %d of an agent that nobody held wrote nothing", n)
		}
	}
}

// TestSweepBeside checks that a sweep waits for no lock. It skips an agent that is being written
// to, or whose events are being replayed, and erases the others.
func TestSweepBeside(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"a write":  "SELECT 1 FROM agent_head h JOIN agent a ON a.no = h.agent_no WHERE a.id = $1 FOR UPDATE OF h",
		"a replay": "SELECT 1 FROM agent WHERE id = $1 FOR KEY SHARE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := postgrestest.URL(t)
			s := open(t, postgres.Options{URL: to})
			for n := range 3 {
				a := agent(n)
				a.Status, a.StopMS = memory.Stopped, int64(n+1)
				create(t, s, a)
			}
			letGo := holding(t, to, lock, agent(1).ID)
			if n, err := s.Sweep(t.Context(), 100, 10); err != nil || n != 2 {
				t.Errorf("erased %d, want 2: %v", n, err)
			}
			letGo()
			if n, err := s.Sweep(t.Context(), 100, 10); err != nil || n != 1 {
				t.Errorf("erased %d, want 1: %v", n, err)
			}
		})
	}
}

// TestBlackHole simulates a network that drops all packets. Calls must end in time and the probe
// must report the outage. When the network is back, the store must recover although the old
// connections stay dead, and no acknowledged write may be lost.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	proxy := postgrestest.NewProxy(t, to)
	const bound = 4 * time.Second
	s, direct := open(t, postgres.Options{URL: proxy.URL() + "&connect_timeout=2", Timeout: bound}), open(t, postgres.Options{URL: to})
	const agents = 4
	for n := range agents {
		create(t, s, agent(n))
	}
	for range 2 {
		w := write(t, []*store.Postgres{s}, agents, 4)
		w.More(t, 50)
		proxy.Hole(true)
		const most = time.Minute // TCP alone would wait for longer
		for what, call := range map[string]func() error{
			"probe": func() error { return s.Ping(t.Context()) },
			"read":  func() error { _, err := s.Head(t.Context(), "acme", agent(0).ID); return err },
			"append": func() error {
				return s.Update(t.Context(), "acme", agent(0).ID, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, nil })
			},
		} {
			began := time.Now()
			if err := call(); !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(began); took > most {
				t.Errorf("%s ended after %s, and not within %s", what, took, bound)
			}
		}
		proxy.Hole(false)
		w.More(t, 50)
		w.Done(t, direct)
		if w.Lost.Load() == 0 {
			t.Error("nothing came through, and no write failed")
		}
		for n := range agents { // the next round starts with new agents
			if err := direct.Erase(t.Context(), "acme", agent(n).ID); err != nil {
				t.Fatal(err)
			}
			create(t, direct, agent(n))
		}
	}
}

// TestNewerSchema checks that a running server continues after a newer one has extended the schema,
// and that the older program cannot be started there.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: to})
	create(t, s, agent(0))
	w := write(t, []*store.Postgres{s}, 1, 2)
	w.More(t, 20)
	for _, sql := range []string{
		"ALTER TABLE message ADD COLUMN later text", "ALTER TABLE agent ADD COLUMN later bigint NOT NULL DEFAULT 0", "ALTER TABLE agent_head ADD COLUMN later boolean NOT NULL DEFAULT false",
		"ALTER TABLE delivery ADD COLUMN later bigint", "CREATE INDEX message_later ON message (later) WHERE later IS NOT NULL", "CREATE TABLE later (n bigint)",
		"INSERT INTO heardlog_schema (version) SELECT max(version) + 1 FROM heardlog_schema", "UPDATE meta SET value = '1000' WHERE key = 'works_from'",
	} {
		postgrestest.Exec(t, to, sql)
		w.More(t, 5)
	}
	if _, err := s.Head(t.Context(), "acme", agent(0).ID); err != nil {
		t.Error(err)
	}
	w.Done(t, s)
	if n := w.Lost.Load(); n > 0 {
		t.Errorf("%d writes failed while the schema was added to", n)
	}
	if _, err := store.OpenPostgres(t.Context(), postgres.Options{URL: to}, engine.Options{}); err == nil {
		t.Error("an older server was started on a newer schema")
	}
}

// TestEndpointMadeElsewhere checks a decision made without events because no endpoint wanted any.
// It must be repeated if another server has created such an endpoint meanwhile: in a batch, alone,
// and if it writes nothing.
func TestEndpointMadeElsewhere(t *testing.T) {
	t.Parallel()
	for _, agents := range []int{1, 3} {
		for _, writes := range []bool{true, false} {
			t.Run(fmt.Sprint(agents, " agents, writes: ", writes), func(t *testing.T) {
				t.Parallel()
				to := postgrestest.URL(t)
				s, other := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
				for n := range agents {
					create(t, s, agent(n))
					if err := s.Update(t.Context(), "acme", agent(n).ID, says("first")); err != nil {
						t.Fatal(err)
					}
				}
				if err := webhook.PutEndpoint(t.Context(), other, webhook.Endpoint{ID: "new", Project: "acme", URL: "https://e.example"}); err != nil {
					t.Fatal(err)
				}
				var group sync.WaitGroup
				for n := range agents {
					group.Go(func() {
						saw := 0
						err := s.Update(t.Context(), "acme", agent(n).ID, func(tx memory.AgentView) (memory.Change, error) {
							saw = len(*s.Published())
							if !writes {
								return memory.Change{}, nil
							}
							return says("second")(tx)
						})
						if err != nil || saw != 1 {
							t.Errorf("decided by %d endpoints, %v", saw, err)
						}
					})
				}
				group.Wait()
			})
		}
	}
}
