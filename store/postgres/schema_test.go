package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestMigration brings a database of the first schema up to a second one that only this test knows.
// What it holds stays, and a migration that fails changes nothing.
func TestMigration(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s, err := Open(t.Context(), Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := memory.Agent{ID: "a", Project: "p", Name: "kept", Status: memory.Running, StartMS: 1, Rev: 1}
	if _, _, err := engine.New(s, engine.Options{Shared: true, Epoch: s.Epoch}).Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	first, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	last := len(first)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	version := func() int {
		n, err := pg.SchemaVersion(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const add = "ALTER TABLE agent ADD COLUMN colour text NOT NULL DEFAULT 'red'"
	var other Store
	if err := other.migrate(t.Context(), conn, append(first, add+"; SELECT nothing FROM nowhere"), Options{}); err == nil || version() != last {
		t.Errorf("a migration that fails: %v, version %d", err, version())
	}
	for range 2 { // the second time there is nothing to do
		if err := other.migrate(t.Context(), conn, append(first, add), Options{}); err != nil || version() != last+1 {
			t.Fatalf("%v, version %d", err, version())
		}
	}
	var name, colour string
	if err := conn.QueryRow(t.Context(), "SELECT name, colour FROM agent").Scan(&name, &colour); err != nil || name != "kept" || colour != "red" {
		t.Errorf("%q, %q, %v", name, colour, err)
	}
}

// TestUnreleased checks that a database from before the first release is refused, for serving and
// for reading, with an error that explains what to do.
func TestUnreleased(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s, err := Open(t.Context(), Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, url, "DELETE FROM meta WHERE key = 'released'")
	postgrestest.Exec(t, url, "INSERT INTO heardlog_schema (version) SELECT generate_series(100, 107)")
	_, openErr := Open(t.Context(), Options{URL: url})
	_, readErr := OpenReader(t.Context(), Options{URL: url})
	_, probeErr := Probe(t.Context(), url)
	for _, err := range []error{openErr, readErr, probeErr} {
		if err == nil || !strings.Contains(err.Error(), "schema 107 of a build from before the first release") || !strings.Contains(err.Error(), "export it") {
			t.Errorf("%v", err)
		}
	}
}
