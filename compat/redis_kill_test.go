package compat_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// redisServer is a Redis of the test's own that keeps all it has acknowledged, unless its arguments say otherwise.
type redisServer struct {
	t    *testing.T
	args []string
	addr string
	p    *process
}

// startRedis starts one. Where redis-server is not to be had, the test is skipped at a desk and fails in CI.
func startRedis(t *testing.T, args ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &redisServer{t: t, addr: l.Addr().String()}
	_ = l.Close()
	_, port, _ := net.SplitHostPort(r.addr)
	r.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "yes", "--appendfsync", "always"}, args...)
	r.up()
	return r
}

// setting names the server as a store.
func (r *redisServer) setting() string { return "HEARDLOG_STORE=redis://" + r.addr }

// up starts the server and waits until it has read what it wrote before.
func (r *redisServer) up() {
	r.t.Helper()
	r.p = run(r.t, "redis-server", r.args)
	eventually(r.t, "redis-server answers", func() bool { return r.do("PING") == "+PONG" })
}

// do gives the first line of the answer to a command; "" where there is none.
func (r *redisServer) do(command string) string {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(r.t.Context(), "tcp", r.addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	answer := make([]byte, 256)
	_, _ = conn.Write([]byte(command + "\r\n"))
	n, _ := conn.Read(answer)
	line, _, _ := strings.Cut(string(answer[:n]), "\r\n")
	return line
}

// TestKillRedis is TestKill on a Redis store, which has no webhooks.
func TestKillRedis(t *testing.T) {
	t.Parallel()
	killed(t, nil, 8, startRedis(t).setting(), "HEARDLOG_SECRET_KEY=a key that is long enough")
}

// TestRedisKilled kills a Redis that writes each command to its disk, and by turns one of the two servers on it, while both are written through: nothing that was acknowledged is lost or
// there twice, no number is given twice, and everything goes on by itself.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	const agents, writers, kills, each = 3, 6, 8, 80
	redis := startRedis(t)
	var servers [2]atomic.Pointer[server]
	for i := range servers {
		servers[i].Store(start(t, redis.setting()))
	}
	var ids []string
	for n := range agents {
		ids = append(ids, servers[n%2].Load().join(t, fmt.Sprint("agent ", n), nil))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acked := make([][]string, writers)
	var total, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s, text := servers[(w+n)%2].Load(), fmt.Sprintf("%d/%d", w, n)
				status, body, err := s.try(context.WithoutCancel(ctx), "POST", "/v1/agents/"+ids[w%agents]+"/messages", object{"messages": []object{{"id": text, "role": "user", "content": text}}})
				switch {
				case err != nil: // the server was killed
				case status == 200:
					acked[w] = append(acked[w], text)
					total.Add(1)
				case status == 503: // Redis was
					refused.Add(1)
				default:
					t.Errorf("append: %d %s", status, body)
					return
				}
			}
		})
	}
	more := func() {
		want := total.Load() + each
		eventually(t, "writes go on", func() bool { return total.Load() >= want || t.Failed() })
	}
	for k := range kills {
		more()
		if k%2 == 0 {
			redis.p.kill()
			before := refused.Load()
			eventually(t, "writes are refused while Redis is away", func() bool { return refused.Load() > before || t.Failed() })
			redis.up()
			continue
		}
		at := &servers[k/2%2]
		at.Load().kill()
		at.Store(start(t, redis.setting()))
	}
	more()
	stop()
	wg.Wait()
	t.Logf("%d appends were acknowledged, %d refused", total.Load(), refused.Load())
	for n, id := range ids {
		seen := map[string]int{}
		list := servers[n%2].Load().ledger(t, id)
		for i, m := range list {
			seen[m.Content]++
			if m.Seq != int64(i+1) {
				t.Fatalf("agent %d: message %d has seq %d", n, i, m.Seq)
			}
			if i > 0 && m.TurnID < list[i-1].TurnID {
				t.Errorf("agent %d: turn %d behind %d", n, m.TurnID, list[i-1].TurnID)
			}
		}
		checkOrder(t, id, list)
		for w := n; w < writers; w += agents {
			for _, text := range acked[w] {
				if seen[text] != 1 {
					t.Errorf("%q was acknowledged and is there %d times", text, seen[text])
				}
			}
		}
		for text, times := range seen {
			if times > 1 {
				t.Errorf("%q is there %d times", text, times)
			}
		}
		servers[(n+1)%2].Load().call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	}
}
