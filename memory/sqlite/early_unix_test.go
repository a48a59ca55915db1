//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heardlog/heardlog/internal/drivers"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// A disk that does not take the commit of what was told early: the caller learns it, nothing of it
// stands, and the store goes on. The disk is one that lets no file grow, which a process can have
// for itself alone.
func TestUpdateEarlyDiskRefuses(t *testing.T) {
	t.Parallel()
	cmd, lines := startHelper(t, filepath.Join(t.TempDir(), "d.db"), "early")
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := "early true <nil>\nkept <nil>\nearly true <nil>\nkept unavailable\nfound 1\nearly true <nil>\nkept <nil>\nfound 2"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

// helpEarly is the process of TestUpdateEarlyDiskRefuses.
func helpEarly(ctx context.Context, s *drivers.SQLite, path string) error {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	id := agent("p", 0).ID
	write := func(text string) {
		kept := make(chan error, 1)
		early, err := s.UpdateEarly(ctx, "p", id, appendOne(text), func(err error) { kept <- err })
		fmt.Fprintln(out, "early", early, err)
		if !early {
			return
		}
		if err := <-kept; err != nil {
			fmt.Fprintln(out, "kept", fault.CodeOf(err))
			return
		}
		fmt.Fprintln(out, "kept <nil>")
	}
	found := func() error {
		list, err := s.Messages(ctx, "p", id, memory.MessageQuery{Limit: 10})
		fmt.Fprintln(out, "found", len(list))
		return err
	}
	write("short")
	signal.Ignore(syscall.SIGXFSZ)
	log, err := os.Stat(path + "-wal")
	if err != nil {
		return err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(log.Size()), Max: was.Max}); err != nil {
		return err
	}
	write(strings.Repeat("much ", 40_000))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := found(); err != nil {
		return err
	}
	write("again")
	return found()
}
