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

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
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
func helpEarly(ctx context.Context, s *store.SQLite, path string) error {
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
	lift, _, err := noGrowth(path + "-wal")
	if err != nil {
		return err
	}
	write(noise(200_000))
	if err := lift(); err != nil {
		return err
	}
	if err := found(); err != nil {
		return err
	}
	write("again")
	return found()
}

// noGrowth lets no file of this process become larger than the one at path until lift is called. It
// returns the file's size with the limit in force: a checkpoint may have run between the two steps.
func noGrowth(path string) (lift func() error, size int64, err error) {
	signal.Ignore(syscall.SIGXFSZ)
	file, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return nil, 0, err
	}
	lift = func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was) }
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(file.Size()), Max: was.Max}); err != nil {
		return nil, 0, err
	}
	if file, err = os.Stat(path); err != nil {
		return nil, 0, err
	}
	return lift, file.Size(), nil
}

// A disk that is full when the log is moved into the file: the log keeps what is written, and the
// file that was changed in part is not mistaken for another one.
func TestFullDiskAtCheckpoint(t *testing.T) {
	t.Parallel()
	cmd, lines := startHelper(t, filepath.Join(t.TempDir(), "d.db"), "full")
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// helpFull is the process of TestFullDiskAtCheckpoint. A message takes some 50 pages, so there is a
// checkpoint for every 40 of them.
func helpFull(ctx context.Context, s *store.SQLite, path string) error {
	const large, most = 40 << 20, 1000
	content := noise(200_000)
	// grow appends until the database has more than so many bytes, until max messages are written,
	// or until enough reports true.
	grow := func(bytes int64, max int, enough func() bool) (int64, error) {
		for range max {
			if enough() {
				break
			}
			if err := s.Update(ctx, "p", agent("p", 0).ID, appendOne(content)); err != nil {
				return 0, err
			}
			if file, err := os.Stat(path); err != nil || file.Size() > bytes {
				return file.Size(), err
			}
		}
		return 0, nil
	}
	never := func() bool { return false }
	// The log is smaller than such a database, so it may grow on.
	if size, err := grow(large, most, never); err != nil || size == 0 {
		return fmt.Errorf("the database is not large (error: %v)", err)
	}
	lift, full, err := noGrowth(path)
	if err != nil {
		return err
	}
	// The limit holds for the log too, which is long where the disk is slow.
	long := func() bool {
		log, err := os.Stat(path + "-wal")
		return err != nil || log.Size() > full-1<<20
	}
	// One write may have been under way when the limit came.
	if size, err := grow(full+64<<10, 90, long); err != nil || size > 0 {
		return fmt.Errorf("on a full disk the file grew to %d bytes (error: %v)", size, err)
	}
	if err := lift(); err != nil {
		return err
	}
	if size, err := grow(full+64<<10, most, never); err != nil || size == 0 {
		return fmt.Errorf("after a full disk the file did not grow (error: %v)", err)
	}
	return s.Ping(ctx)
}
