package sqlite_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// overwrite overwrites a part of a file with what is not there.
func overwrite(t *testing.T, path string, from, to int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, to-from)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	b[0] = 0xee
	if _, err := f.WriteAt(b, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// findings returns what the doctor and verify find in a file.
func findings(t *testing.T, path string) (quick, whole string) {
	t.Helper()
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		return err.Error(), err.Error()
	}
	defer r.Close()
	if err := r.Damage(t.Context(), func(what string) { quick += what + "\n" }); err != nil {
		t.Error(err)
	}
	err = r.Probe(t.Context(), func(f export.Finding) error {
		whole += f.What + "\n"
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return quick, whole
}

// TestFirstPageOverwritten overwrites parts of the first page of a database. The log has a newer
// one, so that SQLite goes on as if nothing had happened; the store and the doctor notice.
func TestFirstPageOverwritten(t *testing.T) {
	t.Parallel()
	for _, part := range []struct {
		name     string
		from, to int64
	}{{"page", 0, 4096}, {"header", 0, 100}, {"magic", 0, 1}, {"schema", 100, 4096}} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "d.db")
			s := open(t, sqlite.Options{Path: path})
			fill(t, s)
			if err := s.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if quick, whole := findings(t, path); quick != "" || whole != "" {
				t.Errorf("found before: %s, %s", quick, whole)
			}
			want := everything(t, s)
			overwrite(t, path, part.from, part.to)
			if err := s.Ping(t.Context()); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "written by another program") {
				t.Errorf("ping at once: %v", err)
			}
			refusedBy(t, s, "written by another program")
			if quick, whole := findings(t, path); !strings.Contains(quick, "first page") || !strings.Contains(whole, "first page") {
				t.Errorf("found while it runs: %s, %s", quick, whole)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if quick, _ := findings(t, path); !strings.Contains(quick, "first page") {
				t.Errorf("found after it ran: %s", quick)
			}
			// The log has all pages still.
			s = open(t, sqlite.Options{Path: path})
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("ping after the log has mended the page: %v", err)
			}
			if d := cmp.Diff(want, everything(t, s)); d != "" {
				t.Errorf("after the log has mended the page (-want +got):\n%s", d)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			// Another file has no log.
			path = filepath.Join(t.TempDir(), "d.db")
			s = open(t, sqlite.Options{Path: path})
			fill(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			overwrite(t, path, part.from, part.to)
			if quick, whole := findings(t, path); quick == "" || whole == "" {
				t.Errorf("found without a log: %q, %q", quick, whole)
			}
			s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
			if err == nil {
				if err = s.Ping(t.Context()); err == nil {
					t.Error("a server takes the file as it is")
				}
				_ = s.Close() // may fail, as the file is damaged
			}
			if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("without a log: %v", err)
			}
		})
	}
}

// TestPingNeedsRoom: a ping fails when the file is full, as a turn does.
func TestPingNeedsRoom(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{MaxPages: 200})
	fill(t, s)
	var err error
	for err == nil {
		err = s.Update(t.Context(), "p", agent("p", 0).ID, appendOne(sentence))
	}
	if err := s.Ping(t.Context()); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "full") {
		t.Errorf("ping of a full store: %v", err)
	}
	if err := s.Erase(t.Context(), "p", agent("p", 0).ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}
