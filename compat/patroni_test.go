package compat_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// patroni is a cluster of two PostgreSQL servers that Patroni keeps, with etcd.
type patroni struct {
	t     *testing.T
	dir   string
	bin   string // of PostgreSQL
	as    *syscall.Credential
	nodes []*exec.Cmd
	addrs []string
}

// newPatroni starts a cluster with a synchronous standby.
func newPatroni(t *testing.T) *patroni {
	t.Helper()
	if os.Getenv("TEST_POSTGRES_URL") == "none" {
		t.Skip("PostgreSQL is left out; make test-all runs it")
	}
	for _, program := range []string{"initdb", "patroni", "patronictl", "etcd"} {
		needs(t, program)
	}
	dir, err := os.MkdirTemp("", "patroni") // not t.TempDir, whose parents only the user of the test may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	initdb, _ := exec.LookPath("initdb")
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		t.Fatal(err)
	}
	p := &patroni{t: t, dir: dir, bin: filepath.Dir(initdb), as: postgresUser(t)}
	client, peer := freePort(t), freePort(t)
	clientURL, peerURL := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	for n := range 2 {
		api, port := freePort(t), freePort(t)
		home := filepath.Join(dir, fmt.Sprint("n", n))
		if err := os.Mkdir(home, 0o700); err != nil {
			t.Fatal(err)
		}
		config := strings.NewReplacer("NAME", fmt.Sprint("n", n), "API", fmt.Sprint("127.0.0.1:", api), "ETCD", fmt.Sprint("127.0.0.1:", client), "PORT", fmt.Sprint("127.0.0.1:", port), "HOME", home, "BIN", p.bin).Replace(`
scope: demo
name: NAME
restapi: {listen: "API", connect_address: "API"}
etcd3: {hosts: "ETCD"}
bootstrap:
  dcs: {ttl: 20, loop_wait: 2, retry_timeout: 3, synchronous_mode: true}
  initdb: [{encoding: UTF8}]
  pg_hba: ["host replication all 127.0.0.1/32 trust", "host all all 127.0.0.1/32 trust"]
postgresql:
  listen: PORT
  connect_address: PORT
  data_dir: HOME/data
  bin_dir: BIN
  pgpass: HOME/pgpass
  authentication: {superuser: {username: postgres}, replication: {username: replicator}}
  parameters: {unix_socket_directories: "", max_connections: 100}
`)
		if err := os.WriteFile(p.config(n), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		p.addrs = append(p.addrs, fmt.Sprint("127.0.0.1:", port))
	}
	if p.as != nil {
		err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, int(p.as.Uid), int(p.as.Gid))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.start("etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", clientURL, "--advertise-client-urls", clientURL,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
	eventually(t, "etcd answers", func() bool {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", client))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	for n := range 2 {
		p.nodes = append(p.nodes, p.start("patroni", p.config(n)))
	}
	p.healthy()
	return p
}

func (p *patroni) config(n int) string { return filepath.Join(p.dir, fmt.Sprintf("n%d.yml", n)) }

func (p *patroni) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir, c.Env = p.dir, []string{"PATH=" + p.bin + ":" + os.Getenv("PATH"), "HOME=" + p.dir, "LC_ALL=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: p.as, Setpgid: true}
	return c
}

// start starts a program, whose processes are killed at the end of the test.
func (p *patroni) start(name string, args ...string) *exec.Cmd {
	p.t.Helper()
	c := p.command(name, args...)
	out, err := os.CreateTemp(p.dir, "out")
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.kill(c)
		if p.t.Failed() {
			text, _ := os.ReadFile(out.Name())
			p.t.Logf("%s: %.3000s", name, text[max(0, len(text)-3000):])
		}
	})
	return c
}

// kill kills a program and the PostgreSQL server below it.
func (p *patroni) kill(c *exec.Cmd) {
	for n, node := range p.nodes {
		if node != c {
			continue
		}
		s := pgServer{dir: filepath.Join(p.dir, fmt.Sprint("n", n))}
		s.signal(syscall.SIGKILL)
	}
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = c.Wait()
}

// leader returns the number of the node that takes writes and has a synchronous standby, or -1.
func (p *patroni) leader() int {
	out, err := p.command("patronictl", "-c", p.config(0), "list", "-f", "tsv").Output()
	if err != nil || !strings.Contains(string(out), "Sync Standby") {
		return -1
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Split(line, "\t"); len(f) > 4 && strings.TrimSpace(f[3]) == "Leader" && strings.TrimSpace(f[4]) == "running" {
			n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(f[1]), "n"))
			if err == nil {
				return n
			}
		}
	}
	return -1
}

// healthy waits for a leader with a synchronous standby.
func (p *patroni) healthy() {
	p.t.Helper()
	eventually(p.t, "Patroni has a leader with a synchronous standby", func() bool { return p.leader() >= 0 })
}

// TestPatroni has Patroni move the primary while two servers write: on request, and after the node
// of the primary was killed.
func TestPatroni(t *testing.T) {
	t.Parallel()
	p := newPatroni(t)
	store := storeAt("&target_session_attrs=read-write", p.addrs...)
	servers := []*server{start(t, store), start(t, store)}
	w := write(t, 6, servers...)
	w.more(100)
	was := p.leader()
	if out, err := p.command("patronictl", "-c", p.config(0), "switchover", "--master", fmt.Sprint("n", was), "--candidate", fmt.Sprint("n", 1-was), "--force").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.more(200)
	p.healthy()
	if is := p.leader(); is != 1-was {
		t.Errorf("the leader is n%d after a switchover from n%d", is, was)
	}
	w.more(100)
	p.kill(p.nodes[p.leader()])
	w.more(300)
	if w.longest > bound {
		t.Errorf("a call took %s", w.longest)
	}
	w.check(servers[0])
}
