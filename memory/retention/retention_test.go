package retention_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/record"
	"github.com/heardlog/heardlog/memory/retention"
)

// TestKeeper: a call is erased its days after its end, and not before; one that runs is left alone;
// of one that is gone already what is left is forgotten. Another server goes on with the notes.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, calls := inmem.New(), map[string]memory.Agent{}
		var forgotten []string
		newKeeper := func() *retention.Keeper {
			return &retention.Keeper{
				Records: store, Server: 20 * 24 * time.Hour, Now: time.Now, OnError: func(what string, err error) { t.Error(what, err) },
				Agent: func(_ context.Context, project, id string) (memory.Agent, error) {
					a, ok := calls[id]
					if !ok {
						return a, fault.New(fault.NotFound, "gone")
					}
					return a, nil
				},
				Erase:  func(_ context.Context, _, id string) error { delete(calls, id); return nil },
				Forget: func(_ context.Context, _, id string) error { forgotten = append(forgotten, id); return nil },
				Count:  func(int, int) {},
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
			if err := k.Look(t.Context()); err != nil {
				t.Error(err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(calls)), " "); got != want {
				t.Errorf("left %q, want %q", got, want)
			}
		}
		add("ten", 10, k.Joined)
		add("gone", 10, k.Joined)
		add("long", 10, k.Joined)
		add("server", 0, k.Note)
		add("unnoted", 0, k.Joined)
		time.Sleep(24 * time.Hour)
		stop("ten")
		stop("server")
		stop("unnoted")
		delete(calls, "gone")
		time.Sleep(9*24*time.Hour + time.Hour)
		left("long server ten unnoted")
		if len(forgotten) != 1 || forgotten[0] != "gone" {
			t.Errorf("forgotten %v", forgotten)
		}
		k = newKeeper()
		time.Sleep(24 * time.Hour)
		left("long server unnoted")
		stop("long")
		time.Sleep(9 * 24 * time.Hour)
		left("long server unnoted")
		time.Sleep(2 * 24 * time.Hour)
		left("unnoted")
	})
}

// world is a store with calls that have all ended.
type world struct {
	t       *testing.T
	store   *inmem.Store
	keeper  *retention.Keeper
	stuck   map[string]bool // cannot be erased
	erased  []string
	reports []string
	counts  []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: inmem.New(), stuck: map[string]bool{}}
	w.keeper = &retention.Keeper{
		Records: w.store, Now: time.Now,
		OnError: func(what string, err error) { w.reports = append(w.reports, what+": "+err.Error()) },
		Count:   func(erased, failed int) { w.counts = append(w.counts, fmt.Sprint(erased, " ", failed)) },
		Agent: func(_ context.Context, project, id string) (memory.Agent, error) {
			return memory.Agent{ID: id, Project: project, Status: memory.Stopped, StopMS: 1}, nil
		},
		Erase: func(ctx context.Context, _, id string) error {
			if strings.HasPrefix(id, "hangs") {
				<-ctx.Done()
				return ctx.Err()
			}
			if w.stuck[id] {
				return errors.New("broken")
			}
			w.erased = append(w.erased, id)
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

func (w *world) look() string {
	w.t.Helper()
	w.erased = nil
	if err := w.keeper.Look(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(w.erased, " ")
}

// TestGoesOn: calls that cannot be erased, and notes that cannot be read, delay no other call. They
// are tried again, less and less often, by another server too, and each is reported.
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
		w.add("q", "e")
		if got := w.look(); got != "damaged b e d" && got != "damaged e b d" {
			t.Errorf("erased %q", got)
		}
		if want := []string{
			`read a note of a call to be erased: the record "!" is not a note of a call`,
			"erase the call of agent a of project p at the end of its retention: broken",
			"erase the call of agent c of project p at the end of its retention: broken",
		}; !slices.Equal(w.reports, want) {
			t.Errorf("reported %q", w.reports)
		}
		if !slices.Equal(w.counts, []string{"4 2"}) {
			t.Errorf("counted %q", w.counts)
		}
		tries := func(within time.Duration) (n int) {
			w.reports = nil
			for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Minute) {
				if got := w.look(); got != "" {
					t.Errorf("erased %q", got)
				}
			}
			for _, r := range w.reports {
				if strings.Contains(r, "agent a of") {
					n++
				}
			}
			return n
		}
		if first, later := tries(24*time.Hour), tries(9*24*time.Hour); first < 5 || first > 9 || later < 8 || later > 10 {
			t.Errorf("%d tries on the first day, %d on the nine after it", first, later)
		}
		delete(w.stuck, "a")
		time.Sleep(25 * time.Hour)
		if got := w.look(); got != "a" {
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
		began, took := time.Now(), time.Duration(0)
		erase := w.keeper.Erase
		w.keeper.Erase = func(ctx context.Context, project, id string) error {
			if id == "small" {
				took = time.Since(began)
			}
			time.Sleep(100 * time.Millisecond)
			return erase(ctx, project, id)
		}
		w.look()
		if len(w.erased) != 1001 || took == 0 || took > 2*time.Minute {
			t.Errorf("%d calls were erased, that of the small project after %v", len(w.erased), took)
		}
		if w.counts[0] != "1001 20" {
			t.Errorf("counted %q", w.counts)
		}
	})
}

// TestTwoServers: two servers that erase at the same time leave one note of a call that must wait.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.keeper.Now = func() time.Time { return now }
	w.add("p", "a")
	other := *w.keeper
	w.stuck["a"] = true
	erase := w.keeper.Erase
	w.keeper.Erase = func(ctx context.Context, project, id string) error {
		later := now.Add(time.Second)
		other.Now = func() time.Time { return later }
		other.Erase = erase
		if err := other.Look(ctx); err != nil {
			t.Error(err)
		}
		return erase(ctx, project, id)
	}
	w.look()
	list, _, err := w.store.Records(t.Context(), record.Space{Project: "~", Name: "retention/p"}, record.Query{Limit: 10})
	if err != nil || len(list) != 1 {
		t.Errorf("%d notes, %v", len(list), err)
	}
}
