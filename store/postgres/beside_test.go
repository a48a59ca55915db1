package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
)

// count returns the result of a query for one number.
func count(t *testing.T, url, sql string, args ...any) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestImportBeside checks that a server that has read a partly imported agent shows what later
// batches add.
func TestImportBeside(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s, importing := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
	const each = 10
	var had []byte
	batch := func(first int, list ...export.Record) {
		t.Helper()
		for i := first; i < first+each; i++ {
			m := memory.Message{Seq: int64(i + 1), Rev: 1, TurnID: int64(i), Role: memory.User, Content: fmt.Sprint("message ", i), ID: fmt.Sprint("id ", i)}
			list = append(list, export.Record{Message: &export.Message{Project: "acme", AgentID: agent(0).ID, Message: m}})
		}
		if err := importing.Import(t.Context(), list, had, []byte("mark")); err != nil {
			t.Fatal(err)
		}
		had = []byte("mark")
		if got := storetest.Whole(t, s, agent(0)); len(got) != first+each {
			t.Errorf("%d messages are shown of %d", len(got), first+each)
		}
	}
	batch(0, export.Record{Agent: &export.Agent{Agent: agent(0), HeadRev: 1, NextSeq: 3*each + 1, LastTurn: 3*each - 1}})
	batch(each)
	batch(2 * each)
	if err := s.Update(t.Context(), "acme", agent(0).ID, says("own")); err != nil {
		t.Fatal(err)
	}
	_, list, err := s.Recent(t.Context(), "acme", agent(0).ID, 100, false)
	if err != nil || len(list) != 3*each+1 {
		t.Errorf("%d messages, %v", len(list), err)
	}
}

// TestReserveBeside checks that no other delivery gets an ID that is reserved for an import, while
// servers create deliveries.
func TestReserveBeside(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := outbox(t, to)
	importing := open(t, postgres.Options{URL: to})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var made atomic.Int64
	for w := range 4 {
		a := agent(10 + w)
		create(t, s, a)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := s.Update(t.Context(), "acme", a.ID, func(memory.AgentView) (memory.Change, error) {
					return memory.Change{Events: []memory.Event{{ID: fmt.Sprint("e", w, "-", n), Type: event.Left, CreatedMS: 1, Body: []byte("{}")}}}, nil
				})
				if err != nil {
					t.Errorf("an event beside an import: %v", err)
					return
				}
				made.Add(1)
			}
		})
	}
	free := map[int64]bool{}
	for range 100 {
		last, err := importing.Reserve(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for id := last + 1; id <= last+2; id++ {
			if free[id] {
				t.Errorf("number %d is given twice", id)
			}
			free[id] = true
		}
	}
	close(stop)
	wg.Wait()
	var ids []int64
	for id := range free {
		ids = append(ids, id)
	}
	if n := count(t, to, "SELECT count(*) FROM delivery WHERE id = ANY($1)", ids); n != 0 || made.Load() == 0 {
		t.Errorf("%d numbers of %d deliveries were to be free", n, made.Load())
	}
}

// TestSealedBeside gives a database its key while a server without the key writes to it. No
// acknowledged write may be lost, and no plain secret may remain.
func TestSealedBeside(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: to})
	const agents, key = 12, "canary-77aa"
	for n := range agents {
		a := agent(n)
		a.Settings.LLM.APIKey = key
		create(t, s, a)
	}
	acked := make([]int, agents)
	stop := make(chan struct{})
	var total atomic.Int64
	var wg sync.WaitGroup
	for n := range agents {
		wg.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				err := s.Update(t.Context(), "acme", agent(n).ID, func(tx memory.AgentView) (memory.Change, error) {
					a := *tx.Head().Agent
					a.Settings.LLM.APIKey, a.Rev = secret.String(fmt.Sprint(key, " ", i)), tx.Head().Rev+1
					return memory.Change{Agent: &a}, nil
				})
				if total.Add(1); err == nil {
					acked[n] = i
					// Without the key it cannot read what it has not cached.
				} else if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Internal) {
					t.Errorf("without a key: %v", err)
				}
			}
		})
	}
	more := func() {
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		late := time.After(time.Minute)
		for want := total.Load() + 5*agents; total.Load() < want; {
			select {
			case <-look.C:
			case <-late:
				t.Fatal("the writers stand still")
			}
		}
	}
	more()
	keyed := open(t, postgres.Options{URL: to, SealKey: []byte("key")})
	more()
	close(stop)
	wg.Wait()
	for n := range agents {
		h, err := keyed.Head(t.Context(), "acme", agent(n).ID)
		if want := fmt.Sprint(key, " ", acked[n]); err != nil || h.Agent.Settings.LLM.APIKey.Reveal() != want {
			t.Errorf("agent %d: %q, %v; want %q", n, h.Agent.Settings.LLM.APIKey.Reveal(), err, want)
		}
	}
	if n := inClear(t, to, key); n != 0 {
		t.Errorf("%d rows hold secrets in clear", n)
	}
}

// TestClaimsBeside checks that a claim does not wait for another: it skips the endpoints that
// another server has locked and takes the rest.
func TestClaimsBeside(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := outbox(t, to)
	for n := range 6 {
		if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: fmt.Sprint("more ", n), Project: "acme", URL: "https://e.example"}); err != nil {
			t.Fatal(err)
		}
	}
	emit(t, s, "n1", "n2")
	letGo := holding(t, to, "SELECT 1 FROM endpoint_gate WHERE endpoint_no IN (SELECT no FROM endpoint WHERE id = 'e') FOR UPDATE")
	took := func(limit int) (ids []string) {
		t.Helper()
		list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: 10, Limit: limit, PerEndpoint: 4, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			ids = append(ids, d.Endpoint.ID)
		}
		return ids
	}
	all := append(took(3), took(100)...) // first fewer than the endpoints, then all
	if n := len(all); n != 12 || strings.Contains(fmt.Sprint(all), "e,") || contains(all, "e") {
		t.Errorf("%d deliveries were taken: %q", n, all)
	}
	<-s.Woken() // the claim that skipped an endpoint wakes the workers
	letGo()
	if got := took(100); fmt.Sprint(got) != "[e e]" {
		t.Errorf("taken then: %q", got)
	}
	// Concurrent claims of several servers respect an endpoint's limit, and no delivery is claimed
	// twice.
	var mu sync.Mutex
	seen := map[int64]int{}
	flying := map[string]int{}
	var ids []string
	for n := range 40 {
		ids = append(ids, fmt.Sprint("m", n))
	}
	emit(t, s, ids...)
	other := open(t, postgres.Options{URL: to})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 6 {
				list, err := webhook.ClaimFrom(t.Context(), []*store.Postgres{s, other}[i%2], webhook.Claim{NowMS: 20, Limit: 5, PerEndpoint: 4, Lease: time.Minute})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, d := range list {
					seen[d.ID]++
					flying[d.Endpoint.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("delivery %d was claimed %d times", id, n)
		}
	}
	for id, n := range flying {
		if n > 4-2 { // two of each are under way since before
			t.Errorf("%d more attempts at endpoint %q are under way, of 4 with 2 before", n, id)
		}
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// emit creates events of the agent that outbox created.
func emit(t *testing.T, s *store.Postgres, ids ...string) {
	t.Helper()
	err := s.Update(t.Context(), "acme", agent(1).ID, func(memory.AgentView) (memory.Change, error) {
		var c memory.Change
		for _, id := range ids {
			c.Events = append(c.Events, memory.Event{ID: id, Type: event.Left, CreatedMS: 5, Body: []byte("{}")})
		}
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnreadableEndpoint checks that an unreadable endpoint receives nothing and does not delay
// others, is reported once, and can be deleted.
func TestUnreadableEndpoint(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := outbox(t, to, "n1")
	for _, id := range []string{"secrets", "body"} {
		if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: id, Project: "acme", URL: "https://e.example"}); err != nil {
			t.Fatal(err)
		}
	}
	postgrestest.Exec(t, to, `UPDATE endpoint SET secrets = '\x01' WHERE id = 'secrets'`)
	postgrestest.Exec(t, to, `UPDATE endpoint SET body = '{' WHERE id = 'body'`)
	postgrestest.Exec(t, to, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'")
	emit(t, s, "n2")
	if list := claim(t, s, 10); len(list) != 2 || list[0].Endpoint.ID != "e" || list[1].Endpoint.ID != "e" {
		t.Errorf("claimed %+v", list)
	}
	if n := count(t, to, "SELECT count(*) FROM delivery d JOIN endpoint e ON e.no = d.endpoint_no WHERE e.id = 'secrets'"); n != 1 {
		t.Errorf("%d deliveries wait for an endpoint whose secrets cannot be read, want 1", n)
	}
	var mu sync.Mutex
	var told []error
	again := open(t, postgres.Options{URL: to, Report: func(_ string, err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, err)
	}})
	for range 3 {
		postgrestest.Exec(t, to, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'")
		claim(t, again, 10)
	}
	mu.Lock()
	if len(told) != 2 {
		t.Errorf("told %d times: %v", len(told), errors.Join(told...))
	}
	mu.Unlock()
	for _, id := range []string{"secrets", "body"} {
		if err := s.DeleteEndpoint(t.Context(), "acme", id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
	}
	if list, err := s.Endpoints(t.Context(), "acme", ""); err != nil || len(list) != 1 {
		t.Errorf("%d endpoints, %v", len(list), err)
	}
}

// TestReplaysFinished checks that named replays that a crash has interrupted are finished, even if
// one of them cannot be read. A replay without a name is not, since its caller got an error.
func TestReplaysFinished(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	s := outbox(t, to, "n1", "n2")
	for _, d := range claim(t, s, 10) {
		if err := s.Finish(t.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 11}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"'bad'", "'good'", "NULL"} {
		text := `{"filter":{"Project":"acme"},"per_second":0}`
		if name == "'bad'" {
			text = "{"
		}
		postgrestest.Exec(t, to, `INSERT INTO replay (project, name, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done)
			VALUES ('acme', `+name+`, $1, 20, 1000, 9223372036854775807, 9223372036854775807, 0, 0, false, 0, false)`, text)
	}
	open(t, postgres.Options{URL: to}) // a new server finishes replays
	for end := time.Now().Add(time.Minute); count(t, to, "SELECT count(*) FROM replay WHERE done") == 0; {
		if time.Now().After(end) {
			t.Fatal("a replay is not finished because another cannot be read")
		}
	}
	if b, err := s.Backlog(t.Context()); err != nil || b.Pending != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	if n := count(t, to, "SELECT count(*) FROM replay WHERE done"); n != 1 {
		t.Errorf("%d replays were finished, want 1", n)
	}
}
