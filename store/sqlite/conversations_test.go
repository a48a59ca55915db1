package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestConversationsAtRest: plain without a key, sealed once there is one, also those of before; and
// one's bytes are no other's.
func TestConversationsAtRest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	const body = `{"messages":["what was said"],"summary":null}`
	readable := func() bool {
		for _, suffix := range []string{"", "-wal"} {
			if b, err := os.ReadFile(path + suffix); err == nil && bytes.Contains(b, []byte("what was said")) {
				return true
			}
		}
		return false
	}
	load := func(s *store.SQLite, id string) {
		t.Helper()
		if got, err := kv.Get(t.Context(), s, kv.Space{Project: "p"}, id, 0); err != nil || string(got.Value) != body {
			t.Errorf("%s: %q, %v", id, got.Value, err)
		}
	}
	s := open(t, sqlite.Options{Path: path})
	for _, id := range []string{"a", "b"} {
		if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: id, Value: []byte(body), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !readable() {
		t.Fatal("the search itself finds nothing in a plain file")
	}
	sealed := sqlite.Options{Path: path, SealKey: []byte("key")}
	s = open(t, sealed)
	load(s, "a")
	if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: "c", Value: []byte(body), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
		t.Fatal(err)
	}
	if readable() {
		t.Error("readable after sealing")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if readable() {
		t.Error("readable when closed")
	}
	rawSQL(t, path, "UPDATE kv SET body = (SELECT body FROM kv WHERE key = 'c') WHERE key = 'a'")
	s = open(t, sealed)
	load(s, "b")
	load(s, "c")
	if _, err := kv.Get(t.Context(), s, kv.Space{Project: "p"}, "a", 0); !fault.Is(err, fault.Internal) {
		t.Errorf("another's bytes were read: %v", err)
	}
}
