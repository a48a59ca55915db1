package compat_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestDiskFull fills the disk: appends are refused, nothing that was acknowledged is lost, and what
// was refused is not stored. With room again the server goes on by itself.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("limit of the file size", func(t *testing.T) {
		t.Parallel()
		limit := func(t *testing.T, s *server, bytes uint64) {
			t.Helper()
			if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
				t.Fatal(err)
			}
		}
		testDiskFull(t, t.TempDir(),
			func(s *server) {
				wal, err := os.Stat(s.store + "-wal")
				if err != nil {
					t.Fatal(err)
				}
				limit(t, s, uint64(wal.Size()))
			},
			func(s *server) { limit(t, s, unix.RLIM_INFINITY) })
	})
	t.Run("full disk", func(t *testing.T) {
		t.Parallel()
		dir, fill, free := smallDisk(t, 4)
		testDiskFull(t, dir, func(*server) { fill() }, func(*server) { free() })
	})
}

// smallDisk mounts a disk of some MiB, and returns functions that fill it and make room again.
func smallDisk(t *testing.T, size int) (dir string, fill, free func()) {
	dir = t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); errors.Is(err, syscall.EPERM) {
		t.Skip("mounting a small disk needs rights that this user has not: run the test as root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	fill = func() {
		if err := os.WriteFile(filler, make([]byte, size<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	free = func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	return dir, fill, free
}

// TestDiskFullAtStart starts a server on a full disk: it serves reads, refuses writes, and goes on
// by itself when there is room.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"after a stop": syscall.SIGTERM, "after a kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, fill, free := smallDisk(t, 4)
			env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(dir, "heardlog.db"), "HEARDLOG_WEBHOOK_URL=http://127.0.0.1:65000/", "HEARDLOG_SECRET_KEY=" + strings.Repeat("k", 40)}
			s := start(t, env...)
			id := s.join(t, "full", nil)
			message := object{"role": "user", "content": "hello"}
			path := "/v1/agents/" + id + "/messages"
			for range 10 {
				s.call(t, 200, "POST", path, message, nil)
			}
			want := s.ledger(t, id)
			s.signal(t, sig)
			<-s.done
			fill()
			s = start(t, env...)
			if diff := cmp.Diff(want, s.ledger(t, id)); diff != "" {
				t.Errorf("on a full disk: %s", diff)
			}
			s.call(t, 503, "POST", path, object{"role": "user", "content": strings.Repeat("x", 9000)}, nil)
			s.call(t, 503, "GET", "/readyz", nil, nil)
			free()
			s.call(t, 200, "POST", path, message, nil)
			s.call(t, 200, "GET", "/readyz", nil, nil)
			if got := s.ledger(t, id); len(got) != len(want)+1 {
				t.Errorf("with room again: %d messages", len(got))
			}
			s.signal(t, syscall.SIGTERM)
			if code := s.wait(t); code != 0 {
				t.Errorf("the server ended with %d", code)
			}
		})
	}
}

// TestPassOnFullDisk fills the disk of a server that passes turns: calls go on, and are stored
// once, in order, when there is room, by the same server or by the next after a kill. What is no
// turn is refused.
func TestPassOnFullDisk(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]bool{"goes on": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, fill, free := smallDisk(t, 16)
			llm := fakeLLM(t)
			env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(dir, "heardlog.db"), "HEARDLOG_LLM_URL=" + llm + "/v1", "HEARDLOG_ON_STORE_FAILURE=pass"}
			s := start(t, env...)
			id := s.join(t, "pass", nil)
			path := "/v1/agents/" + id
			chat := func(words string, stream bool) {
				t.Helper()
				s.call(t, 200, "POST", path+"/chat/completions", object{"stream": stream, "messages": []object{{"role": "user", "content": words}}}, nil)
			}
			chat("one", false)
			fill()
			chat("two", false)
			chat("three", true)
			s.call(t, 200, "POST", path+"/responses", object{"input": "four"}, nil)
			s.call(t, 503, "POST", path+"/messages", object{"role": "user", "content": strings.Repeat("x", 9000)}, nil)
			s.call(t, 503, "GET", "/readyz", nil, nil)
			if got := s.ledger(t, id); len(got) != 2 {
				t.Errorf("%d messages are stored on a full disk", len(got))
			}
			if kill {
				s.signal(t, syscall.SIGKILL)
				<-s.done
				free()
				s = start(t, env...)
			} else {
				free()
			}
			var got []string
			eventually(t, "the turns are stored", func() bool {
				got = got[:0]
				for _, m := range s.ledger(t, id) {
					got = append(got, m.Role+": "+m.Content)
				}
				return len(got) >= 8
			})
			var want []string
			for _, words := range []string{"one", "two", "three", "four"} {
				want = append(want, "user: "+words, "assistant: You said: "+words)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("with room again (-want +got):\n%s", diff)
			}
			chat("five", false)
			if got := s.ledger(t, id); len(got) != 10 {
				t.Errorf("%d messages after one more turn", len(got))
			}
		})
	}
}

func testDiskFull(t *testing.T, dir string, fill, free func(*server)) {
	llm := fakeLLM(t)
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(dir, "heardlog.db"), "HEARDLOG_LLM_URL=" + llm + "/v1"}
	s := start(t, env...)
	id := s.join(t, "full", nil)
	path := "/v1/agents/" + id
	var acked []string
	n := 0
	one := func() int {
		n++
		name := fmt.Sprintf("m-%d", n)
		status, body, err := s.try(t.Context(), "POST", path+"/messages", object{"id": name, "role": "user", "content": strings.Repeat("x", 2000)})
		if err != nil {
			t.Fatal(err)
		}
		switch status {
		case 200:
			acked = append(acked, name)
		case 503:
			if !strings.Contains(string(body), `"ServiceUnavailable"`) {
				t.Errorf("503 %s", body)
			}
		default:
			t.Errorf("%d %s", status, body)
		}
		return status
	}
	stored := func() []string {
		t.Helper()
		ids := []string{}
		for _, m := range s.ledger(t, id) {
			ids = append(ids, m.ID)
		}
		return ids
	}
	for range 10 {
		one()
	}
	fill(s)
	for tries := 0; one() == 200; tries++ {
		if tries == 5000 {
			t.Fatal("the disk is never full")
		}
	}
	for range 20 {
		if one() == 200 {
			break // the file had some room left
		}
	}
	if diff := cmp.Diff(acked, stored()); diff != "" {
		t.Errorf("while the disk is full: %s", diff)
	}
	s.call(t, 503, "POST", "/v1/agents", object{"name": "another"}, nil)
	s.call(t, 503, "POST", path+"/leave", nil, nil)
	s.call(t, 503, "POST", path+"/chat/completions", object{"messages": []object{{"role": "user", "content": "hello?"}}}, nil)
	s.call(t, 503, "GET", "/readyz", nil, nil)
	s.call(t, 200, "GET", "/healthz", nil, nil)
	// The LLM may be called while the disk works. In any case the client has got the refusal, and
	// nothing of the turn is stored.
	if got := len(requests(t, llm)); got > 1 {
		t.Errorf("the LLM was asked %d times for one refused call", got)
	}
	if diff := cmp.Diff(acked, stored()); diff != "" {
		t.Errorf("after a turn on a full disk: %s", diff)
	}
	if got := s.statusOf(t, id); got != "RUNNING" {
		t.Errorf("the agent whose leave was refused is %s", got)
	}
	free(s)
	eventually(t, "the store takes messages again", func() bool { return one() == 200 })
	for range 10 {
		if got := one(); got != 200 {
			t.Errorf("with room again: %d", got)
		}
	}
	s.call(t, 200, "GET", "/readyz", nil, nil)
	if diff := cmp.Diff(acked, stored()); diff != "" {
		t.Errorf("with room again: %s", diff)
	}
	s.kill()
	s = start(t, env...)
	if diff := cmp.Diff(acked, stored()); diff != "" {
		t.Errorf("after a kill: %s", diff)
	}
	if !slices.IsSortedFunc(s.ledger(t, id), func(a, b message) int { return int(a.Seq - b.Seq) }) {
		t.Error("the ledger is out of order")
	}
	s.call(t, 200, "POST", path+"/leave", nil, nil)
	if got := s.statusOf(t, id); got != "STOPPED" {
		t.Errorf("at the end the agent is %s", got)
	}
}

// TestTablespaceFull fills the disk of a PostgreSQL tablespace: the server is not ready while
// appends are refused, and goes on by itself when there is room.
func TestTablespaceFull(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	dir, fill, free := smallDisk(t, 24)
	place := filepath.Join(dir, "space")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if db.as != nil {
		for _, path := range []string{dir, place} {
			if err := os.Chown(path, int(db.as.Uid), int(db.as.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	db.sql("CREATE TABLESPACE small LOCATION '" + place + "'")
	db.sql("ALTER DATABASE postgres SET default_tablespace = small")
	s := start(t, storeAt("", db.addr()))
	id := s.join(t, "full", nil)
	append := func() int {
		status, _, err := s.try(t.Context(), "POST", "/v1/agents/"+id+"/messages", object{"role": "user", "content": strings.Repeat("x", 5000)})
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	ready := func() int {
		status, _, err := s.try(t.Context(), "GET", "/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if append() != 200 || ready() != 200 {
		t.Fatalf("before: %s", s.stderr)
	}
	fill()
	eventually(t, "appends are refused", func() bool { return append() == 503 })
	for range 3 {
		if got := ready(); got != 503 {
			t.Errorf("readyz answers %d while appends are refused", got)
		}
	}
	free()
	eventually(t, "the server is ready", func() bool { return ready() == 200 })
	if got := append(); got != 200 {
		t.Errorf("with room again an append answers %d", got)
	}
}

// TestDiskFullArchive has no room for an archive: calls stay in the store, as they are, and move
// once there is room.
func TestDiskFullArchive(t *testing.T) {
	t.Parallel()
	disk, fill, free := smallDisk(t, 4)
	if err := os.WriteFile(filepath.Join(disk, "other"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "archive")
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_SECRET_KEY=" + strings.Repeat("k", 40)}
	s := start(t, env...)
	want := map[string][]message{}
	for i := range 5 {
		id := s.join(t, fmt.Sprint("call-", i), nil)
		s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"role": "user", "content": strings.Repeat("a long text ", 1000) + fmt.Sprint(i)}, nil)
		s.call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil)
		want[id] = s.ledger(t, id)
	}
	s.kill()
	fill()
	env = append(env, "HEARDLOG_ARCHIVE="+dir, "HEARDLOG_ARCHIVE_AFTER=1ms")
	objects := func() (n int) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !strings.Contains(path, ".part-") {
				n++
			}
			return nil
		})
		return n
	}
	check := func(when string) {
		t.Helper()
		for id, list := range want {
			if diff := cmp.Diff(list, s.ledger(t, id)); diff != "" {
				t.Errorf("%s: %s", when, diff)
			}
		}
	}
	s = start(t, env...)
	if _, ok := s.stderr.find(func(l string) bool { return strings.Contains(l, "no space left on device") }); !ok {
		t.Fatalf("the server does not say that the archive's disk is full:\n%s", s.stderr)
	}
	check("on a full disk")
	if n := objects(); n > 0 {
		t.Errorf("%d objects are on a full disk", n)
	}
	s.call(t, 200, "GET", "/readyz", nil, nil)
	free()
	s.kill()
	s = start(t, env...)
	eventually(t, "the calls have moved", func() bool { return objects() == len(want) })
	check("after they have moved")
}
