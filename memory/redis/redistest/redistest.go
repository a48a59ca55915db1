// Package redistest gives tests a Redis server: a prefix of their own on one that runs, or a server or cluster of their own that they may stop.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// patience is how long a server may take for what it is told.
const patience = time.Minute

// base gives the URL of the server that tests share: TEST_REDIS_URL, or one that answers on this machine. Without any, the test is skipped at a desk and fails in CI.
func base(t testing.TB) string {
	t.Helper()
	given := os.Getenv("TEST_REDIS_URL")
	if given == "" {
		given = "redis://127.0.0.1:6379/0"
	}
	c, err := client(given)
	if err != nil {
		missing(t, "no Redis server answers; set TEST_REDIS_URL, such as redis://127.0.0.1:6379/0: "+err.Error())
	}
	c.Close()
	return given
}

func client(url string) (rueidis.Client, error) {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.DisableCache = true
	return rueidis.NewClient(o)
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

var prefixes atomic.Int64

// URL gives the URL of a prefix of the test's own on the shared server, of which nothing is left when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	return Prefix(t, base(t))
}

// Prefix adds a prefix of the test's own to the URL of a server, of which nothing is left when the test ends.
func Prefix(t testing.TB, url string) string {
	t.Helper()
	prefix := fmt.Sprintf("t%d-%d-%d", os.Getpid(), time.Now().UnixNano(), prefixes.Add(1))
	t.Cleanup(func() { erase(t, url, prefix) })
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	return url + sep + "prefix=" + prefix
}

// Keys gives the keys that begin so, on every node.
func Keys(t testing.TB, url, begin string) []string {
	t.Helper()
	c, err := client(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, err := keys(c, begin)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func keys(c rueidis.Client, begin string) (out []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, node := range c.Nodes() {
		for at := uint64(0); ; {
			page, err := node.Do(ctx, node.B().Scan().Cursor(at).Match(begin+"*").Count(1000).Build()).AsScanEntry()
			if err != nil {
				return nil, err
			}
			out = append(out, page.Elements...)
			if at = page.Cursor; at == 0 {
				break
			}
		}
	}
	return out, nil
}

func erase(t testing.TB, url, prefix string) {
	c, err := client(url)
	if err != nil {
		return // a server of the test's own, which is gone
	}
	defer c.Close()
	list, err := keys(c, prefix+":")
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, key := range list {
		if err := c.Do(ctx, c.B().Unlink().Key(key).Build()).Error(); err != nil {
			t.Error(err)
			return
		}
	}
}

// Do runs a command on a connection of its own, such as "CONFIG", "SET", …, and gives the answer as text.
func Do(t testing.TB, url string, words ...string) string {
	t.Helper()
	c, err := client(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer := c.Do(ctx, c.B().Arbitrary(words...).Build())
	if err := answer.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", words, err)
	}
	if value, err := answer.ToAny(); err == nil {
		return fmt.Sprint(value)
	}
	return ""
}

// Server is a Redis server of the test's own, which ends with it.
type Server struct {
	t    testing.TB
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
}

// Start makes a server of the test's own, with arguments such as "--appendonly", "yes", and starts it. Where redis-server is not to be had, the test is skipped at a desk and
// fails in CI.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		missing(t, "the test runs a Redis server of its own: "+err.Error())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port, args: args}
	_ = l.Close()
	t.Cleanup(func() { s.Down(true) })
	s.Up()
	return s
}

// Up starts the server and waits until it answers.
func (s *Server) Up() {
	s.t.Helper()
	out, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	s.cmd = exec.Command("redis-server", append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--daemonize", "no"}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			answer := make([]byte, 64)
			_, _ = conn.Write([]byte("PING\r\n"))
			n, _ := conn.Read(answer)
			_ = conn.Close()
			if text := string(answer[:n]); strings.HasPrefix(text, "+PONG") || strings.HasPrefix(text, "-NOAUTH") {
				return
			}
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(out.Name())
			s.t.Fatalf("redis-server does not answer: %v\n%s", err, text)
		}
		time.Sleep(5 * time.Millisecond) // between two tries, not in place of one
	}
}

// Down stops the server: at once, as a crash does, or after it has written what it has.
func (s *Server) Down(crash bool) {
	if s.cmd == nil {
		return
	}
	if crash {
		_ = s.cmd.Process.Kill()
	} else {
		_ = s.cmd.Process.Signal(os.Interrupt)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Addr gives the address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL gives the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Cluster starts three servers, makes them a cluster and gives its URL.
func Cluster(t testing.TB) string {
	t.Helper()
	const nodes, slots = 3, 16384
	var list []*Server
	for range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the port that the nodes talk on; by default 10000 above the other, which may be none
		if err != nil {
			t.Fatal(err)
		}
		bus := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		list = append(list, Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", strconv.Itoa(bus), "--cluster-require-full-coverage", "yes"))
		list[len(list)-1].args = append(list[len(list)-1].args, strconv.Itoa(bus))
	}
	do := func(s *Server, words ...string) string {
		t.Helper()
		return plain(t, s.Addr(), words...)
	}
	for i, s := range list {
		do(s, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/nodes), strconv.Itoa((i+1)*slots/nodes-1))
		do(s, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range list[1:] {
		do(list[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.port), s.args[len(s.args)-1])
	}
	deadline := time.Now().Add(patience)
	for _, s := range list {
		for {
			info := do(s, "CLUSTER", "INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(nodes)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the cluster does not come up: %s", info)
			}
			time.Sleep(10 * time.Millisecond) // between two looks
		}
	}
	return list[0].URL()
}

// Node gives the node of a cluster that a key lies on.
func Node(t testing.TB, url, key string) string {
	t.Helper()
	c, err := client(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for addr, node := range c.Nodes() {
		err := node.Do(ctx, node.B().Exists().Key(key).Build()).Error()
		if err == nil {
			return addr
		}
		if reply, ok := rueidis.IsRedisErr(err); !ok || !strings.HasPrefix(reply.Error(), "MOVED") {
			t.Fatal(err)
		}
	}
	t.Fatalf("no node has %s", key)
	return ""
}

// plain runs a command on one node, whatever the cluster thinks of it.
func plain(t testing.TB, addr string, words ...string) string {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := c.Do(ctx, c.B().Arbitrary(words...).Build()).ToString()
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return text
}
