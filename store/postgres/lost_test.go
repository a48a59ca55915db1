package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/webhook"
)

// outbox opens a store with an endpoint "e" and an agent, and creates an event for each ID.
func outbox(t *testing.T, url string, ids ...string) *store.Postgres {
	t.Helper()
	s := open(t, postgres.Options{URL: url})
	if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "acme", URL: "https://e.example"}); err != nil {
		t.Fatal(err)
	}
	var c memory.Change
	for i, id := range ids {
		c.Events = append(c.Events, memory.Event{ID: id, Type: event.Left, CreatedMS: int64(i + 1), Body: []byte("{}")})
	}
	if _, _, err := s.Create(t.Context(), agent(1), 0, c); err != nil {
		t.Fatal(err)
	}
	return s
}

func claim(t *testing.T, s *store.Postgres, nowMS int64) []webhook.Delivery {
	t.Helper()
	list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: nowMS, Limit: 100, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestClaimWithoutEvent checks that a delivery whose event is gone is not claimed, does not block
// others, and does not stay pending.
func TestClaimWithoutEvent(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := outbox(t, url, "lost", "kept")
	postgrestest.Exec(t, url, "DELETE FROM event WHERE id = 'lost'")
	if list := claim(t, s, 10); len(list) != 1 || list[0].EventID != "kept" {
		t.Errorf("claimed %+v", list)
	}
	if b, err := s.Backlog(t.Context()); err != nil || b.Pending != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestLostDeliveries checks that deliveries that another replica created while their endpoint was
// being deleted are given up.
func TestLostDeliveries(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := outbox(t, url, "n1", "n2")
	for _, d := range claim(t, s, 10) {
		if err := s.Finish(t.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 11}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteEndpoint(t.Context(), "acme", "e"); err != nil {
		t.Fatal(err)
	}
	if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "f", Project: "acme", URL: "https://f.example"}); err != nil {
		t.Fatal(err)
	}
	err := s.Update(t.Context(), "acme", agent(1).ID, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Events: []memory.Event{{ID: "n3", Type: event.Left, CreatedMS: 20, Body: []byte("{}")}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, url, "UPDATE delivery SET state = 0, done_ms = 0 WHERE endpoint_no = (SELECT no FROM endpoint WHERE gone_id = 'e')")
	open(t, postgres.Options{URL: url}) // a new server gives them up
	var b webhook.Backlog
	for end := time.Now().Add(time.Minute); b.Dead != 2 && time.Now().Before(end); {
		if b, err = s.Backlog(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.Pending != 1 || b.Dead != 2 {
		t.Errorf("%+v", b)
	}
}

// TestReplayOfForgotten runs replays while the replayed deliveries are erased. The new delivery
// must have its event, or the replay must be refused.
func TestReplayOfForgotten(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	const events = 60
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprint("n", i))
	}
	s := outbox(t, url, ids...)
	list := claim(t, s, 100)
	for _, d := range list {
		if err := s.Finish(t.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 200}); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	made := make(chan int, 1)
	go func() {
		n := 0
		for i := len(list) - 1; i >= 0; i-- {
			switch _, err := s.Replay(t.Context(), "acme", list[i].ID, 300, ""); {
			case err == nil:
				n++
			case !fault.Is(err, fault.NotFound):
				t.Error(err)
			}
		}
		made <- n
	}()
	if _, err := s.ForgetDone(t.Context(), 250, false); err != nil {
		t.Fatal(err)
	}
	n := <-made
	var waiting, orphans int
	if err := conn.QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.no = event_no)) FROM delivery").Scan(&waiting, &orphans); err != nil {
		t.Fatal(err)
	}
	if waiting != n || orphans != 0 {
		t.Errorf("%d replays were accepted, %d wait, %d without event", n, waiting, orphans)
	}
}

// TestReplayOfErased checks that no delivery of an erased agent is replayed, although its rows
// still exist. It would be accepted and then erased unsent.
func TestReplayOfErased(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := outbox(t, url, "n1")
	list := claim(t, s, 10)
	if err := s.Finish(t.Context(), list[0], webhook.Result{State: webhook.Delivered, AtMS: 11}); err != nil {
		t.Fatal(err)
	}
	// The first half of a sweep.
	postgrestest.Exec(t, url, "INSERT INTO erased SELECT no FROM agent")
	if _, err := s.Replay(t.Context(), "acme", list[0].ID, 20, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("replayed: %v", err)
	}
	got, err := s.ReplayAll(t.Context(), webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme"}, NowMS: 20})
	if err != nil || got.Count != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
