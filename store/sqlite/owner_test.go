//go:build linux || darwin

package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestOtherWaysToAFileAreRefused tries to open a file that another process has, by every path that
// leads to it.
func TestOtherWaysToAFileAreRefused(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "l.db")
	startHelper(t, path, "hold")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(way, path, want string, code fault.Code) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err == nil {
			s.Close()
			t.Fatalf("%s: the file was opened twice", way)
		}
		if fault.CodeOf(err) != code || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) && way != "link" {
			t.Errorf("%s: refused with: %v", way, err)
		}
	}
	const used = "in use by another process"
	link := filepath.Join(t.TempDir(), "link.db")
	do(os.Symlink(path, link))
	check("link", link, used, fault.Unavailable)
	do(os.Remove(path + ".lock"))
	check("link without lock file", path, used, fault.Unavailable)
	do(os.Remove(path + ".lock"))
	if r, err := sqlite.OpenReplacement(sqlite.Options{Path: path}, true); err == nil || !strings.Contains(err.Error(), used) {
		t.Errorf("replacement: %v, %v", r, err)
	}
	hard := filepath.Join(dir, "hard.db")
	do(os.Link(path, hard))
	check("hard link", hard, "find DIR -samefile "+hard, fault.Invalid)
	if r, err := sqlite.OpenReader(sqlite.Options{Path: hard}); err == nil || !strings.Contains(err.Error(), "2 names") {
		t.Errorf("a hard link was read: %v, %v", r, err)
	}
	do(os.Remove(hard))
	r, err := sqlite.OpenReader(sqlite.Options{Path: link})
	do(err)
	do(r.Close())
	do(os.Remove(link))
	do(os.Symlink(filepath.Join(dir, "missing.db"), link))
	check("dangling link", link, "does not exist", fault.Invalid)
}

// TestLinkedFile opens a file through symbolic links, of the file and of its folder.
func TestLinkedFile(t *testing.T) {
	t.Parallel()
	dir, links := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "l.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	want := everything(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"file.db": path, "folder": dir} {
		if err := os.Symlink(target, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{filepath.Join(links, "file.db"), filepath.Join(links, "folder", "l.db")} {
		s := open(t, sqlite.Options{Path: at})
		if d := cmp.Diff(want, everything(t, s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", at, d)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Errorf("%s: the log is not beside the file: %v", at, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
