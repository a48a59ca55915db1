package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
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
	w := memory.Write{Ref: memory.Ref{Project: a.Project, ID: a.ID}, Head: new(memory.NewHead(a, nil, 0)), Private: settings}
	if _, _, err := s.Create(t.Context(), w, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	first, err := migrations()
	if err != nil {
		t.Fatalf("%d migrations, %v", len(first), err)
	}
	c, _, err := dbfile.OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version := func() int64 {
		n, err := c.Number("PRAGMA user_version")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	migrate := func(steps []string) error {
		db, err := dbfile.Open(dbfile.Options{Path: path, Schema: steps})
		if err != nil {
			return err
		}
		return db.Release()
	}
	last := int64(len(first))
	const add = "ALTER TABLE agent ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"
	if err := migrate(append(first, add+"; SELECT nothing FROM nowhere")); err == nil || !strings.Contains(err.Error(), fmt.Sprint("migration ", last+1)) || version() != last {
		t.Errorf("a migration that fails: %v, version %d", err, version())
	}
	for range 2 { // the second time there is nothing to do
		if err := migrate(append(first, add)); err != nil || version() != last+1 {
			t.Fatalf("%v, version %d", err, version())
		}
	}
	row, err := c.First("SELECT name, colour FROM agent")
	if err != nil || row.Text(0) != "kept" || row.Text(1) != "red" {
		t.Errorf("%v, %v", row, err)
	}
	if s, err := Open(t.Context(), Options{Path: path}); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("the program of the first schema: %v, %v", s, err)
	}
}
