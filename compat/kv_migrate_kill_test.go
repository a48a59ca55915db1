package compat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// memoryModel writes a memory model with these lines into a file and returns the setting that names
// it.
func memoryModel(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.yaml")
	text := "apiVersion: ossa/v0.3.2\nkind: MemoryModel\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "HEARDLOG_MEMORY_MODEL=" + path
}

// onBothStores runs a test with the setting of an empty SQLite file and of a PostgreSQL database.
func onBothStores(t *testing.T, test func(t *testing.T, store string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "HEARDLOG_STORE=sqlite:"+filepath.Join(t.TempDir(), "heardlog.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, database(t))
	})
}

// startRedis starts a Redis server that has what it acknowledges on disk, and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
	for end := time.Now().Add(patience); ; {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		_, port, _ := net.SplitHostPort(addr)
		ctx, kill := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always", "--save", "")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { kill(); <-ended })
		for alive := true; alive; {
			// An answer, since a connection alone may be to a program that has taken the port.
			if answersPing(addr) {
				return addr
			}
			if time.Now().After(end) {
				t.Fatal("redis-server does not answer")
			}
			select {
			case <-ended: // another program has taken the port
				alive = false
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// answersPing reports whether a Redis server at the address answers.
func answersPing(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	answer := make([]byte, 5)
	_, err = c.Write([]byte("PING\r\n"))
	if err == nil {
		_, err = io.ReadFull(c, answer)
	}
	return err == nil && string(answer) == "+PONG"
}

// TestKillKeyMigration kills the server repeatedly while it moves keys and values to Redis, and
// back. All of them are there in the end, as they were.
func TestKillKeyMigration(t *testing.T) {
	t.Parallel()
	onBothStores(t, killKeyMigration)
}

func killKeyMigration(t *testing.T, store string) {
	redis := startRedis(t)
	own := []string{store, "HEARDLOG_SECRET_KEY=a key that is long enough"}
	model := func(source, target, provider string) []string {
		return append(own[:len(own):len(own)], memoryModel(t, "long_term: {enabled: false}",
			fmt.Sprintf("short_term: {enabled: true, provider: %s, connection: {endpoint: \"redis://%s\"}}", provider, redis),
			fmt.Sprintf("lifecycle: {migration: {enabled: true, source_provider: %s, target_provider: %s, batch_size: 100}}", source, target)))
	}
	const spaces, batches = 4, 60
	c := kvClient{}
	s := start(t, own...)
	for space := range spaces {
		for b := range batches {
			var entries []string
			for i := range 100 {
				entries = append(entries, fmt.Sprintf(`{"key":"%04d","value":"%d %d","ttl_seconds":%d}`, b*100+i, space, b*100+i, 10_000+i))
			}
			if got, ok := c.call(s.url, "POST", fmt.Sprintf("space-%d/batch/set", space), `{"entries":[`+strings.Join(entries, ",")+`]}`); !ok {
				t.Fatal(got)
			}
		}
	}
	s.kill()
	read := func(s *server) string {
		var out strings.Builder
		for space := range spaces {
			for b := range batches {
				var keys []string
				for i := range 100 {
					keys = append(keys, fmt.Sprintf("%04d", b*100+i))
				}
				list, _ := json.Marshal(map[string]any{"keys": keys})
				got, ok := c.call(s.url, "POST", fmt.Sprintf("space-%d/batch/get", space), string(list))
				if !ok {
					t.Fatal(got)
				}
				out.WriteString(got)
			}
		}
		return out.String()
	}
	s = start(t, own...)
	want := read(s)
	s.kill()
	for _, env := range [][]string{model("in_memory", "redis", "redis"), model("redis", "in_memory", "local_cache")} {
		for range 8 {
			s := launch(t, env...)
			if _, ok := s.stderr.find(func(line string) bool { return strings.Contains(line, "keys and values: migrating") }); !ok {
				t.Fatalf("it moves nothing:\n%s", s.stderr)
			}
			s.kill()
		}
		s := start(t, env...)
		if got := read(s); got != want {
			t.Error("keys or values differ after they were moved")
		}
		s.kill()
	}
	s = start(t, own...)
	if got := read(s); got != want {
		t.Error("keys or values differ in the server's own store")
	}
	s.kill()
}
