package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestWorkingAtRest: values are plain without a key, sealed once there is one, also those of
// before; and one's bytes are no other's.
func TestWorkingAtRest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w.db")
	const value = `"what is known"`
	limit := kv.Limit{Keys: 10, Bytes: 1000}
	readable := func() bool {
		for _, suffix := range []string{"", "-wal"} {
			if b, err := os.ReadFile(path + suffix); err == nil && bytes.Contains(b, []byte("what is known")) {
				return true
			}
		}
		return false
	}
	put := func(s *store.SQLite, key string) {
		t.Helper()
		if err := kv.Put(t.Context(), s, kv.Space{Project: "p", Agent: "a"}, kv.Entry{Key: key, Value: []byte(value), UpdatedMS: 1, ExpiresMS: 1000}, limit, 1); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *store.SQLite, key string) {
		t.Helper()
		if got, err := kv.Get(t.Context(), s, kv.Space{Project: "p", Agent: "a"}, key, 1); err != nil || string(got.Value) != value {
			t.Errorf("%s: %q, %v", key, got.Value, err)
		}
	}
	closed := func(s *store.SQLite) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, sqlite.Options{Path: path})
	if _, _, err := s.Create(t.Context(), memory.Agent{ID: "a", Project: "p", Status: memory.Running, Rev: 1}, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	put(s, "a")
	put(s, "b")
	closed(s)
	if !readable() {
		t.Fatal("the search itself finds nothing in a plain file")
	}
	sealed := sqlite.Options{Path: path, SealKey: []byte("key")}
	s = open(t, sealed)
	want(s, "a")
	put(s, "c")
	if readable() {
		t.Error("readable after sealing")
	}
	closed(s)
	if readable() {
		t.Error("readable when closed")
	}
	rawSQL(t, path, "UPDATE kv SET body = (SELECT body FROM kv WHERE key = 'c') WHERE key = 'a'")
	s = open(t, sealed)
	want(s, "b")
	want(s, "c")
	if _, err := kv.Get(t.Context(), s, kv.Space{Project: "p", Agent: "a"}, "a", 1); !fault.Is(err, fault.Internal) {
		t.Errorf("another's bytes were read: %v", err)
	}
	if page, err := s.ListKeys(t.Context(), kv.Space{Project: "p", Agent: "a"}, "", 10, 1); err != nil || page.Total != 3 || page.Bytes != int64(3*(1+len(value))) {
		t.Errorf("%+v, %v", page, err)
	}
}
