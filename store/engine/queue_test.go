package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/storetest"
)

// flood is an engine over a disk whose commits wait for the test, and the writes of two projects.
type flood struct {
	t    *testing.T
	e    *engine.Engine
	d    *disk
	gate chan error
	wg   sync.WaitGroup
	mu   sync.Mutex
	done []string // the texts that were stored, in their order
}

func newFlood(t *testing.T, o engine.Options) *flood {
	f := &flood{t: t, d: &disk{Store: storetest.New(t).Store}}
	f.e = engine.New(f.d, o)
	t.Cleanup(func() { _ = f.e.Close() })
	f.gate = f.d.hold()
	return f
}

// write starts an update of an agent, which is made first if need be, and waits until it is queued.
func (f *flood) write(project string, n int, text string) {
	f.t.Helper()
	a := agent(n)
	a.Project = project
	if _, err := f.e.Head(f.t.Context(), project, a.ID); err != nil {
		if _, _, err := f.e.Create(f.t.Context(), a, 0, memory.Change{}); err != nil {
			f.t.Fatal(err)
		}
	}
	f.wg.Go(func() {
		if err := f.e.Update(f.t.Context(), project, a.ID, says(text)); err != nil {
			f.t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.done = append(f.done, fmt.Sprintf("%s%d%.1s", project, n, text))
	})
	synctest.Wait()
}

// commit lets commits end, and returns what they stored.
func (f *flood) commit(n int) string {
	f.mu.Lock()
	f.done = nil
	f.mu.Unlock()
	for range n {
		f.gate <- nil
		synctest.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.done, " ")
}

// TestLargeBehindSmall: a large write is stored although the small write before it was in a group
// that had no room for more.
func TestLargeBehindSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, engine.Options{MaxGroup: 2, MaxGroupBytes: 16 << 10})
		f.write("a", 9, "first") // the others queue up behind it
		f.write("a", 1, "s")
		f.write("a", 2, "s")
		f.write("a", 2, strings.Repeat("L", 20<<10))
		if got := f.commit(3); got != "a9f a1s a2s a2L" && got != "a9f a2s a1s a2L" {
			t.Errorf("stored %q", got)
		}
		f.wg.Wait()
	})
}

// TestQueueOfOthers: projects whose writes fill the queue do not keep out another one.
func TestQueueOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, engine.Options{QueueLen: 2})
		f.write("first", 0, "s")
		for _, project := range []string{"a", "b", "c", "d"} {
			f.write(project, 0, "s")
			f.write(project, 1, "s")
		}
		f.write("e", 0, "s")
		for len(f.commitAll()) > 0 {
		}
		f.wg.Wait() // every write was stored
	})
}

// TestLargeWrites: a small write waits for one large write at most, however many are sent and by
// whom, and large writes still get their turns.
func TestLargeWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlood(t, engine.Options{MaxGroupBytes: 16 << 10})
		large := strings.Repeat("L", 20<<10)
		for n := range 6 {
			f.write("a", n, large)
		}
		f.write("b", 0, "s")
		if got := f.commit(2); got != "a0L b0s" {
			t.Errorf("stored %q before and with the small write, want one large write", got)
		}
		var order []string
		for n := range 12 { // a small write waits at any time
			f.write("b", n%2, "s")
			order = append(order, f.commit(1))
		}
		if got := strings.Count(strings.Join(order, " "), "L"); got < 2 {
			t.Errorf("%d large writes got a turn beside small ones: %q", got, order)
		}
		for len(f.commitAll()) > 0 {
		}
		f.wg.Wait()
	})
}

// commitAll lets a commit end if one is under way or begins soon.
func (f *flood) commitAll() string {
	select {
	case f.gate <- nil:
		synctest.Wait()
		return "one"
	case <-time.After(time.Second):
		return ""
	}
}

// TestProjectsTakeTurns: a project with a long queue does not delay another, and the writes of an
// agent keep their order, small ones behind a large one too.
func TestProjectsTakeTurns(t *testing.T) {
	for name, committers := range map[string]int{"one": 1, "several": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFlood(t, engine.Options{MaxGroup: 64, Committers: committers})
				for n := range 400 {
					f.write("a", n%200, "s")
				}
				f.write("b", 0, "s")
				if got := f.commit(committers + 1); !strings.Contains(got, "b0s") {
					t.Errorf("%q was stored before the other project's only write", got)
				}
				large := strings.Repeat("L", 100<<10)
				for _, text := range []string{"1", "2", large, "3", large, "4"} {
					f.write("b", 1, text)
				}
				for len(f.commitAll()) > 0 {
				}
				f.wg.Wait()
				_, list, err := f.e.Recent(t.Context(), "b", agent(1).ID, 10, false)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, m := range list {
					got += m.Content[:1]
				}
				if got != "12L3L4" {
					t.Errorf("an agent's writes were stored as %s", got)
				}
				if committers == 1 {
					for _, n := range f.d.sizes {
						if n > 64 {
							t.Errorf("a commit of %d writes", n)
						}
					}
				}
			})
		})
	}
}
