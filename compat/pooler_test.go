package compat_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newPooler starts pgbouncer in front of a server, in transaction mode, and returns its address.
// more are lines of its configuration.
func newPooler(t *testing.T, s *pgServer, more string) string {
	t.Helper()
	needs(t, "pgbouncer")
	dir, err := os.MkdirTemp(s.dir, "pooler")
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	path := filepath.Join(dir, "pgbouncer.ini")
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nserver_login_retry = 1\nlogfile = %s\npidfile = %s\n%s\n",
		s.port, strings.TrimPrefix(addr, "127.0.0.1:"), filepath.Join(dir, "log"), filepath.Join(dir, "pid"), more)
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c := s.command("pgbouncer", path)
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Path, err = exec.LookPath("pgbouncer"); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	eventually(t, "pgbouncer answers", func() bool {
		return s.command("psql", "-X", "-q", "-c", "SELECT", "postgres://postgres@"+addr+"/postgres?sslmode=disable").Run() == nil
	})
	return addr
}

// TestPooler runs two servers behind pgbouncer in transaction mode, whose server sessions are given
// to one client after the other, on a database that by default does not wait for the disk. What was
// acknowledged survives kills of the database, and other clients of the pool find the sessions as
// they are without Heardlog.
func TestPooler(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"by itself":              "",
		"drops what it is asked": "ignore_startup_parameters = extra_float_digits, heardlog.session",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newPostgres(t)
			db.sql("ALTER SYSTEM SET synchronous_commit = off")
			db.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
			db.sql("SELECT pg_reload_conf()")
			addr := newPooler(t, db, more)
			store := storeAt("", addr)
			w := write(t, 4, start(t, store), start(t, store))
			for range 3 {
				w.more(60)
				db.down(true)
				db.up()
			}
			w.more(60)
			settings := func(at string) string {
				out, err := db.command("psql", "-X", "-q", "-A", "-t", "-c", "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session' AND name <> 'application_name' ORDER BY name",
					"postgres://postgres@"+at+"/postgres?sslmode=disable").CombinedOutput()
				if err != nil {
					t.Errorf("%v: %s", err, out)
				}
				return string(out)
			}
			for range 20 { // whichever session it gets
				if got := settings(addr); got != "" {
					t.Fatalf("a session of the pool has settings:\n%s", got)
				}
			}
			if n := db.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != "0" {
				t.Errorf("%s advisory locks are held", n)
			}
			if got := db.sql("SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'"); got != "0" {
				t.Errorf("%s sessions of the pool listen", got)
			}
			w.check(w.servers[1])
		})
	}
}
