package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// disableAfter is how long an endpoint may fail.
const disableAfter = 5 * 24 * time.Hour

// policy is the one of the server's default settings.
func policy() webhook.Policy { return webhook.Policy{ParkAfter: 3, DisableAfter: disableAfter} }

// start runs a worker inside a bubble; the returned function stops it and waits.
func start(t *testing.T, q *fakeQueue, send func(ctx context.Context, d webhook.Delivery) webhook.Outcome, change func(*webhook.WorkerConfig)) (stop func() time.Duration) {
	t.Helper()
	c := webhook.WorkerConfig{Queue: q, Sender: fakeSender{send}, Policy: policy(), Random: func() float64 { return 0 }, Log: zerolog.Nop(), Active: 8}
	if change != nil {
		change(&c)
	}
	w, err := webhook.NewWorker(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	took := time.Duration(0)
	stop = func() time.Duration {
		once.Do(func() {
			began := time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
			took = time.Since(began)
		})
		return took
	}
	t.Cleanup(func() { stop() })
	return stop
}

func TestWorkerSendsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100) // from before the start, more than go at once
		began := time.Now()
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		synctest.Wait()
		if n := q.count(webhook.Delivered, ""); n != 100 || time.Since(began) != 0 {
			t.Errorf("%d delivered after %s", n, time.Since(began))
		}
		q.add("a", 1)
		q.wake()
		synctest.Wait()
		if n := q.count(webhook.Delivered, ""); n != 101 || time.Since(began) != 0 {
			t.Errorf("woken: %d delivered after %s", n, time.Since(began))
		}
		q.add("a", 1) // by another process: nobody wakes us
		time.Sleep(webhook.DefaultPoll)
		synctest.Wait()
		if n := q.count(webhook.Delivered, ""); n != 102 {
			t.Errorf("polled: %d delivered", n)
		}
		if took := stop(); took != 0 {
			t.Errorf("an idle worker took %s to stop", took)
		}
	})
}

func TestWorkerRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		began := time.Now()
		var at []time.Duration
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			at = append(at, time.Since(began))
			return failed(d)
		}, func(c *webhook.WorkerConfig) { c.Poll = 5 * time.Second })
		time.Sleep(100 * time.Hour)
		stop()
		r := q.get(1)
		if r.state != webhook.Dead || len(r.tries) != 10 || len(at) != 10 || !strings.Contains(r.reason, "after 10 attempts") {
			t.Fatalf("%s (%s) after %d attempts", r.state, r.reason, len(r.tries))
		}
		want := time.Duration(0)
		for i, wait := range webhook.DefaultSchedule() {
			want += max(wait, time.Second)
			if at[i+1] < want || at[i+1] > want+time.Duration(i+1)*5*time.Second {
				t.Errorf("attempt %d at %s, want %s", i+2, at[i+1], want)
			}
		}
		for i, a := range r.tries {
			if a.N != i+1 {
				t.Errorf("attempt %d is numbered %d", i+1, a.N)
			}
		}
	})
}

// TestWorkerEndpointEdited checks that the new URL and secrets are used, and that a disabled
// endpoint gets nothing until it is enabled.
func TestWorkerEndpointEdited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		var urls []string
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			urls = append(urls, d.Endpoint.URL)
			return failed(d)
		}, nil)
		synctest.Wait()
		put := func(url string, disabled bool) {
			if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", URL: url, Disabled: disabled}); err != nil {
				t.Fatal(err)
			}
		}
		put("http://new.test", false)
		time.Sleep(10 * time.Second)
		put("http://off.test", true)
		time.Sleep(10 * time.Hour)
		put("http://on.test", false)
		time.Sleep(10 * time.Second)
		stop()
		if want := "http://a.test/hook http://new.test http://on.test"; strings.Join(urls, " ") != want {
			t.Errorf("sent to %v", urls)
		}
	})
}

func TestWorkerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 6)
		q.add("b", 1)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			if d.ID == 1 {
				o := failed(d)
				o.Status = 410
				return o
			}
			return taken(d)
		}, func(c *webhook.WorkerConfig) { c.InFlight = 1 })
		synctest.Wait()
		stop()
		if e := q.endpoints["a"]; !e.Disabled || !strings.Contains(e.DisabledWhy, "410") {
			t.Errorf("endpoint: %+v", e)
		}
		if q.count(webhook.Dead, "a") != 1 || q.count(webhook.Pending, "a") != 5 || q.count(webhook.Delivered, "b") != 1 {
			t.Error("the rest of a must wait, b must go")
		}
	})
}

// TestWorkerFanOut checks three endpoints, one of which fails: the others get each event exactly
// once.
func TestWorkerFanOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for range 20 {
			q.add("a", 1)
			q.add("b", 1)
			q.add("c", 1)
		}
		var mu sync.Mutex
		sent := map[int64]int{}
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if d.Endpoint.ID == "b" {
				return failed(d)
			}
			sent[d.ID]++
			return taken(d)
		}, nil)
		time.Sleep(time.Hour)
		stop()
		if len(sent) != 40 {
			t.Errorf("%d sent, want 40", len(sent))
		}
		for id, n := range sent {
			if n != 1 {
				t.Errorf("delivery %d was sent %d times", id, n)
			}
		}
		if q.count(webhook.Pending, "b") != 20 {
			t.Error("b's must wait")
		}
	})
}

// TestWorkerDeadEndpoint checks that a dead endpoint with 10,000 deliveries delays only its own,
// and never takes more than its share.
func TestWorkerDeadEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("dead", 10_000)
		var mu sync.Mutex
		busy, most, total, mostTotal := map[string]int{}, map[string]int{}, 0, 0
		enter := func(id string, n int) {
			mu.Lock()
			defer mu.Unlock()
			busy[id] += n
			total += n
			most[id] = max(most[id], busy[id])
			mostTotal = max(mostTotal, total)
		}
		late := time.Duration(0)
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			enter(d.Endpoint.ID, 1)
			defer enter(d.Endpoint.ID, -1)
			if d.Endpoint.ID == "dead" {
				select {
				case <-ctx.Done():
				case <-time.After(webhook.TotalTimeout):
				}
				return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassTimeout}}
			}
			mu.Lock()
			late = max(late, time.Since(time.UnixMilli(d.CreatedMS)))
			mu.Unlock()
			return taken(d)
		}, nil)
		for range 50 {
			time.Sleep(700 * time.Millisecond)
			q.add("live", 10)
			q.wake()
		}
		time.Sleep(time.Second)
		stop()
		if n := q.count(webhook.Delivered, "live"); n != 500 || late > time.Millisecond {
			t.Errorf("%d of 500 delivered, the latest after %s", n, late)
		}
		if most["dead"] != webhook.DefaultPerEndpoint || most["live"] > webhook.DefaultPerEndpoint || mostTotal > webhook.DefaultInFlight {
			t.Errorf("at once: %v, %d in all", most, mostTotal)
		}
	})
}

// TestWorkerGreedyEndpoint checks that endpoints with a higher limit than the server's get a
// quarter of it alone, or share that, and that the others go on when such receivers are stuck.
func TestWorkerGreedyEndpoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ greedy, most int }{
		"one":   {1, webhook.DefaultInFlight / 4},
		"three": {3, webhook.DefaultInFlight/4 + 2*webhook.DefaultPerEndpoint},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testGreedy(t, tt.greedy, tt.most)
		})
	}
}

func testGreedy(t *testing.T, greedy, want int) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for i := range greedy {
			id := fmt.Sprint("greedy", i)
			q.add(id, 500)
			q.mu.Lock()
			e := q.endpoints[id]
			e.MaxInFlight = webhook.MaxMaxInFlight
			q.endpoints[id] = e
			q.mu.Unlock()
		}
		var mu sync.Mutex
		busy, most := 0, 0
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if d.Endpoint.ID == "live" {
				return taken(d)
			}
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(webhook.TotalTimeout):
			}
			mu.Lock()
			busy--
			mu.Unlock()
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassTimeout}}
		}, nil)
		time.Sleep(time.Second)
		q.add("live", 100)
		q.wake()
		time.Sleep(100 * time.Millisecond)
		if n := q.count(webhook.Delivered, "live"); n != 100 {
			t.Errorf("%d of 100 of the other one were delivered at once", n)
		}
		stop()
		if most != want {
			t.Errorf("%d at a time, want %d", most, want)
		}
	})
}

// TestWorkerActive checks that quick deliveries are sent few at a time, at most half of them for
// one project, and that they count until their results are stored.
func TestWorkerActive(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ projects, most int }{"one project": {1, 4}, "many projects": {20, 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testActive(t, tt.projects, tt.most) })
		})
	}
}

func testActive(t *testing.T, projects, want int) {
	q := newQueue()
	for i := range 20 {
		q.add(fmt.Sprint("e", i), 10)
		q.move(fmt.Sprint("e", i), fmt.Sprint("p", i%projects))
	}
	var now, most atomic.Int64
	q.onFinish = func(context.Context, webhook.Delivery) error {
		time.Sleep(2 * time.Millisecond)
		now.Add(-1)
		return nil
	}
	stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(time.Millisecond)
		return taken(d)
	}, nil)
	time.Sleep(time.Second)
	stop()
	if most.Load() != int64(want) || q.count(webhook.Delivered, "") != 200 {
		t.Errorf("%d at once, want %d; %d delivered", most.Load(), want, q.count(webhook.Delivered, ""))
	}
}

// One project uses half of all attempts, several use all of them.
func TestWorkerGlobalCap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ projects, most int }{
		"one project":   {1, webhook.DefaultInFlight / 2},
		"many projects": {100, webhook.DefaultInFlight},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testGlobalCap(t, tt.projects, tt.most)
		})
	}
}

func testGlobalCap(t *testing.T, projects, want int) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for i := range 100 {
			q.add(fmt.Sprint("e", i), 10)
			q.move(fmt.Sprint("e", i), fmt.Sprint("p", i%projects))
		}
		var mu sync.Mutex
		now, most := 0, 0
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return taken(d)
		}, nil)
		time.Sleep(time.Minute)
		stop()
		if most != want || q.count(webhook.Delivered, "") != 1000 {
			t.Errorf("%d at once, want %d; %d delivered", most, want, q.count(webhook.Delivered, ""))
		}
	})
}

// TestWorkerSilentProjects checks that deliveries of another project are sent at once, however many
// endpoints of one or several projects accept and never answer.
func TestWorkerSilentProjects(t *testing.T) {
	t.Parallel()
	for name, projects := range map[string]int{"one": 1, "three": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSilent(t, projects)
		})
	}
}

func testSilent(t *testing.T, projects int) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for i := range 100 {
			id := fmt.Sprint("silent", i)
			q.add(id, 100)
			q.move(id, fmt.Sprint("p", i%projects))
		}
		var mu sync.Mutex
		late := time.Duration(0)
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if d.Endpoint.ID == "live" {
				mu.Lock()
				late = max(late, time.Since(time.UnixMilli(d.CreatedMS)))
				mu.Unlock()
				return taken(d)
			}
			select {
			case <-ctx.Done():
			case <-time.After(webhook.TotalTimeout):
			}
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassTimeout}}
		}, nil)
		for range 50 {
			time.Sleep(700 * time.Millisecond)
			q.add("live", 3)
			q.move("live", "other")
			q.wake()
		}
		time.Sleep(time.Second)
		stop()
		if n := q.count(webhook.Delivered, "live"); n != 150 || late > 10*time.Millisecond {
			t.Errorf("%d of 150 delivered, the latest after %s", n, late)
		}
	})
}

// TestWorkerStoreDown checks that a failing store is called less and less often, whatever wakes the
// worker, and that work goes on when it is back.
func TestWorkerStoreDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 3)
		down := time.Now().Add(10 * time.Minute)
		q.onClaim = func(context.Context) error {
			if time.Now().Before(down) {
				return fault.New(fault.Unavailable, "disk full")
			}
			return nil
		}
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		for range 6000 {
			time.Sleep(100 * time.Millisecond)
			q.wake()
		}
		if n := q.claimed(); n > 60 {
			t.Errorf("%d claims in 10 minutes", n)
		}
		time.Sleep(20 * time.Second)
		if n := q.count(webhook.Delivered, ""); n != 3 {
			t.Errorf("%d delivered after the store was back", n)
		}
		stop()
	})
}

// TestWorkerFinishFails checks that a result that cannot be stored at once is stored later, within
// the lease; the event is not sent again.
func TestWorkerFinishFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		fails, sent := 5, 0
		q.onFinish = func(context.Context, webhook.Delivery) error {
			if fails--; fails >= 0 {
				return errors.New("busy")
			}
			return nil
		}
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { sent++; return taken(d) }, nil)
		time.Sleep(time.Hour)
		stop()
		if r := q.get(1); r.state != webhook.Delivered || sent != 1 {
			t.Errorf("%s, sent %d times", r.state, sent)
		}
	})
}

// TestWorkerFinishNeverStored checks that if it cannot be stored at all, the lease ends and the
// event is sent again: a duplicate, not a loss. The same happens after a kill.
func TestWorkerFinishNeverStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		began := time.Now()
		var at []time.Duration
		q.onFinish = func(ctx context.Context, d webhook.Delivery) error {
			if d.Attempt == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			at = append(at, time.Since(began))
			return taken(d)
		}, nil)
		time.Sleep(time.Hour)
		stop()
		lease := fakeSender{}.Lease()
		if r := q.get(1); r.state != webhook.Delivered || len(at) != 2 || at[1] < lease || at[1] > lease+2*webhook.DefaultPoll {
			t.Errorf("%s, sent at %v", r.state, at)
		}
	})
}

// TestWorkerFence checks that a worker that comes back after its lease has ended does not overwrite
// what another one stored, and does not retry endlessly.
func TestWorkerFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		finishes := 0
		q.onFinish = func(context.Context, webhook.Delivery) error { finishes++; return nil }
		slow := func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if d.Attempt == 1 {
				time.Sleep(40 * time.Second) // suspended; no deadline helps
				return failed(d)
			}
			return taken(d)
		}
		one := start(t, q, slow, nil)
		two := start(t, q, slow, nil)
		time.Sleep(time.Hour)
		one()
		two()
		r := q.get(1)
		if r.state != webhook.Delivered || len(r.tries) != 1 || r.tries[0].N != 2 || finishes > 3 {
			t.Errorf("%s, stored attempts %+v, %d finishes", r.state, r.tries, finishes)
		}
	})
}

// TestWorkerConflict checks that a refused result is dropped at once although its lease still runs:
// a retry cannot help.
func TestWorkerConflict(t *testing.T) {
	t.Parallel()
	for _, code := range []fault.Code{fault.Conflict, fault.NotFound} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			q.add("a", 1)
			finishes := 0
			q.onFinish = func(context.Context, webhook.Delivery) error {
				finishes++
				return fault.New(code, "gone")
			}
			stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
			time.Sleep(20 * time.Second)
			stop()
			if finishes != 1 {
				t.Errorf("%s: stored %d times", code, finishes)
			}
		})
	}
}

// TestWorkerSlowClaim checks that a slow claim leaves the attempt less time, so that it ends before
// the lease.
func TestWorkerSlowClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		// It ignores deadlines.
		q.onClaim = func(context.Context) error { time.Sleep(22 * time.Second); return nil }
		var left time.Duration
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if deadline, ok := ctx.Deadline(); ok && left == 0 {
				left = time.Until(deadline)
			}
			return taken(d)
		}, nil)
		time.Sleep(30 * time.Second)
		stop()
		if left <= 0 || left > (fakeSender{}).Lease()-22*time.Second {
			t.Errorf("the attempt had %s", left)
		}
	})
}

// TestWorkerHopelessClaim checks that a claim too slow for an attempt is released and does not
// count.
func TestWorkerHopelessClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		q.onClaim = func(context.Context) error {
			if q.claims == 1 {
				time.Sleep((fakeSender{}).Lease() - 5*time.Second)
			}
			return nil
		}
		var attempts []int
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if attempts = append(attempts, d.Attempt); ctx.Err() != nil {
				return failed(d)
			}
			return taken(d)
		}, nil)
		time.Sleep(time.Minute)
		stop()
		if r := q.get(1); r.state != webhook.Delivered || len(attempts) != 1 || attempts[0] != 1 {
			t.Errorf("%s, attempts %v", r.state, attempts)
		}
	})
}

func TestWorkerPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 5)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			if d.ID == 3 {
				panic("mistake")
			}
			return taken(d)
		}, nil)
		synctest.Wait()
		stop()
		r := q.get(3)
		if q.count(webhook.Delivered, "") != 4 || r.state != webhook.Dead || !strings.Contains(r.reason, "mistake") || r.tries[0].ErrorClass != webhook.ClassPanic {
			t.Errorf("%d delivered, the third %s %q", q.count(webhook.Delivered, ""), r.state, r.reason)
		}
	})
}

func TestWorkerStorePanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 2)
		q.onFinish = func(_ context.Context, d webhook.Delivery) error {
			if d.ID == 1 && d.Attempt == 1 {
				panic("mistake")
			}
			return nil
		}
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		time.Sleep(time.Minute)
		stop()
		if n := q.count(webhook.Delivered, ""); n != 2 {
			t.Errorf("%d delivered", n)
		}
	})
}
