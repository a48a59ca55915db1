package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/postgres/postgrestest"
)

// TestSealedLater: a database that is given a key when it is full has everything sealed, more rows than are sealed at a time, and reads as before.
func TestSealedLater(t *testing.T) {
	t.Parallel()
	const (
		many   = 70 // conversations; 32 are sealed at a time
		secret = "canary-1f3a"
	)
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	a := agent(1)
	a.Settings.LLM.APIKey = secret
	create(t, s, a)
	id := func(i int) string { return fmt.Sprintf("c %d", i%7*100+i) }
	for i := range many {
		if err := s.SaveConversation(t.Context(), "p", id(i), []byte(`["`+secret+fmt.Sprint(i)+`"]`), 0); err != nil {
			t.Fatal(err)
		}
	}
	key, err := s.ServerKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if n := inClear(t, url, secret); n != many+1 {
		t.Fatalf("%d rows hold the secret in clear before there is a key, want %d", n, many+1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, postgres.Options{URL: url, SealKey: []byte("key")})
	if n := inClear(t, url, secret); n != 0 {
		t.Errorf("%d rows hold the secret in clear afterwards", n)
	}
	for i := range many {
		if got, err := s.LoadConversation(t.Context(), "p", id(i)); err != nil || string(got) != `["`+secret+fmt.Sprint(i)+`"]` {
			t.Errorf("conversation %d: %q, %v", i, got, err)
		}
	}
	if h, err := s.Head(t.Context(), a.Project, a.ID); err != nil || h.Agent.Settings.LLM.APIKey != secret {
		t.Errorf("the agent's key: %v", err)
	}
	if again, err := s.ServerKey(t.Context(), "k"); err != nil || !bytes.Equal(key, again) {
		t.Errorf("the server's key changed: %v", err)
	}
}

// inClear counts the rows that hold the text.
func inClear(t *testing.T, url, text string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM conversation WHERE position($1::bytea IN body) > 0) +
		(SELECT count(*) FROM agent WHERE position($1::bytea IN settings) > 0)`, []byte(text)).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReading: whoever opens a database to read it changes nothing, whatever key he has, and needs no more rights than that.
func TestReading(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	if s, err := postgres.Open(t.Context(), postgres.Options{URL: to, Reading: true}); err == nil {
		_ = s.Close()
		t.Error("a database without tables was opened for reading")
	}
	s := open(t, postgres.Options{URL: to})
	a := agent(0)
	a.Settings.LLM.APIKey = "canary-90ab"
	create(t, s, a)
	if err := s.Update(t.Context(), "acme", a.ID, says("word")); err != nil {
		t.Fatal(err)
	}
	reader := open(t, postgres.Options{URL: to, Reading: true, SealKey: []byte("a key")})
	if got := whole(t, reader, a); got["word"] != 1 {
		t.Errorf("%v", got)
	}
	if err := reader.Update(t.Context(), "acme", a.ID, says("more")); err == nil {
		t.Error("who reads has written")
	}
	if n := inClear(t, to, "canary-90ab"); n != 1 {
		t.Errorf("%d rows are in clear, want the one that was: a reader has sealed it", n)
	}
	if err := s.Update(t.Context(), "acme", a.ID, says("more")); err != nil {
		t.Errorf("the server behind it: %v", err)
	}
}
