// Package postgrestest provides PostgreSQL databases for tests. URL returns an empty schema on a
// shared server, and Start starts a Server that the test may stop. A Proxy in front of a server
// simulates network failures.
package postgrestest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/postgres/pg"
)

// patience bounds how long a server may take to start or stop.
const patience = time.Minute

// base returns the URL of the server that tests share: TEST_POSTGRES_URL, or a server that answers
// on this machine. If there is none, the test is skipped, or fails in CI. If TEST_POSTGRES_URL is
// none, the test is skipped.
func base(t testing.TB) string {
	t.Helper()
	leftOut(t)
	given := os.Getenv("TEST_POSTGRES_URL")
	if given == "" {
		given = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, given)
	if err != nil {
		t.Log(err)
		missing(t, "no PostgreSQL server answers: start one on 127.0.0.1:5432, or set TEST_POSTGRES_URL, such as postgres://postgres@127.0.0.1:5432/test")
	}
	_ = conn.Close(ctx)
	return given
}

// leftOut skips the test if TEST_POSTGRES_URL says that tests use no PostgreSQL.
func leftOut(t testing.TB) {
	t.Helper()
	if os.Getenv("TEST_POSTGRES_URL") == "none" {
		t.Skip("PostgreSQL is left out; make test-all runs it")
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

var schemas atomic.Int64

// URL creates an empty schema for the test and returns its URL. The schema is dropped when the test
// ends.
func URL(t testing.TB) string {
	t.Helper()
	return Schema(t, base(t))
}

// Schema creates a schema in the database at the URL base, and returns the URL of the schema.
func Schema(t testing.TB, base string) string {
	t.Helper()
	name := fmt.Sprintf("t_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), schemas.Add(1))
	Exec(t, base, "CREATE SCHEMA "+name)
	t.Cleanup(func() { Exec(t, base, "DROP SCHEMA "+name+" CASCADE") })
	sep := "?"
	if strings.Contains(base, "?") {
		sep = "&"
	}
	return base + sep + "search_path=" + url.QueryEscape(name)
}

// Exec runs a statement on a new connection, and again after a deadlock: what a server that was
// killed has begun goes on in the database for a moment.
func Exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	for try := 1; pg.Transient(err) && try < pg.MaxTries; try++ {
		_, err = conn.Exec(ctx, sql, args...)
	}
	if err != nil {
		t.Error(err)
	}
}

// Server is a PostgreSQL server for one test. It is removed when the test ends.
type Server struct {
	t    testing.TB
	dir  string
	port int
	as   *syscall.Credential // the user that runs it, not root
}

// Start creates and starts a server for the test. If the programs initdb and pg_ctl are not
// installed, the test is skipped, or fails in CI.
func Start(t testing.TB) *Server {
	t.Helper()
	leftOut(t)
	for _, program := range []string{"initdb", "pg_ctl"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, "the test runs a PostgreSQL server of its own: "+err.Error())
		}
	}
	// Not t.TempDir, whose parents only the user of the test may enter.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, dir: dir, port: freePort(t)}
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	t.Cleanup(func() { _ = s.command("pg_ctl", "-D", s.data(), "-m", "immediate", "-w", "stop").Run() })
	s.Up()
	return s
}

var ports atomic.Int64 // how many freePort has tried

// freePort returns a port that nothing uses. It is below those that the system hands out by itself,
// and another one than those of test processes beside this one, so that it stays free while the
// server is down.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + (16*os.Getpid()+int(ports.Add(1)))%20_000
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	path, err := exec.LookPath(name)
	if err != nil {
		path = name
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // it looks for its other programs in its own directory
	}
	c := exec.Command(path, args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "LC_ALL=C")
	if s.as != nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	}
	return c
}

func (s *Server) run(name string, args ...string) {
	s.t.Helper()
	c := s.command(name, args...)
	out, err := os.Create(filepath.Join(s.dir, "out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out // a file: the server inherits it, and would hold a pipe open
	if err := c.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		s.t.Fatalf("%s: %v\n%s", name, err, text)
	}
}

// Up starts the server and waits until it answers.
func (s *Server) Up() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-w", "-o",
		fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200", s.port), "start")
}

// Down stops the server: at once, like a crash, or with an orderly shutdown.
func (s *Server) Down(crash bool) {
	s.t.Helper()
	mode := "fast"
	if crash {
		mode = "immediate"
	}
	s.run("pg_ctl", "-D", s.data(), "-m", mode, "-w", "stop")
}

// Addr returns the address of the server, host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL returns the URL of the server's database.
func (s *Server) URL() string { return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable" }
