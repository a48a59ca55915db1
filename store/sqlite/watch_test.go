//go:build unix

package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestFilesGoAway takes each file of an open store away in several ways. The store acknowledges
// nothing while it is away, reads on, and goes on when the same file is back.
func TestFilesGoAway(t *testing.T) {
	t.Parallel()
	type way struct {
		name, want string
		away, back func(path string) error // no back: it cannot be undone
	}
	rename := func(path string) error { return os.Rename(path, path+".away") }
	back := func(path string) error { return os.Rename(path+".away", path) }
	ways := []way{
		{"move", "was deleted or moved", rename, back},
		{"delete", "was deleted", os.Remove, nil},
		{"replace", "was replaced by another file", func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				err = rename(path)
			}
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		}, back},
		{"truncate", "was truncated", func(path string) error { return os.Truncate(path, 1000) }, nil},
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		for _, w := range ways {
			if end == "-shm" && w.name == "truncate" {
				continue // it is mapped into memory, and the process would crash
			}
			t.Run(w.name+end, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "w.db")
				s := open(t, sqlite.Options{Path: path})
				fill(t, s)
				want := everything(t, s)
				if err := w.away(path + end); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					refusedBy(t, s, w.want)
				}
				if w.name != "truncate" {
					if d := cmp.Diff(want, everything(t, s)); d != "" {
						t.Errorf("read meanwhile (-want +got):\n%s", d)
					}
				}
				if w.back == nil {
					return
				}
				if err := w.back(path + end); err != nil {
					t.Fatal(err)
				}
				if err := s.Ping(t.Context()); err != nil {
					t.Errorf("when it is back: %v", err)
				}
				if err := s.Update(t.Context(), "p", agent("p", 0).ID, appendOne("again")); err != nil {
					t.Errorf("when it is back: %v", err)
				}
				want = everything(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, everything(t, open(t, sqlite.Options{Path: path}))); d != "" {
					t.Errorf("after reopening (-want +got):\n%s", d)
				}
			})
		}
	}
}

// refusedBy wants a store to refuse writes.
func refusedBy(t *testing.T, s *store.SQLite, want string) {
	t.Helper()
	if err := s.Update(t.Context(), "p", agent("p", 0).ID, appendOne("lost")); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("append: %v", err)
	}
	if err := s.Ping(t.Context()); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("ping: %v", err)
	}
}

// TestFileOverwritten copies another database over the one that is open, in place. The store
// notices, at the latest when it is closed, and leaves that database as it is.
func TestFileOverwritten(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.db")
	s := open(t, sqlite.Options{Path: other})
	fill(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, bytes.Repeat([]byte{0}, 1<<20)...)
	for _, name := range []string{"noticed", "closed at once"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 100)
			path := filepath.Join(t.TempDir(), "w.db")
			s := open(t, sqlite.Options{Path: path, Report: func(_ string, err error) { told <- err }})
			fill(t, s)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "noticed" {
				if err := <-told; err == nil || !strings.Contains(err.Error(), "another program") {
					t.Errorf("reported: %v", err)
				}
				refusedBy(t, s, "written by another program")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, b) {
				t.Errorf("the database that was copied is changed, %v", err)
			}
		})
	}
}
