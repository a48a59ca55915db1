package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

// TestMigration brings a file of the first schema up to a second one that only this test knows.
// What the file holds stays, a migration that fails changes nothing, and the program of the first
// schema refuses the file afterwards.
func TestMigration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	a := memory.Agent{ID: "a", Project: "p", Name: "kept", Status: memory.Running, StartMS: 1, Rev: 1}
	settings, err := codec.EncodeAgent(&a)
	if err != nil {
		t.Fatal(err)
	}
	w := memory.Write{Ref: memory.Ref{Project: a.Project, ID: a.ID}, Head: memory.NewHead(a, nil, 0), Private: settings}
	if _, _, err := s.Create(t.Context(), w, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	first, err := migrations()
	if err != nil || len(first) != 1 {
		t.Fatalf("%d migrations, %v", len(first), err)
	}
	c, err := openConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	version := func() int64 {
		n, err := c.number("PRAGMA user_version")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const add = "ALTER TABLE agent ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"
	if err := migrate(c, append(first, add+"; SELECT nothing FROM nowhere")); err == nil || !strings.Contains(err.Error(), "migration 2") || version() != 1 {
		t.Errorf("a migration that fails: %v, version %d", err, version())
	}
	for range 2 { // the second time there is nothing to do
		if err := migrate(c, append(first, add)); err != nil || version() != 2 {
			t.Fatalf("%v, version %d", err, version())
		}
	}
	row, err := c.first("SELECT name, colour FROM agent")
	if err != nil || text(row[0]) != "kept" || text(row[1]) != "red" {
		t.Errorf("%v, %v", row, err)
	}
	if s, err := Open(t.Context(), Options{Path: path}); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("the program of the first schema: %v, %v", s, err)
	}
}
