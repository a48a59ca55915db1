package compat_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soakers are how many clients a soak has of each kind, and how many requests of each pass they get
// acknowledged.
type soakers struct {
	lanes, talks, calls int
	acks                int64
}

// TestSoak lets clients work, kills the server, slows the receiver down and takes the store away,
// again and again. Nothing acknowledged is lost, every event arrives, and a server that was not
// killed needs no more goroutines, files and memory than it did at first.
//
// It lasts some seconds. make soak has many clients and lasts as long as SOAK says.
func TestSoak(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) (setting string, away *forwarder){
		"sqlite": func(t *testing.T) (string, *forwarder) {
			return "HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), nil
		},
		"postgres": behindForwarder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setting, away := store(t)
			length, n := time.Duration(0), soakers{2, 2, 2, 150} // one cycle
			if v := os.Getenv("SOAK"); v != "" {
				var err error
				if length, err = time.ParseDuration(v); err != nil {
					t.Fatal("SOAK: ", err)
				}
				n = soakers{20, 60, 120, 5000}
			}
			soak(t, setting, away, n, length)
		})
	}
}

// behindForwarder returns a store in PostgreSQL, and what takes it away.
func behindForwarder(t *testing.T) (string, *forwarder) {
	setting := database(t)
	u, err := url.Parse(strings.TrimPrefix(setting, "HEARDLOG_STORE="))
	if err != nil {
		t.Fatal(err)
	}
	f := newForwarder(t, u.Host)
	u.Host = f.addr()
	return "HEARDLOG_STORE=" + u.String(), f
}

func soak(t *testing.T, store string, away *forwarder, n soakers, length time.Duration) {
	hooks := newHooks(t, nil)
	var tries atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1)%20 == 0 { // a slow attempt
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
		}
		hooks.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	env := []string{
		store, "HEARDLOG_LLM_URL=" + fakeLLM(t, "-delay-chunk", "3ms") + "/v1", "HEARDLOG_WEBHOOK_URL=" + slow.URL, "HEARDLOG_WEBHOOK_SECRET=" + hookSecret,
		"HEARDLOG_MAX_MESSAGES=0",
	}
	s := start(t, env...)
	var slowest []time.Duration // p99 of each pass
	end := time.Now().Add(length)
	for cycle := 1; cycle == 1 || time.Now().Before(end) && !t.Failed(); cycle++ {
		c := &crash{t: t, hooks: hooks, s: s}
		for i := range n.lanes {
			c.lanes = append(c.lanes, &lane{agent: s.join(t, fmt.Sprintf("lane-%d-%d", cycle, i), nil), name: "a-"})
		}
		for i := range n.talks {
			c.streams = append(c.streams, &talk{agent: s.join(t, fmt.Sprintf("talk-%d-%d", cycle, i), nil), whole: map[string]string{}})
		}
		for c.round = 1; c.round <= 2; c.round++ {
			c.run(n.acks / 3)
			c.s = start(t, env...)
			c.check(false)
		}
		if away != nil {
			c.without(away)
			c.check(false)
		}
		var first, now use
		for pass := range 4 {
			took := c.work(n)
			if t.Failed() || len(took) == 0 {
				t.Fatal("the clients did not work")
			}
			now = c.idle(pass, &first)
			t.Logf("cycle %d, pass %d: %s, p50 of a request %s, p99 %s, at most %s", cycle, pass, now, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
			if pass == 0 {
				first = now
			} else {
				slowest = append(slowest, took[len(took)*99/100])
			}
		}
		c.check(true)
		began := time.Now()
		c.settle()
		t.Logf("cycle %d: %d events have arrived, the last ones after another %s", cycle, hooks.count(), time.Since(began).Round(time.Second))
		for _, l := range c.lanes {
			c.s.call(t, 200, "POST", "/v1/agents/"+l.agent+"/leave", nil, nil)
		}
		for _, k := range c.streams {
			c.s.call(t, 200, "POST", "/v1/agents/"+k.agent+"/leave", nil, nil)
		}
		if wrong := hooks.wrong(); len(wrong) > 0 {
			t.Errorf("the receiver complains: %s", strings.Join(wrong, "\n"))
		}
		hooks.forget()
		s = c.s
	}
	// Only a long time tells: a machine is slow for a moment now and then.
	if k := len(slowest) / 4; k > 3 {
		early, late := median(slowest[:k]), median(slowest[len(slowest)-k:])
		if t.Logf("p99 of a request: %s at first, %s in the end", early, late); late > 2*early {
			t.Error("requests have become slower")
		}
	}
}

func median(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

// work lets all clients work until the server has acknowledged enough, and returns how long its
// answers took, in order. No request is broken off.
func (c *crash) work(n soakers) []time.Duration {
	c.enemy = make(chan struct{})
	c.acks.Store(0)
	c.took = []time.Duration{}
	ctx, stop := context.WithTimeout(c.t.Context(), patience)
	defer stop()
	c.rest = make(chan struct{})
	clients := c.all(ctx, n.calls)
	c.until(ctx, n.acks)
	close(c.rest)
	clients.Wait()
	c.rest = nil
	slices.Sort(c.took)
	return c.took
}

// without takes the store away from the server while clients work, and gives it back. Nothing is
// acknowledged meanwhile, and the server is ready again by itself.
func (c *crash) without(store *forwarder) {
	store.refuse.Store(true)
	store.cut()
	c.enemy = make(chan struct{})
	close(c.enemy) // errors are no failures
	c.isAway.Store(true)
	ctx, stop := context.WithTimeout(c.t.Context(), patience)
	c.all(ctx, 2).Wait()
	stop()
	store.refuse.Store(false)
	eventually(c.t, "the server is ready again", func() bool {
		status, _, err := c.s.try(c.t.Context(), "GET", "/readyz", nil)
		return err == nil && status == 200
	})
	c.isAway.Store(false)
}

// use is what a server uses.
type use struct{ goroutines, files, mb int }

// String returns it for a log.
func (u use) String() string {
	return fmt.Sprintf("%d goroutines, %d open files, %d MB", u.goroutines, u.files, u.mb)
}

var gauges = regexp.MustCompile(`(?m)^(go_goroutines|process_open_fds) (\d+)$`)

// idle waits until the server uses little more than it did first, in a pass after the first, and
// returns what it uses.
func (c *crash) idle(pass int, first *use) (now use) {
	c.t.Helper()
	read := func() {
		now = use{mb: c.s.memory(c.t, "VmRSS")}
		status, body, err := c.s.try(c.t.Context(), "GET", "/metrics", nil)
		if err != nil || status != 200 {
			c.t.Fatal(status, err)
		}
		for _, m := range gauges.FindAllStringSubmatch(string(body), -1) {
			v, err := strconv.Atoi(m[2])
			if err != nil {
				c.t.Fatal(err)
			}
			if m[1] == "go_goroutines" {
				now.goroutines = v
			} else {
				now.files = v
			}
		}
	}
	if pass == 0 {
		read()
		return now
	}
	eventually(c.t, fmt.Sprintf("in pass %d the server uses little more than at first (%s)", pass, first), func() bool {
		read()
		return now.goroutines <= first.goroutines+40 && now.files <= first.files+40 && now.mb <= 2*first.mb+100
	})
	return now
}

// forget empties what came, so that a long test does not keep all of it.
func (h *hooks) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.bodies)
	clear(h.got)
}

// all starts the clients of a crash, and so many that come and go.
func (c *crash) all(ctx context.Context, calls int) *sync.WaitGroup {
	var clients sync.WaitGroup
	for _, l := range c.lanes {
		clients.Go(func() { c.appends(ctx, l) })
	}
	for _, k := range c.streams {
		clients.Go(func() { c.talks(ctx, k) })
	}
	for range calls {
		clients.Go(func() { c.comesAndGoes(ctx) })
	}
	return &clients
}

// until waits until the server has acknowledged so many requests.
func (c *crash) until(ctx context.Context, acks int64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.acks.Load() < acks && ctx.Err() == nil {
		<-tick.C
	}
	if ctx.Err() != nil {
		c.t.Errorf("round %d: only %d acknowledgements in %s:\n%.3000s", c.round, c.acks.Load(), patience, c.s.stderr)
	}
}
