package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
)

// TestSealedLater gives a key to a database that holds more rows than are sealed at a time. All of
// them must be sealed and read as before.
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
		if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: id(i), Value: []byte(`["` + secret + fmt.Sprint(i) + `"]`), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	facts := record.Space{Project: "p", Name: "fact", User: "u\x00"}
	if _, err := s.ChangeRecords(t.Context(), facts, []record.Change{{ID: "a\x00", Body: []byte(secret)}, {ID: "gone", Body: []byte(secret)}}, record.Limit{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ChangeRecords(t.Context(), facts, []record.Change{{ID: "gone", If: record.Any}}, record.Limit{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	key, err := s.ServerKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if n := inClear(t, url, secret); n != many+2 {
		t.Fatalf("%d rows hold the secret in clear before there is a key, want %d", n, many+2)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, postgres.Options{URL: url, SealKey: []byte("key")})
	if n := inClear(t, url, secret); n != 0 {
		t.Errorf("%d rows hold the secret in clear afterwards", n)
	}
	for i := range many {
		if got, err := kv.Get(t.Context(), s, kv.Space{Project: "p"}, id(i), 0); err != nil || string(got.Value) != `["`+secret+fmt.Sprint(i)+`"]` {
			t.Errorf("conversation %d: %q, %v", i, got.Value, err)
		}
	}
	if r, err := s.Record(t.Context(), facts, "a\x00"); err != nil || string(r.Body) != secret {
		t.Errorf("the record: %q, %v", r.Body, err)
	}
	if h, err := s.Head(t.Context(), a.Project, a.ID); err != nil || h.Agent.Settings.LLM.APIKey != secret {
		t.Errorf("the agent's key: %v", err)
	}
	if again, err := s.ServerKey(t.Context(), "k"); err != nil || !bytes.Equal(key, again) {
		t.Errorf("the server's key changed: %v", err)
	}
}

// TestSealingGoesOn ends a server in the middle of sealing. The rows sealed so far must be
// readable, and the next server must seal the rest. Meanwhile another key is refused. Afterwards
// the database accepts no plain secrets.
func TestSealingGoesOn(t *testing.T) {
	t.Parallel()
	const many, secret = 70, "canary-77aa"
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	for i := range many {
		if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: fmt.Sprintf("c%03d", i), Value: []byte(secret), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	held, err := conn.Begin(t.Context())
	if err == nil {
		_, err = held.Exec(t.Context(), "SELECT 1 FROM kv WHERE key = 'c050' FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		s, err := postgres.Open(ctx, postgres.Options{URL: url, SealKey: []byte("key")})
		if err == nil {
			_ = s.Close()
		}
		ended <- err
	}()
	for inClear(t, url, secret) == many {
		select {
		case err := <-ended:
			t.Fatalf("it has not waited for the row that is held: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	kill()
	if err := <-ended; err == nil {
		t.Error("it opened a database in which something is plain")
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := inClear(t, url, secret); n == 0 || n == many {
		t.Errorf("%d rows are in clear of %d, want some", n, many)
	}
	if o, err := postgres.Open(t.Context(), postgres.Options{URL: url, SealKey: []byte("other")}); err == nil {
		_ = o.Close()
		t.Error("another key was taken")
	}
	sealed := open(t, postgres.Options{URL: url, SealKey: []byte("key")})
	if n := inClear(t, url, secret); n != 0 {
		t.Errorf("%d rows are in clear afterwards", n)
	}
	for i := range many {
		if got, err := kv.Get(t.Context(), sealed, kv.Space{Project: "p"}, fmt.Sprintf("c%03d", i), 0); err != nil || string(got.Value) != secret {
			t.Errorf("conversation %d: %q, %v", i, got.Value, err)
		}
	}
	if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: "plain", Value: []byte(secret), ExpiresMS: kv.Never}, kv.Limit{}, 0); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a server without the key stored something plain: %v", err)
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
	err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM kv WHERE position($1::bytea IN body) > 0) +
		(SELECT count(*) FROM record WHERE position($1::bytea IN body) > 0) + (SELECT count(*) FROM agent WHERE position($1::bytea IN settings) > 0)`, []byte(text)).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReading checks that a Reader refuses a database without tables, and that it changes nothing.
// If the database is not encrypted, a key given to the Reader seals nothing.
func TestReading(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	if r, err := postgres.OpenReader(t.Context(), postgres.Options{URL: to}); err == nil {
		_ = r.Close()
		t.Error("a database without tables was opened for reading")
	}
	s := open(t, postgres.Options{URL: to})
	a := agent(0)
	a.Settings.LLM.APIKey = "canary-90ab"
	create(t, s, a)
	if err := s.Update(t.Context(), "acme", a.ID, says("word")); err != nil {
		t.Fatal(err)
	}
	reader, err := postgres.OpenReader(t.Context(), postgres.Options{URL: to, SealKey: []byte("a key")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	words := 0
	err = reader.Export(t.Context(), export.Scope{Project: "acme", Agent: a.ID}, func(r export.Record) error {
		if r.Message != nil && r.Message.Content == "word" {
			words++
		}
		return nil
	})
	if err != nil || words != 1 {
		t.Errorf("%d messages were read, %v", words, err)
	}
	if n := inClear(t, to, "canary-90ab"); n != 1 {
		t.Errorf("%d rows are in clear, want the one that was: a reader has sealed it", n)
	}
	if err := s.Update(t.Context(), "acme", a.ID, says("more")); err != nil {
		t.Errorf("the server behind it: %v", err)
	}
}

// TestBrokenRecord: a record that cannot be decrypted fails a page, unless the caller asks for such
// records too.
func TestBrokenRecord(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url, SealKey: []byte("key")})
	at := record.Space{Project: "p", Name: "fact", User: "u"}
	if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: "a", Body: []byte("1")}, {ID: "b", Body: []byte("2")}}, record.Limit{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	if _, err := db.Exec(t.Context(), "UPDATE record SET body = '\\x01' WHERE id = 'a'"); err != nil {
		t.Fatal(err)
	}
	for _, byRev := range []bool{false, true} {
		if _, _, err := s.Records(t.Context(), at, record.Query{ByRev: byRev, Limit: 10}); err == nil {
			t.Error("the page has no error")
		}
		list, _, err := s.Records(t.Context(), at, record.Query{ByRev: byRev, Limit: 10, Broken: true})
		if err != nil || len(list) != 2 || list[0].Body != nil || list[0].Deleted || string(list[1].Body) != "2" {
			t.Errorf("%v, %v", list, err)
		}
	}
}
