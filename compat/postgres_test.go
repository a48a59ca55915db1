package compat_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// pgServer is a PostgreSQL server of a test's own. Its directory is removed with the test.
type pgServer struct {
	t    testing.TB
	dir  string
	port int
	as   *syscall.Credential // see postgresUser
}

// standby is what a standby calls itself.
const standby = "second"

// newPostgres starts a server.
func newPostgres(t testing.TB) *pgServer {
	s := emptyPostgres(t)
	s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	s.up()
	return s
}

// newPair starts a server and a standby that its commits wait for.
func newPair(t testing.TB) (primary, second *pgServer) {
	primary, second = newPostgres(t), emptyPostgres(t)
	second.run("pg_basebackup", "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", primary.port, standby), "-D", second.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	second.up()
	primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.sql("SELECT pg_reload_conf()")
	eventually(t, "the standby is synchronous", func() bool {
		return primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
	})
	return primary, second
}

func emptyPostgres(t testing.TB) *pgServer {
	t.Helper()
	if os.Getenv("TEST_POSTGRES_URL") == "none" {
		t.Skip("PostgreSQL is left out; make test-all runs it")
	}
	needs(t, "initdb")
	dir, err := os.MkdirTemp("", "pg") // not t.TempDir, whose parents only the user of the test may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &pgServer{t: t, dir: dir, port: freePort(t)}
	if s.as = postgresUser(t); s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		s.thaw()
		_ = s.command("pg_ctl", "-D", s.data(), "-m", "immediate", "-w", "stop").Run()
	})
	return s
}

// postgresUser returns the user that runs PostgreSQL for a test of root, which it refuses to run
// as; nil: the user of the test.
func postgresUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// needs skips the test if a program is not installed; in CI it fails.
func needs(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%s is not installed: %v", program, err)
	}
}

var triedPorts atomic.Int64 // how many freePort has tried

// freePort returns a port that nothing uses, below those that the system hands out by itself, and
// another one than those of test processes beside this one.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + (16*os.Getpid()+int(triedPorts.Add(1)))%20_000
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (s *pgServer) data() string { return filepath.Join(s.dir, "data") }

func (s *pgServer) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *pgServer) command(name string, args ...string) *exec.Cmd {
	path := name
	if initdb, err := exec.LookPath("initdb"); err == nil { // a name in the path may lead to a wrapper
		if real, err := filepath.EvalSymlinks(initdb); err == nil {
			path = filepath.Join(filepath.Dir(real), name)
		}
	}
	c := exec.Command(path, args...)
	c.Dir, c.Env = s.dir, append(os.Environ(), "LC_ALL=C")
	if s.as != nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	}
	return c
}

func (s *pgServer) run(name string, args ...string) {
	s.t.Helper()
	c := s.command(name, args...)
	out, err := os.CreateTemp(s.dir, "out")
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

// up starts the server and waits until it answers.
func (s *pgServer) up() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-w", "-o",
		fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c wal_receiver_status_interval=1", s.port), "start")
}

// down stops the server: at once, as kill -9 of all its processes does, or orderly.
func (s *pgServer) down(crash bool) {
	s.t.Helper()
	mode := "fast"
	if crash {
		mode = "immediate"
	}
	s.run("pg_ctl", "-D", s.data(), "-m", mode, "-w", "stop")
}

// promote makes a standby take writes.
func (s *pgServer) promote() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.data(), "-w", "promote")
}

// processes returns the server's processes.
func (s *pgServer) processes() (pids []int) {
	text, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	line, _, _ := strings.Cut(string(text), "\n")
	main, err := strconv.Atoi(line)
	if err != nil {
		return nil
	}
	pids = append(pids, main)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == line {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// freeze stops all processes of the server where they are: it accepts connections and is silent.
func (s *pgServer) freeze() { s.signal(syscall.SIGSTOP) }

// thaw lets them go on.
func (s *pgServer) thaw() { s.signal(syscall.SIGCONT) }

func (s *pgServer) signal(what syscall.Signal) {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, what)
	}
}

// sql runs a statement as a superuser and returns its first value.
func (s *pgServer) sql(text string) string {
	s.t.Helper()
	out, err := s.command("psql", "-q", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "postgres://postgres@"+s.addr()+"/postgres?sslmode=disable", "-c", text).CombinedOutput()
	if err != nil {
		s.t.Errorf("%s: %v: %s", text, err, out)
	}
	return strings.TrimSpace(string(out))
}

// storeAt returns the setting of a store on these servers. more are parameters of the connection.
func storeAt(more string, addrs ...string) string {
	return "HEARDLOG_STORE=postgres://postgres@" + strings.Join(addrs, ",") + "/postgres?sslmode=disable" + more
}

// forwarder passes connections on to a server and fails like a network.
type forwarder struct {
	listen net.Listener
	mu     sync.Mutex
	to     string
	conns  map[net.Conn]bool
	hole   atomic.Bool  // what is sent gets lost
	muted  atomic.Int64 // how often connections that were open were made silent
	refuse atomic.Bool  // connections are closed at once
}

func newForwarder(t testing.TB, to string) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{listen: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		f.cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *forwarder) addr() string { return f.listen.Addr().String() }

// lead makes new connections go to another server. Those that are open fall silent.
func (f *forwarder) lead(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	f.muted.Add(1)
}

// cut closes all connections.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
	clear(f.conns)
}

func (f *forwarder) serve(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	if f.refuse.Load() {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	f.mu.Lock()
	f.conns[client], f.conns[server] = true, true
	f.mu.Unlock()
	since := f.muted.Load()
	var lost atomic.Bool // what was lost once stays lost: the connection is silent for ever
	pass := func(to io.WriteCloser, from io.Reader) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if f.hole.Load() || f.muted.Load() != since {
				lost.Store(true)
			}
			if lost.Load() {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	done := make(chan struct{})
	go func() { pass(client, server); close(done) }()
	pass(server, client)
	<-done
}
