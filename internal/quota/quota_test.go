package quota_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// clock is a clock that the test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func keeper(c quota.Config, stored ...memory.Usage) (*quota.Keeper, *clock) {
	at := &clock{time.Unix(1_700_000_000, 0)}
	c.Now = at.Now
	if c.Count == nil {
		c.Count = func(context.Context) ([]memory.Usage, error) { return stored, nil }
	}
	return quota.New(c), at
}

// admitted reports whether a request is let in. If it is not, the refusal must name the setting.
func admitted(t *testing.T, k *quota.Keeper, project string, body bool) (time.Duration, bool) {
	t.Helper()
	wait, err := k.Admit(project, body)
	if err != nil && (!fault.Is(err, fault.RateLimited) || !strings.Contains(err.Error(), quota.RateSetting) || wait <= 0) {
		t.Errorf("%v, %s", err, wait)
	}
	return wait, err == nil
}

// TestRateOfRequests: a project makes as many requests as a second's worth at once, and then as
// many as its rate. Others are not affected.
func TestRateOfRequests(t *testing.T) {
	t.Parallel()
	k, at := keeper(quota.Config{Rate: quota.Rate{Requests: 3}})
	for i := range 4 {
		if _, ok := admitted(t, k, "p", false); ok != (i < 3) {
			t.Errorf("request %d: %v", i, ok)
		}
	}
	if _, ok := admitted(t, k, "q", false); !ok {
		t.Error("another project is refused")
	}
	at.now = at.now.Add(time.Second/3 + time.Millisecond)
	if _, ok := admitted(t, k, "p", false); !ok {
		t.Error("refused after its time")
	}
	if _, ok := admitted(t, k, "p", false); ok {
		t.Error("two requests in the time of one")
	}
}

// TestRateOfCost: what a request costs is taken after it, also more than a second's worth. The next
// one that brings a body waits for as long as that was worth; one without a body does not.
func TestRateOfCost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rate quota.Rate
		cost func(k *quota.Keeper)
	}{
		"messages": {quota.Rate{Messages: 100}, func(k *quota.Keeper) { k.Stored("p", 1000, 1) }},
		"bytes":    {quota.Rate{Bytes: 100}, func(k *quota.Keeper) { k.Received("p", 1000) }},
	} {
		k, at := keeper(quota.Config{Rate: tt.rate})
		if _, ok := admitted(t, k, "p", true); !ok {
			t.Errorf("%s: the first is refused", name)
		}
		tt.cost(k)
		if wait, ok := admitted(t, k, "p", true); ok || wait < 8900*time.Millisecond || wait > 9100*time.Millisecond {
			t.Errorf("%s: %v, wait %s; want 9 s", name, ok, wait)
		}
		if _, ok := admitted(t, k, "p", false); !ok {
			t.Errorf("%s: a read is refused", name)
		}
		at.now = at.now.Add(9001 * time.Millisecond)
		if _, ok := admitted(t, k, "p", true); !ok {
			t.Errorf("%s: refused after its time", name)
		}
	}
}

// TestRoom: what is stored and what this server adds must stay within the limits, which a refusal
// names with the present use.
func TestRoom(t *testing.T) {
	t.Parallel()
	k, _ := keeper(quota.Config{Limit: memory.Usage{Messages: 10, Bytes: 1000}}, memory.Usage{Project: "p", Messages: 7, Bytes: 100})
	if _, err := k.Usage(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if err := k.Room("p", 3, 900); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	k.Stored("p", 2, 700)
	for _, tt := range []struct {
		messages int
		bytes    int64
		words    string
	}{{2, 1, "9 messages stored, and 2 more would exceed its limit of 10 (HEARDLOG_MAX_PROJECT_MESSAGES)"}, {1, 201, "800 bytes stored, and 201 more would exceed its limit of 1000 (HEARDLOG_MAX_PROJECT_MB)"}} {
		if err := k.Room("p", tt.messages, tt.bytes); !fault.Is(err, fault.Quota) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if err := k.Room("q", 10, 1000); err != nil {
		t.Errorf("another project: %v", err)
	}
}

// TestRecount: a count replaces what this server has added, except for what it stored meanwhile. A
// count that fails changes nothing.
func TestRecount(t *testing.T) {
	t.Parallel()
	var k *quota.Keeper
	stored, fails := int64(5), false
	k, at := keeper(quota.Config{Count: func(context.Context) ([]memory.Usage, error) {
		if fails {
			return nil, errors.New("no store")
		}
		k.Stored("p", 1, 1) // during the count
		return []memory.Usage{{Project: "p", Agents: 2, Messages: stored, Bytes: 50}, {Project: memories.OwnProject("p"), Messages: 10, Bytes: 100}}, nil
	}})
	k.Stored("p", 5, 50)
	if u, err := k.Usage(t.Context(), "p"); err != nil || u != (memory.Usage{Project: "p", Agents: 2, Messages: 16, Bytes: 151}) {
		t.Errorf("%+v, %v", u, err)
	}
	k.Stored("p", 1, 1)
	if u, err := k.Usage(t.Context(), "p"); err != nil || u.Messages != 17 {
		t.Errorf("the last count still holds: %+v, %v", u, err)
	}
	at.now, fails = at.now.Add(time.Minute), true
	if _, err := k.Usage(t.Context(), "p"); err == nil {
		t.Error("no error")
	}
	if fails, stored = false, 2; true { // other servers have erased
		if u, err := k.Usage(t.Context(), "p"); err != nil || u.Messages != 13 {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

// TestRun counts again and again, also after a failure.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counts, failures := 0, 0
		k := quota.New(quota.Config{Now: time.Now, OnError: func(error) { failures++ }, Count: func(context.Context) ([]memory.Usage, error) {
			if counts++; counts == 2 {
				return nil, errors.New("no store")
			}
			time.Sleep(200 * time.Millisecond) // fake time
			return nil, nil
		}})
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
		defer stop()
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
		// 0.2 s at 0 s, so the next at 10.2 s, which fails; the last at 20.2 s.
		if counts != 3 || failures != 1 {
			t.Errorf("%d counts, %d failures", counts, failures)
		}
	})
}

// TestSlowCount: a caller that leaves does not end a slow count, those who wait for it leave when
// they want to, and it is not repeated at once however often its result is asked for.
func TestSlowCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		k := quota.New(quota.Config{Now: time.Now, Count: func(ctx context.Context) ([]memory.Usage, error) {
			counts++
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return []memory.Usage{{Project: "p", Messages: 7}}, nil
			}
		}})
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if _, err := k.Usage(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		}
		wait.Wait()
		for time.Since(began) < 500*time.Second {
			if u, err := k.Usage(t.Context(), "p"); err != nil || u.Messages != 7 {
				t.Fatalf("%+v, %v", u, err)
			}
			time.Sleep(6 * time.Second) // fake time
		}
		if counts != 1 {
			t.Errorf("%d counts", counts)
		}
	})
}

// TestRunEndsItsCount: a count must not outlast the server.
func TestRunEndsItsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended time.Duration
		k := quota.New(quota.Config{Now: time.Now, Count: func(ctx context.Context) ([]memory.Usage, error) {
			<-ctx.Done()
			ended = time.Since(began)
			return nil, ctx.Err()
		}})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if ended != time.Second {
			t.Errorf("the count ended after %v", ended)
		}
	})
}

// TestLargest keeps the number of projects with gauges of their own small.
func TestLargest(t *testing.T) {
	t.Parallel()
	k, _ := keeper(quota.Config{}, memory.Usage{Project: "a", Messages: 1, Agents: 4}, memory.Usage{Project: "b", Messages: 9}, memory.Usage{Project: "c", Messages: 2, Agents: 3})
	if _, err := k.Usage(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	list, others := k.Largest(1)
	if len(list) != 1 || list[0].Project != "b" || others.Messages != 3 || others.Agents != 7 || others.Project != "" {
		t.Errorf("%+v, %+v", list, others)
	}
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	k := quota.New(quota.Config{
		Rate: quota.Rate{Requests: 1000, Messages: 1000, Bytes: 1000}, Limit: memory.Usage{Messages: 1000}, Now: time.Now,
		Count: func(context.Context) ([]memory.Usage, error) { return nil, nil },
	})
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 100 {
				_, _ = k.Admit("p", true)
				k.Received("p", 10)
				k.Stored("p", 1, 10)
				_ = k.Room("p", 1, 1)
				_, _ = k.Usage(t.Context(), "p")
				k.Largest(3)
			}
		})
	}
	wait.Wait()
}
