package summary_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/store/storetest"
)

// readings counts how many heads and memories are read.
type readings struct {
	memory.Ledger
	heads, recent atomic.Int64
}

func (r *readings) Head(ctx context.Context, project, id string) (memory.Head, error) {
	r.heads.Add(1)
	return r.Ledger.Head(ctx, project, id)
}

func (r *readings) Recent(ctx context.Context, project, id string, n int, history bool) (memory.Head, []memory.Message, error) {
	r.recent.Add(1)
	return r.Ledger.Recent(ctx, project, id, n, history)
}

// TestWorkerUnwanted: agents whose policies want no summaries are not even loaded when the server
// starts, and their memories are not read later.
func TestWorkerUnwanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.New(t)
		w := begin(t, store, 0, nil)
		plain, cut := w.join("p", `{}`), w.join("p", `{"preset":"ovos"}`)
		w.say("p", plain, 0, 40)
		w.say("p", cut, 0, 40)
		w.stop()
		counted := &readings{Ledger: store}
		w = begin(t, counted, 0, nil)
		synctest.Wait()
		if n := counted.heads.Load(); n != 0 {
			t.Errorf("%d agents were loaded at the start", n)
		}
		w.say("p", plain, 40, 42)
		synctest.Wait()
		if n := counted.recent.Load(); n != 0 {
			t.Errorf("memories were read %d times", n)
		}
	})
}

// crowd is many live agents of one project for which nothing is due.
type crowd struct {
	agents  int
	worker  *summary.Worker
	mu      sync.Mutex
	looked  map[string]bool
	running int
	most    int
	gate    chan struct{} // where a look ends
}

// through lets all looks end, those under way together, until no more begin.
func (c *crowd) through() {
	for {
		time.Sleep(time.Second) // of the bubble's time: what waits for a moment has begun
		synctest.Wait()
		c.mu.Lock()
		n := c.running
		c.mu.Unlock()
		if n == 0 {
			return
		}
		for range n {
			<-c.gate
		}
	}
}

func (c *crowd) Leaving(_ context.Context, _, id string) (memctx.Leaving, error) {
	c.mu.Lock()
	c.running++
	c.most = max(c.most, c.running)
	c.looked[id] = true
	c.mu.Unlock()
	c.gate <- struct{}{} // others come meanwhile
	var n int
	_, _ = fmt.Sscan(id, &n)
	if n%3 == 0 { // the next two end, whether they wait for a place or have just been given one
		c.worker.Ended("p", fmt.Sprint(n+1))
		c.worker.Ended("p", fmt.Sprint(n+2))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	return memctx.Leaving{Chars: 1, Count: 1}, nil
}

func (c *crowd) Summarised(context.Context, memctx.Summarised) error { return nil }

// TestWorkerCrowd: all agents of a project are checked in the places that a project has, though
// others that wait for one end meanwhile.
func TestWorkerCrowd(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{agents: 300, looked: map[string]bool{}, gate: make(chan struct{})}
			jobs := job.New(job.Config{Store: storetest.New(t).Store, Now: time.Now})
			c.worker = summary.New(jobs, summary.Config{Memory: c, Places: places})
			for i := range c.agents {
				c.worker.Changed("p", fmt.Sprint(i))
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- jobs.Run(ctx) }()
			c.through()
			for i := 0; i < c.agents; i += 3 {
				if !c.looked[fmt.Sprint(i)] {
					t.Errorf("places %d: agent %d was not looked at", places, i)
				}
			}
			if share := max(1, places/2); c.most > share {
				t.Errorf("places %d: %d at a time", places, c.most)
			}
			clear(c.looked) // who waited is known as before
			c.worker.Changed("p", "0")
			c.worker.Changed("p", "299")
			c.through()
			if !c.looked["0"] || !c.looked["299"] {
				t.Errorf("places %d: what changed later was not looked at", places)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
