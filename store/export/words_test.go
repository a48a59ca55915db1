package export_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestImportedWords: imported records are found by their words, also those of a store that was
// encrypted. A store that is opened with a key for the first time forgets the words.
func TestImportedWords(t *testing.T) {
	t.Parallel()
	at := record.Space{Project: "p", Name: "text/a/"}
	find := func(s record.Store) int {
		t.Helper()
		found := must(s.FindRecords(t.Context(), at, record.Find{Words: [][]string{{"red"}}, Limit: 9}))
		return len(found.Records)
	}
	from := sqlite.Options{Path: filepath.Join(t.TempDir(), "from.db"), SealKey: []byte("key"), Terms: storetest.Terms}
	sealed := must(store.OpenSQLite(t.Context(), from, engine.Options{}))
	must(sealed.ChangeRecords(t.Context(), at, []record.Change{{ID: "a", Body: []byte("red")}, {ID: "b", Body: []byte("green red")}}, record.Limit{}, nil, 1))
	if n := find(sealed); n != 0 {
		t.Errorf("%d were found by words in a store that encrypts", n)
	}
	if err := sealed.Close(); err != nil {
		t.Fatal(err)
	}
	r := must(sqlite.OpenReader(from))
	t.Cleanup(func() { _ = r.Close() })
	var lines bytes.Buffer
	must(export.Write(t.Context(), &lines, r, export.Scope{}, true, nil))

	to := sqlite.Options{Path: filepath.Join(t.TempDir(), "to.db"), Terms: storetest.Terms}
	m := must(sqlite.OpenImporter(to))
	if _, _, err := export.Read(t.Context(), bytes.NewReader(lines.Bytes()), m, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	url := postgrestest.URL(t)
	p := must(store.OpenPostgres(t.Context(), postgres.Options{URL: url, Terms: storetest.Terms}, engine.Options{}))
	if _, _, err := export.Read(t.Context(), bytes.NewReader(lines.Bytes()), p, nil); err != nil {
		t.Fatal(err)
	}
	s := must(store.OpenSQLite(t.Context(), to, engine.Options{}))
	if inFile, inTables := find(s), find(p); inFile != 2 || inTables != 2 {
		t.Errorf("%d and %d were found", inFile, inTables)
	}
	for _, err := range []error{s.Close(), p.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}

	to.SealKey = []byte("key")
	s = must(store.OpenSQLite(t.Context(), to, engine.Options{}))
	t.Cleanup(func() { _ = s.Close() })
	p = must(store.OpenPostgres(t.Context(), postgres.Options{URL: url, Terms: storetest.Terms, SealKey: []byte("key")}, engine.Options{}))
	t.Cleanup(func() { _ = p.Close() })
	if inFile, inTables := find(s), find(p); inFile != 0 || inTables != 0 {
		t.Errorf("with a key, %d and %d were found", inFile, inTables)
	}
}
