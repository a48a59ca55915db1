package compat_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// writing appends to agents through several servers of one database, as careful clients do: each
// message has an id and is sent again, to the next server, until it is acknowledged.
type writing struct {
	t       *testing.T
	servers []*server
	agents  []string
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu       sync.Mutex
	acked    map[string]bool
	statuses map[int]int // answers by status; 0: none
	longest  time.Duration
	news     chan struct{} // closed and replaced with each acknowledgement
}

// write starts writers, one for each agent.
func write(t *testing.T, agents int, servers ...*server) *writing {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writing{t: t, servers: servers, stop: stop, acked: map[string]bool{}, statuses: map[int]int{}, news: make(chan struct{})}
	for n := range agents {
		w.agents = append(w.agents, servers[n%len(servers)].join(t, fmt.Sprintf("%s %d", t.Name(), n), nil))
	}
	for n, id := range w.agents {
		w.work.Go(func() {
			at := n
			for i := 0; ctx.Err() == nil; i++ {
				text := fmt.Sprintf("%d/%d", n, i)
				for done := false; !done && ctx.Err() == nil; at++ {
					if done = w.append(servers[at%len(servers)], id, text); !done {
						select { // as Retry-After asks, and sooner
						case <-ctx.Done():
						case <-time.After(20 * time.Millisecond):
						}
					}
				}
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

// append makes one call and reports whether it was acknowledged.
func (w *writing) append(s *server, id, text string) bool {
	began := time.Now()
	status, body, err := s.try(context.WithoutCancel(w.t.Context()), "POST", "/v1/agents/"+id+"/messages", object{"messages": []object{{"id": text, "role": "user", "content": text}}})
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest = max(w.longest, took)
	if err != nil {
		status = 0
	}
	w.statuses[status]++
	switch status {
	case 200:
		w.acked[text] = true
		close(w.news)
		w.news = make(chan struct{})
	case 503:
	default:
		w.t.Errorf("append: %d %s %v", status, body, err)
	}
	return status == 200
}

// more waits for so many more acknowledgements and returns how long the first took.
func (w *writing) more(n int) (first time.Duration) {
	w.t.Helper()
	began, late := time.Now(), time.After(patience)
	for i := range n {
		w.mu.Lock()
		news := w.news
		w.mu.Unlock()
		select {
		case <-news:
		case <-late:
			w.t.Fatalf("no acknowledgement within %s; answers so far: %v", patience, w.statuses)
		}
		if i == 0 {
			first = time.Since(began)
		}
	}
	return first
}

func (w *writing) end() {
	w.stop()
	w.work.Wait()
}

// check ends the writing and reads through a server what is there: each acknowledged message once,
// no message twice.
func (w *writing) check(s *server) {
	w.t.Helper()
	w.end()
	seen := map[string]int{}
	for _, id := range w.agents {
		for _, m := range s.ledger(w.t, id) {
			seen[m.Content]++
		}
	}
	lost, doubled := 0, 0
	for text := range w.acked {
		if seen[text] == 0 {
			lost++
		}
	}
	for _, times := range seen {
		if times > 1 {
			doubled++
		}
	}
	w.t.Logf("%d acknowledged, %d lost, %d doubled, longest call %s, answers %v", len(w.acked), lost, doubled, w.longest.Round(time.Millisecond), w.statuses)
	if lost+doubled > 0 {
		w.t.Errorf("lost %d, doubled %d", lost, doubled)
	}
}

// bound is how long a call may take on a database that is away, and soon how long the first
// acknowledgement may be away after the next primary takes writes. Both have room for a busy
// machine.
const bound, soon = 10*time.Second + 3*time.Second, 5*time.Second + 3*time.Second

// TestFailover takes the primary away in several ways while two servers write. The standby, which
// commits wait for, takes over: what was acknowledged is there, once, and calls end in time.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(failovers)) {
		t.Run(name, func(t *testing.T) {
			primary, second := newPair(t)
			front := newForwarder(t, primary.addr())
			store := storeAt("&target_session_attrs=read-write", front.addr(), second.addr())
			servers := []*server{start(t, store), start(t, store)}
			w := write(t, 6, servers...)
			w.more(100)
			slowest := slowestReady(t, servers)
			failovers[name](primary, second, front)
			first := w.more(1)
			t.Logf("first acknowledgement after %s", first.Round(time.Millisecond))
			if first > soon {
				t.Errorf("the first acknowledgement came after %s", first)
			}
			w.more(100)
			primary.thaw() // an old primary that wakes up gets no writes
			front.hole.Store(false)
			w.more(200)
			if took := slowest(); took > 3*time.Second { // it is bounded by one, and the machine may be busy
				t.Errorf("/readyz took %s", took)
			}
			if w.longest > bound {
				t.Errorf("a call took %s", w.longest)
			}
			w.check(start(t, storeAt("", second.addr())))
		})
	}
}

// slowestReady asks servers whether they are ready until the function that it returns is called,
// which returns the longest time that one took.
func slowestReady(t *testing.T, servers []*server) func() time.Duration {
	ctx, stop := context.WithCancel(t.Context())
	longest := make([]time.Duration, len(servers))
	var work sync.WaitGroup
	for i, s := range servers {
		work.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if _, _, err := s.try(context.WithoutCancel(ctx), "GET", "/readyz", nil); err != nil {
					t.Errorf("readyz: %v", err)
					return
				}
				longest[i] = max(longest[i], time.Since(began))
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	return func() time.Duration {
		stop()
		work.Wait()
		return slices.Max(longest)
	}
}

var failovers = map[string]func(primary, second *pgServer, front *forwarder){
	"kill": func(primary, second *pgServer, _ *forwarder) {
		primary.down(true)
		second.promote()
	},
	"switchover": func(primary, second *pgServer, _ *forwarder) {
		primary.down(false)
		second.promote()
	},
	"freeze": func(primary, second *pgServer, _ *forwarder) {
		primary.freeze()
		<-time.After(4 * time.Second) // as long as a failover manager takes to be sure
		second.promote()
	},
	"hole": func(_, second *pgServer, front *forwarder) {
		front.hole.Store(true)
		second.promote()
	},
	"refused": func(_, second *pgServer, front *forwarder) {
		front.refuse.Store(true)
		front.cut()
		second.promote()
	},
}

// TestAddressMoves moves the address of the primary to the standby that was promoted, with the open
// connections cut and with them left silent.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"cut": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			primary, second := newPair(t)
			front := newForwarder(t, primary.addr())
			store := storeAt("", front.addr())
			servers := []*server{start(t, store), start(t, store)}
			w := write(t, 6, servers...)
			w.more(100)
			primary.freeze()
			second.promote()
			front.lead(second.addr())
			if cut {
				front.cut()
			}
			first := w.more(1)
			t.Logf("first acknowledgement after %s", first.Round(time.Millisecond))
			w.more(200)
			if w.longest > bound || first > bound || cut && first > soon {
				t.Errorf("the first acknowledgement came after %s, and a call took %s", first, w.longest)
			}
			w.check(servers[0])
		})
	}
}

// TestFrozen freezes the only database for longer than a call may wait. Calls end in time, and go
// on once the database does.
func TestFrozen(t *testing.T) {
	t.Parallel()
	db := newPostgres(t)
	servers := []*server{start(t, storeAt("", db.addr())), start(t, storeAt("", db.addr()))}
	w := write(t, 6, servers...)
	w.more(50)
	slowest := slowestReady(t, servers)
	db.freeze()
	<-time.After(14 * time.Second)
	db.thaw()
	first := w.more(1)
	w.more(100)
	if took := slowest(); took > 3*time.Second {
		t.Errorf("/readyz took %s", took)
	}
	if w.longest > bound || first > soon {
		t.Errorf("a call took %s; the first acknowledgement came after %s", w.longest, first)
	}
	for _, s := range servers {
		if n := loud(t, s); n > 12 {
			t.Errorf("%d errors are logged:\n%s", n, s.stderr)
		}
	}
	w.check(servers[0])
}

// TestFailoverTools runs the subcommands that read a database with the store of a server that may
// fail over.
func TestFailoverTools(t *testing.T) {
	t.Parallel()
	primary, second := newPair(t)
	for n, hosts := range [][]string{{primary.addr(), second.addr()}, {second.addr(), primary.addr()}} {
		store := storeAt("&target_session_attrs=read-write", hosts...)
		s := start(t, store)
		s.join(t, fmt.Sprint("agent ", n), nil)
		for _, args := range [][]string{{"doctor"}, {"verify"}, {"export", "-"}, {"backup", t.TempDir() + "/kept"}} {
			p := run(t, program(t, "api"), args, store)
			if out, text, code := p.ended(t); code != 0 {
				t.Errorf("%v ended with %d: %.500s %.1000s", args, code, out, text)
			}
		}
	}
	second.down(true)
	p := run(t, program(t, "api"), []string{"doctor"}, storeAt("", primary.addr()))
	if out, text, code := p.ended(t); code == 0 || !strings.Contains(out+text, "synchronous_standby_names") {
		t.Errorf("without its standby: doctor ended with %d: %s %s", code, out, text)
	}
}
