package sqlite_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heardlog/heardlog/store/sqlite"
)

// TestUnlockedByClose closes a store while its descriptors have copies, as they have in a child
// process that has not run its program yet.
func TestUnlockedByClose(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "l.db")
	open(t, sqlite.Options{Path: path}).Close() // the file is there
	s := open(t, sqlite.Options{Path: path})
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]bool{}
	for _, fd := range fds {
		name, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || !strings.HasPrefix(name, path) {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		c, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(c) })
		copies[name] = true
	}
	if !copies[path] || !copies[path+".lock"] {
		t.Fatalf("descriptors of %v were copied", copies)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
