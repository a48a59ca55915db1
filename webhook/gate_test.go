package webhook_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// TestFault28Breaker checks that a receiver that is down is tried less and less often, one attempt
// at a time, and that this costs no delivery an attempt. Waiting deliveries count as due.
func TestFault28Breaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100)
		var mu sync.Mutex
		down, tries := true, []time.Duration(nil)
		began := time.Now()
		reg := prometheus.NewPedanticRegistry()
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Since(began))
			if down {
				return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
			}
			return taken(d)
		}, func(c *webhook.WorkerConfig) { c.Registerer, c.PerEndpoint = reg, 1 })
		time.Sleep(20 * time.Minute)
		mu.Lock()
		n := len(tries)
		// Five at once, then after 10, 20, 40, 80, 160 s and every five minutes.
		want := []time.Duration{0, 0, 0, 0, 0, 10, 30, 70, 150, 310, 610, 910}
		for i, at := range tries[:min(n, len(want))] {
			if gap := at - want[i]*time.Second; gap < 0 || gap > time.Second {
				t.Errorf("attempt %d at %s, want %s", i+1, at, want[i]*time.Second)
			}
		}
		if n != len(want) {
			t.Errorf("%d attempts in 20 minutes, want %d", n, len(want))
		}
		mu.Unlock()
		spent := 0
		for id := range 100 {
			spent += q.get(int64(id + 1)).Attempt
		}
		if spent != n {
			t.Errorf("%d attempts are counted, %d were made", spent, n)
		}
		err := testutil.GatherAndCompare(reg, strings.NewReader(`
			# HELP heardlog_webhook_open_breakers Endpoints that are held back because their receiver fails again and again.
			# TYPE heardlog_webhook_open_breakers gauge
			heardlog_webhook_open_breakers 1
			# HELP heardlog_webhook_oldest_due_age_seconds How long the earliest pending delivery has been due; nothing is excluded.
			# TYPE heardlog_webhook_oldest_due_age_seconds gauge
			heardlog_webhook_oldest_due_age_seconds 1200
		`), "heardlog_webhook_open_breakers", "heardlog_webhook_oldest_due_age_seconds")
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(11 * time.Minute) // the next probe closes it, and retries come due
		stop()
		if n := q.count(webhook.Delivered, "a"); n < 90 {
			t.Errorf("%d delivered after the receiver was well again", n)
		}
		if n, err := testutil.GatherAndCount(reg, "heardlog_webhook_open_breakers"); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestBreakerAndTests checks that test events to a receiver that is down never lengthen a pause,
// however many there are, and that one that succeeds ends it.
func TestBreakerAndTests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100)
		test := func() {
			q.add("a", 1)
			q.mu.Lock()
			q.rows[len(q.rows)-1].Urgent = true
			q.mu.Unlock()
			q.wake()
		}
		var mu sync.Mutex
		var tries []time.Duration
		down, began := true, time.Now()
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if !d.Urgent {
				tries = append(tries, time.Since(began).Truncate(time.Second))
			}
			if down {
				return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
			}
			return taken(d)
		}, func(c *webhook.WorkerConfig) {
			c.PerEndpoint, c.Schedule = 1, webhook.Schedule{24 * time.Hour}
		})
		for range 80 { // the tests that failed are tried again in a day
			time.Sleep(900 * time.Millisecond)
			test()
		}
		mu.Lock()
		if want := []time.Duration{0, 0, 0, 0, 0, 10 * time.Second, 30 * time.Second, 70 * time.Second}; !slices.Equal(tries, want) {
			t.Errorf("attempts at %v, want %v", tries, want)
		}
		down = false
		mu.Unlock()
		test()
		time.Sleep(2 * time.Second)
		stop()
		if n := q.count(webhook.Delivered, "a"); n < 90 {
			t.Errorf("%d delivered after a test that succeeded", n)
		}
	})
}

// TestBreakerOfDeletedEndpoint checks that the breaker of a deleted endpoint is not counted any
// more.
func TestBreakerOfDeletedEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("gone", 10)
		q.add("there", 10)
		reg := prometheus.NewPedanticRegistry()
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return failed(d) }, func(c *webhook.WorkerConfig) {
			c.Registerer = reg
			c.Schedule = slices.Repeat(webhook.Schedule{time.Minute}, 1000)
		})
		open := func() float64 { return gauge(t, reg, "heardlog_webhook_open_breakers") }
		time.Sleep(time.Minute)
		if n := open(); n != 2 {
			t.Errorf("%v are open", n)
		}
		q.mu.Lock()
		for _, r := range q.rows {
			if r.Endpoint.ID == "gone" {
				r.state = webhook.Dead
			}
		}
		q.mu.Unlock()
		time.Sleep(2 * time.Hour)
		if n := open(); n != 1 {
			t.Errorf("%v are open, an hour after the endpoint of one was deleted", n)
		}
		stop()
	})
}

// TestBreakerEdited checks that a corrected endpoint is tried at once, not at the end of the pause
// that its mistake caused.
func TestBreakerEdited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 20)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			if d.Endpoint.URL == "http://right.test" {
				return taken(d)
			}
			return failed(d)
		}, nil)
		time.Sleep(11 * time.Minute) // a break of five minutes has begun
		if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", URL: "http://right.test", Rev: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stop()
		if n := q.count(webhook.Delivered, "a"); n < 10 {
			t.Errorf("%d were delivered within two seconds of the correction", n)
		}
	})
}

// An endpoint that is changed again and again does not get around its breaker: each change allows
// one probe, and failures before it still count.
func TestBreakerEditedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1000)
		var tries atomic.Int32
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			tries.Add(1)
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
		}, func(c *webhook.WorkerConfig) { c.Schedule, c.PerEndpoint = webhook.Schedule{24 * time.Hour}, 1 })
		time.Sleep(2 * time.Second)
		before := tries.Load()
		for i := range 60 {
			if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", URL: "http://wrong.test", Rev: int64(i + 1)}); err != nil {
				t.Fatal(err)
			}
			q.wake()
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		if n := tries.Load() - before; n > 60 || n < 1 {
			t.Errorf("%d attempts for 60 changes of an endpoint that is down, want at most one each", n)
		}
	})
}

// TestBreakerCounts checks that five failures in a row that show that a receiver is down open the
// breaker, and that rejected events and failures on Heardlog's side do not.
func TestBreakerCounts(t *testing.T) {
	t.Parallel()
	status := func(n int, class string) webhook.Attempt { return webhook.Attempt{Status: n, ErrorClass: class} }
	for name, tt := range map[string]struct {
		try   webhook.Attempt
		fails bool
	}{
		"302": {status(302, webhook.Class3xx), false}, "400": {status(400, webhook.Class4xx), false}, "404": {status(404, webhook.Class4xx), false},
		"408": {status(408, webhook.Class4xx), true}, "409": {status(409, webhook.Class4xx), false}, "429": {status(429, webhook.Class4xx), true},
		"500": {status(500, webhook.Class5xx), true}, "503": {status(503, webhook.Class5xx), true}, "599": {status(599, webhook.Class5xx), true},
		"dns": {status(0, webhook.ClassDNS), true}, "refused": {status(0, webhook.ClassRefused), true}, "no route": {status(0, webhook.ClassConnect), true},
		"no connection in time": {status(0, webhook.ClassConnectTO), true}, "TLS": {status(0, webhook.ClassTLS), true}, "no answer": {status(0, webhook.ClassTimeout), true},
		"reset": {status(0, webhook.ClassReset), true}, "not HTTP": {status(0, webhook.ClassProtocol), true},
		"address not allowed": {status(0, webhook.ClassBlocked), false}, "no secret": {status(0, webhook.ClassEndpoint), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				q.add("a", 20)
				var tries atomic.Int32
				stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
					// Not five in a row.
					if tries.Add(1); tries.Load() == webhook.DefaultBreakAfter {
						return taken(d)
					}
					o := webhook.Outcome{Attempt: tt.try}
					o.N = d.Attempt
					return o
				}, func(c *webhook.WorkerConfig) { c.PerEndpoint, c.Schedule = 1, webhook.Schedule{24 * time.Hour} })
				synctest.Wait()
				stop()
				want := int32(20)
				if tt.fails {
					want = 2 * webhook.DefaultBreakAfter
				}
				if n := tries.Load(); n != want {
					t.Errorf("%d attempts, want %d", n, want)
				}
			})
		})
	}
}

// TestBreakerAsksWithOne checks that a receiver behind a breaker gets one attempt at a time,
// whatever its limit is otherwise.
func TestBreakerAsksWithOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100)
		began := time.Now()
		var later atomic.Int32
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			if time.Since(began) > time.Second {
				later.Add(1)
				time.Sleep(time.Second)
			}
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
		}, func(c *webhook.WorkerConfig) { c.Schedule = webhook.Schedule{24 * time.Hour} })
		time.Sleep(100 * time.Second) // breaks of 10, 20 and 40 s, and three attempts of a second
		stop()
		if n := later.Load(); n != 3 {
			t.Errorf("%d attempts at a receiver that is held back, want 3", n)
		}
	})
}

// TestFailingTestsHoldNothingBack checks that failing test events open no breaker, and that none is
// taken for the attempt that a breaker waits for.
func TestFailingTestsHoldNothingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		var sent []int64
		var mu sync.Mutex
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if d.Urgent {
				return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
			}
			sent = append(sent, d.ID)
			return taken(d)
		}, func(c *webhook.WorkerConfig) { c.Schedule = webhook.Schedule{24 * time.Hour} })
		const tests = 2 * webhook.DefaultBreakAfter
		for range tests {
			q.add("a", 1)
			q.mu.Lock()
			q.rows[len(q.rows)-1].Urgent = true
			q.mu.Unlock()
			q.wake()
			time.Sleep(time.Second)
		}
		q.add("a", 1)
		q.wake()
		synctest.Wait()
		mu.Lock()
		if len(sent) != 1 {
			t.Errorf("an event was held back by %d tests that failed", tests)
		}
		mu.Unlock()
		stop()
	})
}

// TestBreakerRefusals checks that a receiver that rejects single events counts as up.
func TestBreakerRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 50)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, Status: 400, ErrorClass: webhook.Class4xx}}
		}, nil)
		synctest.Wait()
		stop()
		for id := range 50 {
			if r := q.get(int64(id + 1)); r.Attempt != 1 {
				t.Fatalf("delivery %d has %d attempts", id+1, r.Attempt)
			}
		}
	})
}

// TestFault28RateLimit checks that no second has more attempts than the rate and a twentieth, and
// that 20 s have as many as the rate allows.
func TestFault28RateLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []float64{0.5, 1, 7, 60} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			q.add("a", int(limit*25)+5)
			q.mu.Lock()
			e := q.endpoints["a"]
			e.RateLimit = limit
			q.endpoints["a"] = e
			q.mu.Unlock()
			q.add("b", 100) // is not held up
			var mu sync.Mutex
			var at []time.Time
			began := time.Now()
			stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
				mu.Lock()
				defer mu.Unlock()
				if d.Endpoint.ID == "a" {
					at = append(at, time.Now())
				} else if late := time.Since(began); late > time.Second {
					t.Errorf("b's was sent after %s", late)
				}
				return taken(d)
			}, nil)
			time.Sleep(20 * time.Second)
			stop()
			most := max(limit*1.05, limit+1)
			for i := range at {
				n := 0
				for _, other := range at[i:] {
					if other.Sub(at[i]) >= time.Second {
						break
					}
					n++
				}
				if float64(n) > most {
					t.Fatalf("rate %g: %d in the second from %s on", limit, n, at[i].Sub(began))
				}
			}
			if total := float64(len(at)); total < limit*20*0.95 || total > limit*20*1.05+1 {
				t.Errorf("rate %g: %g in 20 s", limit, total)
			}
		})
	}
}

// TestWorkerClaimsTogether checks that with a large backlog deliveries are claimed in groups, not
// one for each attempt that ends.
func TestWorkerClaimsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		q := newQueue()
		for i := range 20 {
			q.add(string(rune('a'+i)), n/20)
		}
		var mu sync.Mutex
		took := time.Duration(0)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			// Attempts should end one by one.
			took = (took + 700*time.Microsecond) % (5 * time.Millisecond)
			pause := took
			mu.Unlock()
			time.Sleep(pause)
			return taken(d)
		}, nil)
		time.Sleep(2 * time.Second)
		if done := q.count(webhook.Delivered, ""); done != n {
			t.Errorf("%d of %d were delivered", done, n)
		}
		if claims := q.claimed(); claims > n*3/4 {
			t.Errorf("%d deliveries took %d claims", n, claims)
		}
		stop()
	})
}

// TestBreakerOfEndpointMadeAgain checks an endpoint that was deleted and created again with the
// same ID: it starts with its first revision, and its breaker works like the old one's.
func TestBreakerOfEndpointMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100)
		var mu sync.Mutex
		tries := 0
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			mu.Lock()
			defer mu.Unlock()
			tries++
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassRefused}}
		}, func(c *webhook.WorkerConfig) { c.PerEndpoint = 1 })
		put := func(created, rev int64) int {
			e := webhook.Endpoint{ID: "a", URL: "http://a.test/hook", CreatedMS: created, Rev: rev}
			if err := q.PutEndpoint(t.Context(), e); err != nil {
				t.Error(err)
			}
			mu.Lock()
			before := tries
			mu.Unlock()
			time.Sleep(9 * time.Second) // within the first break
			mu.Lock()
			defer mu.Unlock()
			return tries - before
		}
		for i, v := range []struct {
			created, rev int64
			want         int
		}{{1, 7, webhook.DefaultBreakAfter}, {2, 1, webhook.DefaultBreakAfter}, {3, 1, webhook.DefaultBreakAfter}, {3, 2, 1}} {
			if n := put(v.created, v.rev); n != v.want {
				t.Errorf("version %d: %d attempts before the break, want %d", i, n, v.want)
			}
		}
		stop()
	})
}

// TestDeadIsCountedOnceStored checks that a delivery counts as dead when that is stored, and not if
// another claim has overtaken the result.
func TestDeadIsCountedOnceStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 2)
		q.onFinish = func(_ context.Context, d webhook.Delivery) error {
			if d.ID == 1 {
				return fault.New(fault.Conflict, "claimed again")
			}
			return nil
		}
		reg := prometheus.NewPedanticRegistry()
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return failed(d) }, func(c *webhook.WorkerConfig) {
			c.Registerer, c.Schedule = reg, webhook.Schedule{}
		})
		time.Sleep(time.Second)
		err := testutil.GatherAndCompare(reg, strings.NewReader(`
			# HELP heardlog_webhook_dead_total Deliveries given up.
			# TYPE heardlog_webhook_dead_total counter
			heardlog_webhook_dead_total 1
		`), "heardlog_webhook_dead_total")
		if err != nil {
			t.Error(err)
		}
		stop()
	})
}

// TestWorkerClaimsWithoutThoseThatHang checks that while most attempts hang, the remaining slots
// serve a working receiver without pauses.
func TestWorkerClaimsWithoutThoseThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for i := range 7 { // all attempts but four
			q.add("stuck"+string(rune('a'+i)), 10)
		}
		q.add("well", 400)
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			if d.Endpoint.ID != "well" {
				<-ctx.Done()
				return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassCanceled}}
			}
			time.Sleep(time.Millisecond)
			return taken(d)
		}, nil)
		time.Sleep(200 * time.Millisecond) // twice what four at a time need
		if n := q.count(webhook.Delivered, "well"); n != 400 {
			t.Errorf("%d of 400 were delivered", n)
		}
		stop()
	})
}

// TestRateLowered checks that an endpoint whose rate is lowered waits for its next attempt as long
// as the new rate says.
func TestRateLowered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", URL: "http://a.test", RateLimit: 1000}); err != nil {
			t.Fatal(err)
		}
		q.add("a", 200)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		time.Sleep(10 * time.Millisecond) // its bucket is empty
		if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: "a", URL: "http://a.test", RateLimit: 0.1, Rev: 1}); err != nil {
			t.Fatal(err)
		}
		before := q.count(webhook.Delivered, "a")
		time.Sleep(25 * time.Second)
		if n := q.count(webhook.Delivered, "a") - before; before == 200 || n < 2 || n > 3 {
			t.Errorf("%d after %d in 25 s at one in ten", n, before)
		}
		stop()
	})
}

// TestSlowReceiversLeaveRoom checks that, however much waits for slow receivers, and however many
// of them a project has, another project's event gets the next free attempt, and so does an event
// of the same project's endpoint that has no attempt in progress.
func TestSlowReceiversLeaveRoom(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slow    int
		project string
	}{"another project": {100, "other"}, "another endpoint": {20, "slow"}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			put := func(id, project string) {
				if err := q.PutEndpoint(t.Context(), webhook.Endpoint{ID: id, Project: project, URL: "http://a.test"}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range tt.slow {
				id := "slow" + string(rune('A'+i))
				put(id, "slow")
				q.add(id, 20)
			}
			put("quick", tt.project)
			var mu sync.Mutex
			var at time.Time
			stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
				if d.Endpoint.ID == "quick" {
					mu.Lock()
					defer mu.Unlock()
					at = time.Now()
				} else {
					time.Sleep(10 * time.Second)
				}
				return taken(d)
			}, nil)
			time.Sleep(25 * time.Second)
			began := time.Now()
			q.add("quick", 1)
			time.Sleep(20 * time.Second)
			mu.Lock()
			// The attempts under way end together here.
			if late := at.Sub(began); at.IsZero() || late > 11*time.Second {
				t.Errorf("%s: sent after %s", name, late)
			}
			mu.Unlock()
			time.Sleep(time.Hour)
			stop()
			if left := q.count(webhook.Pending, ""); left != 0 {
				t.Errorf("%s: %d wait", name, left)
			}
		})
	}
}
