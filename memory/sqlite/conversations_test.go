package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/internal/drivers"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/sqlite"
)

// TestConversationsAtRest: plain without a key, sealed once there is one, also those of before; and one's bytes are no other's.
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
	load := func(s *drivers.SQLite, id string) {
		t.Helper()
		if got, err := s.LoadConversation(t.Context(), "p", id); err != nil || string(got) != body {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}
	s := open(t, sqlite.Options{Path: path})
	for _, id := range []string{"a", "b"} {
		if err := s.SaveConversation(t.Context(), "p", id, []byte(body), 0); err != nil {
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
	if err := s.SaveConversation(t.Context(), "p", "c", []byte(body), 0); err != nil {
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
	rawSQL(t, path, "UPDATE conversation SET body = (SELECT body FROM conversation WHERE id = 'c') WHERE id = 'a'")
	s = open(t, sealed)
	load(s, "b")
	load(s, "c")
	if _, err := s.LoadConversation(t.Context(), "p", "a"); !fault.Is(err, fault.Internal) {
		t.Errorf("another's bytes were read: %v", err)
	}
}
