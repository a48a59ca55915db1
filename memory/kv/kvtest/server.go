package kvtest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// Server is a server of a test's own.
type Server struct {
	Addr string
	name string
	args []string
	cmd  *exec.Cmd
	// ended is closed when cmd has ended.
	ended chan struct{}
}

// StartRedis starts a Redis server that keeps its data on disk before it answers. It takes more
// arguments of the program.
func StartRedis(t *testing.T, more ...string) *Server {
	return startServer(t, "redis-server", func(host, port string) []string {
		return append([]string{"--port", port, "--bind", host, "--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always", "--save", ""}, more...)
	})
}

// StartMemcached starts a memcached server.
func StartMemcached(t *testing.T) *Server {
	return startServer(t, "memcached", func(host, port string) []string {
		return []string{"-p", port, "-l", host, "-U", "0", "-u", "nobody"}
	})
}

// startServer starts a program on a free port. One that is not installed is a skip, and a failure
// in CI.
func startServer(t *testing.T, name string, args func(host, port string) []string) *Server {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // another address, where no other test takes the port meanwhile
		host = net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(250)), byte(1+rand.IntN(250))).String()
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), name: name, args: args(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))}
	l.Close()
	t.Cleanup(func() { s.Kill() })
	s.Start(t)
	return s
}

// Start starts the server, again after Kill, and waits until it answers. A connection alone would
// not show it: a program that another test is about to start can hold the socket that found the
// port for a moment, which accepts connections and refuses the server its port.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	err := errors.New("not started")
	for end := time.Now().Add(20 * time.Second); err != nil; {
		if time.Now().After(end) {
			t.Fatalf("%s does not answer: %v", s.name, err)
		}
		if !s.running() {
			s.Kill()
			s.cmd, s.ended = exec.Command(s.name, s.args...), make(chan struct{})
			if err := s.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { _ = s.cmd.Wait(); close(s.ended) }()
		}
		if err = ping(s.Addr); err != nil {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// ping returns no error when a server answers to a line: with PONG, or with an error of its own.
func ping(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// running reports whether the server was started and has not ended.
func (s *Server) running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}
