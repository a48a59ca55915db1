package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// beat makes the servers beat until done returns true.
func beat(t *testing.T, what string, done func() bool, servers ...*store.Postgres) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		for _, s := range servers {
			if _, err := s.Beat(ctx, nil); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

// TestQuestions checks that a question reaches the other server unchanged, whatever its text, and
// that the answer reaches the asking server.
func TestQuestions(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	a, b := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
	beat(t, "receive notifications", func() bool { return a.Notified() && b.Notified() }, a, b)
	for name, heard := range map[string]string{"plain": "One two", "odd": "a\x00b \"quoted\" \xff", "too long to be told": strings.Repeat("long ", 4000)} {
		turn := int64(7)
		q := memory.Question{Project: "acme", ID: "agent " + name, Cause: agents.ErrInterrupted.Error(), Before: 9, TurnID: &turn, Heard: &heard}
		want := memory.Reply{Turns: []int64{7, 8}, Phase: memory.Speaking, Foreign: true}
		go func() {
			got := <-a.Calls()
			if got.No == 0 || got.From == "" {
				t.Errorf("%s: %+v", name, got)
			}
			as := got
			as.No, as.From = 0, ""
			if diff := cmp.Diff(q, as); diff != "" {
				t.Errorf("%s: heard:\n%s", name, diff)
			}
			if err := a.Take(t.Context(), got); err != nil {
				t.Error(err)
			}
			if err := a.Reply(t.Context(), got, want); err != nil {
				t.Error(err)
			}
		}()
		got, err := b.Ask(t.Context(), q)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	select {
	case q := <-b.Calls():
		t.Errorf("whoever asked heard his own question: %+v", q)
	default:
	}
	// A listening connection that breaks is replaced.
	postgrestest.Exec(t, to, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
	beat(t, "receive notifications again", func() bool { return a.Notified() && b.Notified() }, a, b)
}

// TestQuestionsUnheard checks that without notifications, questions and answers are found in their
// table.
func TestQuestionsUnheard(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	// This function shadows the system's pg_notify and makes notifications fail.
	_, schema, _ := strings.Cut(to, "search_path=")
	postgrestest.Exec(t, to, `CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE feature_not_supported; END $$`)
	to = strings.Replace(to, "search_path="+schema, "search_path="+schema+"%2Cpg_catalog", 1)
	a, b := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
	beat(t, "know of each other", func() bool {
		others, err := b.Beat(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return others
	}, a, b)
	go func() {
		var list []memory.Question
		for len(list) == 0 && t.Context().Err() == nil {
			var err error
			if list, err = a.Asked(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
		if err := a.Reply(t.Context(), list[0], memory.Reply{Turns: []int64{3}}); err != nil {
			t.Error(err)
		}
	}()
	got, err := b.Ask(t.Context(), memory.Question{Project: "acme", ID: "x", Cause: agents.ErrInterrupted.Error()})
	if diff := cmp.Diff(memory.Reply{Turns: []int64{3}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if a.Notified() || b.Notified() {
		t.Error("notifications count as working where there are none")
	}
}
