package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// TestFault02KilledBeforeClaim checks that what was committed and never claimed is sent after a
// kill, as a first attempt.
func TestFault02KilledBeforeClaim(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n1"), s.event("n2"))
	after := s.killed()
	after.work(nil, nil)
	got := map[string]string{}
	for range 2 {
		h := receiveFrom(t, seen, "an event")
		got[h.id()] = h.header.Get("Webhook-Attempt") + h.body
		after.next()
	}
	if got["n1"] != `1{"noticeId":"n1","é":"😀"}` || got["n2"] != `1{"noticeId":"n2","é":"😀"}` {
		t.Errorf("%v", got)
	}
	after.wantBacklog(0, 0)
}

// TestFault03KilledMidRequest kills the server while the receiver has the request and has not
// answered. The event comes again with the same ID and bytes, signed again. Nothing was stored of
// the first attempt, so the second has its number.
func TestFault03KilledMidRequest(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var requests atomic.Int32
	url, seen := hits(t, func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 1 {
			<-release
		}
	})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also after a failure: the receiver waits for its handlers
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	// A lease too long for a test to wait for.
	stop := s.work(func(c *webhook.SenderConfig) { c.Total = time.Hour }, nil)
	first := receiveFrom(t, seen, "the first attempt")
	after := s.killed()
	after.pass(time.Second)
	after.work(nil, nil)
	second := receiveFrom(t, seen, "the second attempt")
	free()
	stop()
	if r := after.next(); r.State != webhook.Delivered || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
	if second.id() != first.id() || second.body != first.body || second.header.Get("Webhook-Attempt") != "1" {
		t.Errorf("%v after %v", second, first)
	}
	if a, b := first.header.Get("Webhook-Timestamp"), second.header.Get("Webhook-Timestamp"); a == b {
		t.Errorf("both attempts were signed at %s", a)
	}
	if err := verifyStandard(whsec, second.header, []byte(second.body), after.now()); err != nil {
		t.Error(err)
	}
}

// A kill between the receiver's 200 and the commit that notes it costs one repeat and no event.
func TestFault04KilledBeforeFinish(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	finishing, killed := make(chan struct{}, 1), make(chan struct{})
	s.onFinish = func(_ context.Context, _ webhook.Delivery, r webhook.Result) error {
		if r.State != webhook.Delivered {
			t.Errorf("%+v", r)
		}
		finishing <- struct{}{}
		<-killed
		return fault.New(fault.Conflict, "killed")
	}
	stop := s.work(nil, nil)
	first := receiveFrom(t, seen, "the first attempt")
	receiveFrom(t, finishing, "its result")
	after := s.killed()
	close(killed)
	stop()
	after.work(nil, nil)
	again := receiveFrom(t, seen, "the repeat")
	if again.id() != first.id() || again.body != first.body {
		t.Errorf("%v after %v", again, first)
	}
	after.next()
	after.wantBacklog(0, 0)
	after.emit(after.event("later")) // what comes next is the next event, and not a third try
	if h := receiveFrom(t, seen, "the next event"); h.id() != "later" {
		t.Errorf("%v came", h)
	}
}

// Whatever the clock does, within an hour of it every event is delivered, each once but where a
// result could not be stored: no lease and no due time is beyond reach, and none is lost.
func TestFault08ClockJumps(t *testing.T) {
	t.Parallel()
	for name, jumps := range map[string][]time.Duration{
		"an hour on":          {time.Hour},
		"an hour back":        {-time.Hour},
		"back and on again":   {-time.Hour, time.Hour},
		"on and back again":   {time.Hour, -time.Hour},
		"on, again and again": {time.Hour, time.Hour, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { clockJumps(t, jumps) })
		})
	}
}

func clockJumps(t *testing.T, jumps []time.Duration) {
	q := newQueue()
	var ahead time.Duration
	now := func() time.Time {
		q.mu.Lock()
		defer q.mu.Unlock()
		return time.Now().Add(ahead)
	}
	q.onFinish = func(ctx context.Context, d webhook.Delivery) error {
		if d.ID%10 == 3 && d.Attempt == 1 { // as if killed: the lease alone brings it back
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second): // most jumps come while attempts are under way
		}
		if d.ID%4 == 0 && d.Attempt == 1 {
			return failed(d)
		}
		return taken(d)
	}, func(c *webhook.WorkerConfig) { c.Now = now })
	last := time.Now()
	for _, jump := range jumps {
		q.add("a", 20)
		time.Sleep(5 * time.Second)
		q.mu.Lock()
		ahead += jump
		q.mu.Unlock()
		last = time.Now()
	}
	q.add("a", 20)
	total := 20 * (len(jumps) + 1)
	for q.count(webhook.Delivered, "") < total && time.Since(last) < 2*time.Hour {
		time.Sleep(time.Second)
	}
	stop()
	if n := q.count(webhook.Delivered, ""); n != total || time.Since(last) > time.Hour+5*time.Minute {
		t.Errorf("%d of %d delivered %s after the last jump", n, total, time.Since(last))
	}
	for id := range total {
		if r := q.get(int64(id + 1)); len(r.tries) > 3 {
			t.Errorf("delivery %d took %d attempts", r.ID, len(r.tries))
		}
	}
}

// The same in the store: its notes of when something will be due must not outlive a jump.
func TestFault08ClockJumpsInStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.endpoint("e", "https://e.example", nil)
	now := s.now().UnixMilli()
	const hour = int64(time.Hour / time.Millisecond)
	claim := func(at int64) []webhook.Delivery {
		t.Helper()
		list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: at, Limit: 10, PerEndpoint: 4, Lease: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	settle := func(d webhook.Delivery, state webhook.DeliveryState, due int64) error {
		return s.Store.Finish(t.Context(), d, webhook.Result{State: state, DueMS: due, Try: webhook.Attempt{N: d.Attempt}})
	}
	s.emit(memory.Event{ID: "n", Type: event.Left, CreatedMS: now, Body: []byte("{}")})
	first := claim(now)
	if len(first) != 1 || len(claim(now+1000)) != 0 {
		t.Fatalf("claimed %v", first)
	}
	// Back by an hour: the claim still holds, its owner can end it, and a new event goes out at
	// once.
	if list := claim(now - hour); len(list) != 0 {
		t.Errorf("claimed %v while its lease runs", list)
	}
	s.emit(memory.Event{ID: "m", Type: event.Left, CreatedMS: now - hour, Body: []byte("{}")})
	second := claim(now - hour)
	if len(second) != 1 || second[0].EventID != "m" {
		t.Fatalf("claimed %v, want the new event", second)
	}
	if err := settle(second[0], webhook.Delivered, 0); err != nil {
		t.Error(err)
	}
	// On by an hour: the lease is over, and the slow owner's result is refused.
	third := claim(now + hour)
	if len(third) != 1 || third[0].Fence == first[0].Fence {
		t.Fatalf("claimed %v", third)
	}
	if err := settle(first[0], webhook.Delivered, 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("the late result: %v", err)
	}
	// Given back, it is due whatever the clock shows.
	if err := webhook.Release(t.Context(), s, third[0]); err != nil {
		t.Error(err)
	}
	fourth := claim(now)
	if len(fourth) != 1 {
		t.Fatal("not due after it was given back")
	}
	if err := settle(fourth[0], webhook.Pending, now+5000); err != nil {
		t.Error(err)
	}
	if list := claim(now - hour); len(list) != 0 {
		t.Errorf("a retry before its time: %v", list)
	}
	if list := claim(now + 5000); len(list) != 1 {
		t.Error("the retry is lost")
	}
}

// A stop with 10,000 deliveries waiting and some under way: those under way are let finish, the
// rest keep all their attempts.
func TestFault09StopWithBacklog(t *testing.T) {
	t.Parallel()
	const n, rounds = 10_000, 10
	hold := make(chan struct{})
	url, seen := hits(t, func(http.ResponseWriter, *http.Request) { <-hold })
	free := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(free)
	s := newSite(t)
	s.endpoint("e", url, nil)
	for r := range rounds {
		var list []memory.Event
		for i := range n / rounds {
			list = append(list, s.event(fmt.Sprintf("n%d-%d", r, i)))
		}
		s.emit(list...)
	}
	stop := s.work(nil, func(c *webhook.WorkerConfig) { c.Drain = faultPatience })
	for range webhook.DefaultPerEndpoint {
		receiveFrom(t, seen, "an attempt")
	}
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	free()
	receiveFrom(t, stopped, "the end")
	done := len(s.ended)
	if done < webhook.DefaultPerEndpoint {
		t.Errorf("%d of the attempts under way were noted", done)
	}
	s.wantBacklog(n-done, 0)
	list, err := webhook.ClaimFrom(t.Context(), s, webhook.Claim{NowMS: s.now().UnixMilli(), Limit: n, Lease: time.Minute})
	if err != nil || len(list) != n-done {
		t.Fatalf("%d due, want %d: %v", len(list), n-done, err)
	}
	for _, d := range list {
		if d.Attempt != 1 {
			t.Fatalf("%s has lost an attempt", d.EventID)
		}
	}
}

// A row that cannot be sent is dead with its reason; those before and behind it go.
func TestFault10BrokenRow(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSite(t)
	s.endpoint("e", url, nil)
	broken := s.event("broken")
	broken.Body = []byte{}
	s.emit(s.event("n1"), s.event("x\r\nX-Evil: 1"), broken, s.event("n2"))
	s.work(nil, nil)
	dead := 0
	for range 4 {
		if r := s.next(); r.State == webhook.Dead {
			dead++
			if !strings.HasPrefix(r.Reason, "cannot be sent: ") || r.Try.ErrorClass != webhook.ClassBroken {
				t.Errorf("%q: %+v", r.EventID, r.Result)
			}
		}
	}
	if dead != 2 || len(seen) != 2 {
		t.Errorf("%d dead, %d received", dead, len(seen))
	}
	for range 2 {
		if h := <-seen; !strings.HasPrefix(h.id(), "n") || h.header.Get("X-Evil") != "" {
			t.Errorf("%v", h.header)
		}
	}
	s.wantBacklog(0, 2)
}
