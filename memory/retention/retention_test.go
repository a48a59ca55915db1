package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/store/sqlite"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/retention"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestKeeper: a call is erased its days after its end, and not before; one that runs is left alone;
// of one that is gone already what is left is forgotten. Another server goes on with the notes.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, calls := storetest.New(t).Store, map[string]memory.Agent{}
		var forgotten []string
		newKeeper := func() *retention.Keeper {
			return &retention.Keeper{
				Records: store, Server: 20 * 24 * time.Hour, Now: time.Now,
				Agent: func(_ context.Context, project, id string) (memory.Agent, error) {
					a, ok := calls[id]
					if !ok {
						return a, fault.New(fault.NotFound, "gone")
					}
					return a, nil
				},
				Erase:  func(_ context.Context, _, id string) error { delete(calls, id); return nil },
				Forget: func(_ context.Context, _, id string) error { forgotten = append(forgotten, id); return nil },
			}
		}
		k := newKeeper()
		add := func(id string, days int, note func(context.Context, *memory.Agent) error) {
			a := memory.Agent{ID: id, Project: "p", StartMS: time.Now().UnixMilli(), Status: memory.Running}
			a.Settings.Memory.Kept.Days = days
			calls[id] = a
			if err := note(t.Context(), &a); err != nil {
				t.Error(err)
			}
		}
		stop := func(id string) {
			a := calls[id]
			a.Status, a.StopMS = memory.Stopped, time.Now().UnixMilli()
			calls[id] = a
		}
		left := func(want string) {
			t.Helper()
			stop := run(k, t.Output())
			time.Sleep(time.Second) // fake time
			stop()
			if got := strings.Join(slices.Sorted(maps.Keys(calls)), " "); got != want {
				t.Errorf("left %q, want %q", got, want)
			}
		}
		add("ten", 10, k.Joined)
		add("gone", 10, k.Joined)
		add("long", 10, k.Joined)
		add("server", 0, k.Note)
		add("unnoted", 0, k.Joined)
		time.Sleep(24 * time.Hour) // fake time
		stop("ten")
		stop("server")
		stop("unnoted")
		delete(calls, "gone")
		time.Sleep(9*24*time.Hour + time.Hour) // fake time
		left("long server ten unnoted")
		if len(forgotten) != 1 || forgotten[0] != "gone" {
			t.Errorf("forgotten %v", forgotten)
		}
		k = newKeeper()
		time.Sleep(24 * time.Hour) // fake time
		left("long server unnoted")
		stop("long")
		time.Sleep(9 * 24 * time.Hour) // fake time
		left("long server unnoted")
		time.Sleep(2 * 24 * time.Hour) // fake time
		left("unnoted")
	})
}

// run runs a keeper's jobs, which log to a writer, until the returned function is called.
func run(k *retention.Keeper, to io.Writer) (stop func()) {
	r := job.New(job.Config{Store: k.Records, Now: time.Now, Log: zerolog.New(to)})
	k.Handle(r)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	return func() { synctest.Wait(); cancel(); <-done }
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was logged since it was last called.
func (l *log) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// world is a store with calls that have all ended, and what is logged of their erasure.
type world struct {
	t      *testing.T
	store  *sqlite.Store
	keeper *retention.Keeper
	log    log

	mu     sync.Mutex
	stuck  map[string]bool // cannot be erased
	erased []string        // since gone was last called
	is     map[string]bool // erased
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: storetest.New(t).Store, stuck: map[string]bool{}, is: map[string]bool{}}
	w.keeper = &retention.Keeper{
		Records: w.store, Now: time.Now,
		Agent: func(_ context.Context, project, id string) (memory.Agent, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.is[id] {
				return memory.Agent{}, fault.New(fault.NotFound, "gone")
			}
			return memory.Agent{ID: id, Project: project, Status: memory.Stopped, StopMS: 1}, nil
		},
		Erase: func(ctx context.Context, _, id string) error {
			if strings.HasPrefix(id, "hangs") {
				<-ctx.Done()
				return ctx.Err()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.stuck[id] {
				return errors.New("broken")
			}
			w.erased, w.is[id] = append(w.erased, id), true
			return nil
		},
		Forget: func(context.Context, string, string) error { return nil },
	}
	return w
}

// add notes a call that was due at once.
func (w *world) add(project, id string) {
	w.t.Helper()
	a := memory.Agent{ID: id, Project: project, StartMS: time.Now().Add(-48 * time.Hour).UnixMilli()}
	a.Settings.Memory.Kept.Days = 1
	if err := w.keeper.Joined(w.t.Context(), &a); err != nil {
		w.t.Fatal(err)
	}
}

// gone returns what was erased since it was last called, by name.
func (w *world) gone() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.erased)
	out := strings.Join(w.erased, " ")
	w.erased = nil
	return out
}

// TestGoesOn: calls that cannot be erased, and notes that cannot be read, delay no other call. They
// are tried again, less and less often, and each is reported.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stuck["a"], w.stuck["c"] = true, true
		at := record.Space{Project: "~", Name: "retention/p"}
		put := func(id, body string) {
			t.Helper()
			if _, err := w.store.ChangeRecords(t.Context(), at, []record.Change{{ID: id, Body: []byte(body), If: record.Any}}, record.Limit{}, nil, 1); err != nil {
				t.Fatal(err)
			}
		}
		put("!", "what is this")
		put("0000000000000001/p/damaged", "{{{")
		for _, id := range []string{"a", "b", "c", "d"} {
			w.add("p", id)
		}
		for i := range 250 { // more than are looked for at a time
			w.stuck[fmt.Sprintf("a-%03d", i)] = true
			w.add("p", fmt.Sprintf("a-%03d", i))
		}
		w.add("q", "e")
		stop := run(w.keeper, &w.log)
		defer stop()
		time.Sleep(time.Minute) // fake time
		synctest.Wait()
		if got := w.gone(); got != "b d damaged e" {
			t.Errorf("erased %q", got)
		}
		log := w.log.take()
		for _, want := range []string{`the record \"!\" is not a note of a call`, `/p/a","error":"broken"`, `/p/c","error":"broken"`} {
			if n := strings.Count(log, want); n != 1 {
				t.Errorf("%d lines with %s", n, want)
			}
		}
		if n := strings.Count(log, `"outcome":"erased"`); n != 4 {
			t.Errorf("%d lines of erased calls", n)
		}
		tries := func(within time.Duration) (n int) {
			w.log.take()
			time.Sleep(within) // fake time
			synctest.Wait()
			if got := w.gone(); got != "" {
				t.Errorf("erased %q", got)
			}
			return strings.Count(w.log.take(), `/p/a","error":"broken"`)
		}
		if first, later := tries(24*time.Hour), tries(9*24*time.Hour); first < 5 || first > 9 || later < 8 || later > 18 {
			t.Errorf("%d tries on the first day, %d on the nine after it", first, later)
		}
		w.mu.Lock()
		delete(w.stuck, "a")
		w.mu.Unlock()
		time.Sleep(25 * time.Hour) // fake time
		synctest.Wait()
		if got := w.gone(); got != "a" {
			t.Errorf("erased %q", got)
		}
	})
}

// TestFairBetweenProjects: the many due calls of one project, and calls whose erasure hangs, delay
// the calls of another by seconds or a minute.
func TestFairBetweenProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 1000 {
			w.add("busy", fmt.Sprintf("busy-%04d", i))
		}
		for i := range 20 {
			w.add("hanging", fmt.Sprintf("hangs-%d", i))
		}
		w.add("small", "small")
		began, took := time.Now(), time.Duration(-1)
		erase := w.keeper.Erase
		w.keeper.Erase = func(ctx context.Context, project, id string) error {
			if id == "small" {
				took = time.Since(began)
			}
			time.Sleep(100 * time.Millisecond) // fake time
			return erase(ctx, project, id)
		}
		defer run(w.keeper, &w.log)()
		time.Sleep(25 * time.Minute) // fake time
		synctest.Wait()
		if n := len(strings.Fields(w.gone())); n != 1001 || took < 0 || took > 2*time.Minute {
			t.Errorf("%d calls were erased, that of the small project after %v", n, took)
		}
		if n := strings.Count(w.log.take(), "deadline exceeded"); n < 20 {
			t.Errorf("%d lines about calls that hung", n)
		}
	})
}

// TestTwoServers: two servers that erase at the same time leave one note of a call that must wait.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.keeper.Agent = func(_ context.Context, project, id string) (memory.Agent, error) {
			time.Sleep(time.Second) // the other server reads the same meanwhile
			return memory.Agent{ID: id, Project: project, Status: memory.Running}, nil
		}
		w.add("p", "a")
		first := run(w.keeper, t.Output())
		time.Sleep(time.Second / 2)
		second := run(w.keeper, t.Output())
		time.Sleep(time.Minute) // fake time
		first()
		second()
		list, _, err := w.store.Records(t.Context(), record.Space{Project: "~", Name: "retention/p"}, record.Query{Limit: 10})
		if err != nil || len(list) != 1 {
			t.Errorf("%d notes, %v", len(list), err)
		}
	})
}
