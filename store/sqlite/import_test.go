package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestImportLog: the log of an import stays small however much is imported, and grows only while
// somebody reads what is in it.
func TestImportLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.db")
	m, err := sqlite.OpenImporter(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var mark []byte
	seq := int64(0)
	put := func(list ...export.Record) {
		t.Helper()
		for range 4 {
			seq++
			list = append(list, export.Record{Message: &export.Message{Project: "p", AgentID: "a", Message: memory.Message{Seq: seq, Rev: 1, Role: memory.User, Content: noise(1 << 20)}}})
		}
		next := []byte{byte(seq)}
		if err := m.Import(t.Context(), list, mark, next); err != nil {
			t.Fatal(err)
		}
		mark = next
	}
	size := func() int64 {
		st, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	put(export.Record{Agent: &export.Agent{Agent: memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, HeadRev: 1, NextSeq: 1000, LastTurn: 0}})
	most := size()
	for range 11 { // 48 MiB in all
		put()
		most = max(most, size())
	}
	if most > 24<<20 {
		t.Errorf("the log came to %d MiB", most>>20)
	}
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Export(t.Context(), export.Scope{}, func(rec export.Record) error {
		if rec.Start != nil {
			for range 6 {
				put()
			}
			most = size()
		}
		return nil
	})
	if err != nil || most < 20<<20 {
		t.Errorf("beside a reader the log has %d MiB, error %v", most>>20, err)
	}
	for range 6 {
		put()
	}
	if most = size(); most > 24<<20 {
		t.Errorf("behind the reader the log has %d MiB", most>>20)
	}
}
