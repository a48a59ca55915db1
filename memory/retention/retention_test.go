package retention_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/inmem"
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
