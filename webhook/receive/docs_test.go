package receive_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// snippet gives the n-th fenced block of a kind in docs/guides/receiving.md.
func snippet(t *testing.T, kind string, n int) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guides/receiving.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "\n```"+kind+"\n")
	if n+1 < len(parts) {
		if text, _, ok := strings.Cut(parts[n+1], "\n```"); ok {
			return text + "\n"
		}
	}
	t.Fatalf("docs/guides/receiving.md has no such block of %s", kind)
	return ""
}

// TestSnippets runs the receivers of docs/guides/receiving.md against the real sender. A runtime
// that is not on this machine is passed over. The one that needs a package of npm is run in compat,
// where the package is.
func TestSnippets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, kind, file string
		nth              int
		command          func(t *testing.T, file string) []string
	}{
		{"Go", "go", "main.go", 0, func(t *testing.T, file string) []string {
			t.Helper()
			program := file + ".exe"
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, file)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return []string{program}
		}},
		{"Node", "js", "receiver.mjs", 0, func(_ *testing.T, file string) []string { return []string{"node", file} }},
		{"Python", "python", "receiver.py", 0, func(_ *testing.T, file string) []string { return []string{"python3", file} }},
	} {
		for _, secret := range []string{whsec, plain} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), tt.file)
				if err := os.WriteFile(file, []byte(snippet(t, tt.kind, tt.nth)), 0o600); err != nil {
					t.Fatal(err)
				}
				args := tt.command(t, file)
				path, err := exec.LookPath(args[0])
				if err != nil {
					t.Skipf("%s is not on this machine: install it", args[0])
				}
				try(t, secret, append([]string{path}, args[1:]...))
			})
		}
	}
}

// output is what a program printed.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var ports atomic.Int64 // how many freePort has tried

// freePort returns a port that nothing uses. It is below those that the system hands out by itself,
// and another one than those of test processes beside this one, so that it stays free.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := fmt.Sprint(10_000 + (16*int64(os.Getpid())+ports.Add(1))%20_000)
		if ln, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// run starts a receiver and gives its URL once it listens.
func run(t *testing.T, secret string, args []string) (url string, out *output) {
	t.Helper()
	port := freePort(t)
	addr := "127.0.0.1:" + port
	out = new(output)
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "PORT="+port)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	for start := time.Now(); ; {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return "http://" + addr + "/hook", out
		}
		select {
		case <-ended:
			t.Fatalf("the receiver ended:\n%s", out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("the receiver never listened:\n%s", out)
		}
	}
}

// try sends a receiver what is right and what is wrong.
func try(t *testing.T, secret string, args []string) {
	t.Helper()
	url, out := run(t, secret, args)
	joined := encode(t, "n:1", webhook.Joined{About: webhook.About{AgentID: "a1", Name: "Jürgen \u2028 😀"}})
	long := encode(t, "n:2", webhook.History{About: webhook.About{AgentID: "a1"}, Contents: []json.RawMessage{
		json.RawMessage(`{"role":"user","content":"` + strings.Repeat("é<x>", 500_000) + `"}`),
	}})
	for _, tt := range []struct {
		name, id string
		body     []byte
		secrets  []string
		status   int
	}{
		{"right", "n:1", joined, []string{secret}, 200},
		{"again", "n:1", joined, []string{secret}, 200},
		{"2 MB, signed with two secrets", "n:2", long, []string{"old one", secret}, 200},
		{"another secret", "n:3", joined, []string{"old one"}, 401},
		{"unsigned", "n:3", joined, nil, 401},
	} {
		if o := send(t, url, tt.id, tt.body, tt.secrets...); o.Status != tt.status {
			t.Errorf("%s: %d %s %v", tt.name, o.Status, o.Response, o.Error)
		}
	}
	for _, at := range []string{fmt.Sprint(time.Now().Add(-time.Hour).Unix()), fmt.Sprint(time.Now().UnixMilli()), "soon", ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(joined))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("webhook-id", "n:4")
		req.Header.Set("webhook-timestamp", at)
		req.Header.Set("webhook-signature", signature(t, secret, "n:4", at, joined))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("timestamp %q: %d", at, res.StatusCode)
		}
	}
	if got := out.String(); strings.Count(got, "n:1 101 a1") != 1 || !strings.Contains(got, "n:2 103 a1") || strings.Contains(got, "n:3") {
		t.Errorf("it printed\n%s", got)
	}
}
