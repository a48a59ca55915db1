package webhooktest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

func testClaimGivesEverything(r rig) {
	e := endpoint("a")
	e.Secrets = []webhook.SigningSecret{{Value: "whsec_x"}}
	r.put(e)
	ev := event("e1", 103, 10)
	ev.Body = bytes.Repeat([]byte("{\x00\xff}"), 20_000) // whatever it is, it goes out as it came
	r.emit(ev)
	d := r.one(50)
	if d.ID == 0 || d.Fence == 0 {
		r.t.Errorf("delivery %d with fence %d", d.ID, d.Fence)
	}
	want := webhook.Delivery{
		ID: d.ID, EventID: "e1", Type: 103, Project: "acme", AgentID: r.agent.ID, Body: ev.Body, CreatedMS: 10, FirstDueMS: 10, Endpoint: e, Attempt: 1, Fence: d.Fence,
	}
	same(r.t, "delivery", d, want)
}

func testClaimOnce(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	same(r.t, "before it is due", names(r.claim(9, 10)), []string{})
	same(r.t, "when it is due", names(r.claim(10, 10)), []string{"e1>a"})
	same(r.t, "a second time", names(r.claim(10+lease.Milliseconds()-1, 10)), []string{})
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 10 + lease.Milliseconds()})
	if list := r.claim(100, 0); len(list) != 0 {
		r.t.Errorf("limit 0 gave %v", names(list))
	}
}

func testClaimOrder(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("late", 102, 30), event("early", 102, 10), event("middle", 102, 20))
	for _, d := range r.claim(5, 10) {
		r.t.Errorf("claimed %s before its time", d.EventID)
	}
	first := append(r.claim(40, 1), r.claim(40, 1)...) // what was stored first is due last
	same(r.t, "first two", names(first), []string{"early>a", "early>b"})
	for _, d := range first { // retries, due long before the first tries
		r.finish(d, webhook.Pending, 1)
	}
	rest := r.claim(40, 10)
	same(r.t, "first tries before retries", names(rest), []string{"middle>a", "middle>b", "late>a", "late>b", "early>a", "early>b"})
	if rest[4].Attempt != 2 || rest[0].Attempt != 1 {
		r.t.Errorf("attempts %d and %d", rest[4].Attempt, rest[0].Attempt)
	}
}

func testClaimPerEndpoint(r rig) {
	r.put(endpoint("a"), endpoint("b", 101))
	for i := range 6 {
		r.emit(event(fmt.Sprint("e", i), 102, int64(i)))
	}
	r.emit(event("x", 101, 100))
	first := r.claimPer(100, 10, 2)
	same(r.t, "two each", names(first), []string{"e0>a", "e1>a", "x>b"})
	same(r.t, "those in flight count", names(r.claimPer(101, 10, 2)), []string{})
	more, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 101, Limit: 10, PerEndpoint: 2, Lease: lease, Ended: func(e *webhook.Endpoint) int {
		// B has fewer than that in progress, and nothing more to send.
		return map[string]int{"a": 1, "b": 7}[e.ID]
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "but those whose attempts have ended do not", names(more), []string{"e2>a"})
	if err := webhook.Release(r.ctx, r.queue, more[0]); err != nil {
		r.t.Fatal(err)
	}
	r.finish(first[0], webhook.Delivered, 0)
	same(r.t, "a place is free", names(r.claimPer(102, 10, 2)), []string{"e2>a"})
	r.finish(first[1], webhook.Pending, 1_000_000) // waits for its retry: not in flight
	same(r.t, "a place is free again", names(r.claimPer(103, 10, 2)), []string{"e3>a"})
	after := 103 + lease.Milliseconds()
	same(r.t, "leases are over", names(r.claimPer(after, 10, 2)), []string{"e4>a", "e5>a", "x>b"})
	same(r.t, "with a higher cap", names(r.claimPer(after, 10, 3)), []string{"x>a"})
}

func testClaimRace(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	const events, workers = 100, 16
	for i := range events {
		r.emit(event(fmt.Sprint("e", i), 102, int64(i)))
	}
	var mu sync.Mutex
	seen := map[int64]int{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 1000, Limit: 7, Lease: lease})
				if err != nil {
					r.t.Error(err)
					return
				}
				if len(list) == 0 {
					return
				}
				mu.Lock()
				for _, d := range list {
					seen[d.ID]++
				}
				mu.Unlock()
				for _, d := range list {
					if err := r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Delivered, Try: webhook.Attempt{N: d.Attempt}}); err != nil {
						r.t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != 2*events {
		r.t.Errorf("%d deliveries of %d claimed", len(seen), 2*events)
	}
	for id, n := range seen {
		if n != 1 {
			r.t.Errorf("delivery %d claimed %d times", id, n)
		}
	}
	r.wantBacklog(webhook.Backlog{})
}

func testLeaseExpires(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	first := r.one(10)
	again := r.one(10 + lease.Milliseconds())
	if again.ID != first.ID || again.Attempt != 2 || again.Fence <= first.Fence || !bytes.Equal(again.Body, first.Body) {
		r.t.Errorf("after the lease: %+v, first %+v", again, first)
	}
}

func testStaleFence(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	stale := r.one(10)
	d := r.one(10 + lease.Milliseconds())
	result := webhook.Result{State: webhook.Delivered, Try: webhook.Attempt{N: 1}}
	code(r.t, r.queue.Finish(r.ctx, stale, result), fault.Conflict)
	code(r.t, webhook.Release(r.ctx, r.queue, stale), fault.Conflict)
	if list, err := r.attempts("e1"); err != nil || len(list) != 0 {
		r.t.Errorf("a refused finish stored %v, %v", list, err)
	}
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 10 + 2*lease.Milliseconds()})
	r.finish(d, webhook.Delivered, 0)
	code(r.t, r.queue.Finish(r.ctx, d, result), fault.Conflict)
	code(r.t, webhook.Release(r.ctx, r.queue, d), fault.Conflict)
	unknown := d
	unknown.ID += 1000
	code(r.t, r.queue.Finish(r.ctx, unknown, result), fault.Conflict)
	code(r.t, webhook.Release(r.ctx, r.queue, unknown), fault.Conflict)
}

func testFinishDelivered(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	r.finish(r.one(10), webhook.Delivered, 0)
	same(r.t, "claimed", names(r.claim(1<<40, 10)), []string{})
	r.wantBacklog(webhook.Backlog{})
}

func testFinishRetries(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	r.finish(r.one(10), webhook.Pending, 500)
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 500})
	same(r.t, "before it is due again", names(r.claim(499, 10)), []string{})
	if d := r.one(500); d.Attempt != 2 {
		r.t.Errorf("attempt %d", d.Attempt)
	}
}

func testFinishDead(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	err := r.queue.Finish(r.ctx, r.one(10), webhook.Result{State: webhook.Dead, Reason: "too old", Try: webhook.Attempt{N: 1}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.wantBacklog(webhook.Backlog{Dead: 1})
	same(r.t, "claimed", names(r.claim(1<<40, 10)), []string{})
}

func testFinishDisablesEndpoint(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 102, 10))
	list := r.claim(10, 10)
	err := r.queue.Finish(r.ctx, list[0], webhook.Result{State: webhook.Dead, Reason: "410", AtMS: 50, Try: webhook.Attempt{N: 1, Status: 410, ErrorClass: webhook.Class4xx}, DisableEndpoint: "it answered 410"})
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.queue.Endpoints(r.ctx, "acme", "")
	if err != nil {
		r.t.Fatal(err)
	}
	a := endpoint("a")
	a.Disabled, a.DisabledWhy, a.DisabledMS, a.FirstFailureMS, a.LastFailureMS, a.Rev = true, "it answered 410", 50, 50, 50, 1
	same(r.t, "endpoints", got, []webhook.Endpoint{a, endpoint("b")})
	r.emit(event("e2", 102, 20))
	same(r.t, "claimed", names(r.claim(100, 10)), []string{"e2>b"})
}

func testFinishAfterDeletion(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	d := r.one(10)
	if err := r.queue.DeleteEndpoint(r.ctx, "acme", "a"); err != nil {
		r.t.Fatal(err)
	}
	code(r.t, r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Pending, DueMS: 20, Try: webhook.Attempt{N: 1}}), fault.Conflict)
	r.wantBacklog(webhook.Backlog{Dead: 1})
}

func testRelease(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	d := r.one(10)
	if err := webhook.Release(r.ctx, r.queue, d); err != nil {
		r.t.Fatal(err)
	}
	again := r.one(11)
	if again.Attempt != 1 || again.Fence <= d.Fence {
		r.t.Errorf("after release: attempt %d, fence %d after %d", again.Attempt, again.Fence, d.Fence)
	}
	code(r.t, webhook.Release(r.ctx, r.queue, d), fault.Conflict)
	r.finish(again, webhook.Pending, 50)
	third := r.one(50)
	if err := webhook.Release(r.ctx, r.queue, third); err != nil {
		r.t.Fatal(err)
	}
	if d := r.one(51); d.Attempt != 2 {
		r.t.Errorf("attempt %d after a released second", d.Attempt)
	}
}

func testAttempts(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 102, 10), event("e2", 102, 10))
	try := webhook.Attempt{N: 1, StartedMS: 100, DurationMS: 20, Status: 503, ErrorClass: "status", Error: "503 Service Unavailable", Response: []byte("busy\x00\xff")}
	second := webhook.Attempt{N: 2, StartedMS: 300, DurationMS: 5, Status: 200}
	long := webhook.Attempt{N: 1, StartedMS: 200, Status: 500, Response: bytes.Repeat([]byte("x"), webhook.MaxResponse+1)}
	list := r.claim(10, 2)
	for i, res := range []webhook.Result{{State: webhook.Pending, DueMS: 20, Try: try}, {State: webhook.Pending, DueMS: 1 << 40, Try: long}} {
		if err := r.queue.Finish(r.ctx, list[i], res); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, d := range r.claim(30, 10) { // e2's and the retry
		if d.EventID == "e1" {
			if err := r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Delivered, Try: second}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	long.Response, long.Truncated = long.Response[:webhook.MaxResponse], true
	got, err := r.attempts("e1")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "attempts", got, []webhook.Attempt{try, second, long})
	if got, err := r.attempts("unknown"); err != nil || len(got) != 0 {
		r.t.Errorf("attempts of nothing: %v, %v", got, err)
	}
}

func testBacklog(r rig) {
	r.wantBacklog(webhook.Backlog{})
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 102, 30), event("e2", 102, 20))
	r.wantBacklog(webhook.Backlog{Pending: 4, OldestDue: 20})
	list := r.claim(25, 10)
	r.finish(list[0], webhook.Delivered, 0)
	r.finish(list[1], webhook.Dead, 0)
	r.wantBacklog(webhook.Backlog{Pending: 2, Dead: 1, OldestDue: 30})
}

func testSweepWaitsForPending(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	err := r.store.Update(r.ctx, "acme", r.agent.ID, func(tx memory.AgentView) (memory.Change, error) {
		a := *tx.Head().Agent
		a.Status, a.StopMS, a.Rev = memory.Stopped, 5, 2
		return memory.Change{Agent: &a, Events: []memory.Event{event("e1", 102, 5)}}, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	sweep := func(want int) {
		r.t.Helper()
		if n, err := r.store.Sweep(r.ctx, 1000, 10); err != nil || n != want {
			r.t.Fatalf("swept %d, want %d: %v", n, want, err)
		}
	}
	sweep(0)
	list := r.claim(10, 10)
	sweep(0)
	r.finish(list[0], webhook.Delivered, 0)
	sweep(0)
	r.finish(list[1], webhook.Dead, 0)
	r.wantBacklog(webhook.Backlog{Dead: 1})
	sweep(1)
	r.wantBacklog(webhook.Backlog{})
	if got, err := r.attempts("e1"); err != nil || len(got) != 0 {
		r.t.Errorf("attempts of an erased agent: %v, %v", got, err)
	}
}

// testErasePending checks that nothing of an erased agent is sent any more, not even claimed
// deliveries, and that its neighbours' deliveries stay.
func testErasePending(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	other := r.agent
	other.ID, other.Name = "0191-other", "two"
	if _, _, err := r.store.Create(r.ctx, other, 0, memory.Change{Events: []memory.Event{event("theirs", 101, 5)}}); err != nil {
		r.t.Fatal(err)
	}
	r.emit(event("e1", 102, 5), event("e2", 103, 6))
	var tried, claimed webhook.Delivery
	for _, d := range r.claim(10, 10) {
		switch {
		case d.EventID == "e1" && tried.ID == 0:
			tried = d
			r.finish(d, webhook.Pending, 11)
		case d.EventID == "e2" && claimed.ID == 0:
			claimed = d
		case d.EventID == "theirs":
			r.finish(d, webhook.Pending, 11)
		default:
			r.finish(d, webhook.Delivered, 0)
		}
	}
	if err := r.store.Erase(r.ctx, "acme", r.agent.ID); err != nil {
		r.t.Fatal(err)
	}
	if err := r.queue.Finish(r.ctx, claimed, webhook.Result{State: webhook.Delivered, AtMS: 12}); !fault.Is(err, fault.Conflict) {
		r.t.Errorf("finishing what was erased: %v", err)
	}
	for _, d := range r.claim(1<<40, 10) {
		if d.EventID != "theirs" {
			r.t.Errorf("%s of the erased agent is still sent", d.EventID)
		}
	}
	if list := r.list(webhook.DeliveryQuery{Project: "acme", Limit: 10}); len(list) != 2 {
		r.t.Errorf("%d deliveries are left, want the other agent's 2", len(list))
	}
	if got, err := r.attempts("e1"); err != nil || len(got) != 0 {
		r.t.Errorf("attempts of an erased agent: %v, %v", got, err)
	}
}

// testManyEvents mixes retries, new events and expired leases, and expects everything to be
// delivered in the end.
func testManyEvents(r rig) {
	r.put(endpoint("a"), endpoint("b", 102), endpoint("c", 101))
	const events = 60
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range events {
			r.emit(event(fmt.Sprint("e", i), 101+i%2, int64(i)))
		}
	})
	delivered := map[string]int{}
	step := 0
	for now, quiet := int64(1000), 0; quiet < 3; now += 1000 {
		list := r.claimPer(now, 5, 3)
		for _, d := range list {
			step += 1 + int(d.ID)%2
			switch step % 5 {
			case 0:
				r.finish(d, webhook.Pending, now+500)
			case 1:
				if err := webhook.Release(r.ctx, r.queue, d); err != nil {
					r.t.Fatal(err)
				}
			case 2: // forgotten: its lease ends
			default:
				r.finish(d, webhook.Delivered, 0)
				delivered[names([]webhook.Delivery{d})[0]]++
			}
		}
		if len(list) > 0 {
			quiet = 0
			continue
		}
		wg.Wait()
		b, err := r.queue.Backlog(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		if b.Pending == 0 {
			quiet++
		} else {
			quiet, now = 0, max(now, b.OldestDue)
		}
	}
	if len(delivered) != events+events {
		r.t.Errorf("%d deliveries of %d arrived", len(delivered), 2*events)
	}
	for name, n := range delivered {
		if n != 1 {
			r.t.Errorf("%s was delivered %d times", name, n)
		}
	}
}

func testClosed(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	d := r.one(10)
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	_, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 100, Limit: 1, Lease: lease})
	code(r.t, err, fault.Unavailable)
	code(r.t, r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Delivered}), fault.Unavailable)
	code(r.t, webhook.Release(r.ctx, r.queue, d), fault.Unavailable)
	code(r.t, webhook.PutEndpoint(r.ctx, r.queue, endpoint("b")), fault.Unavailable)
	code(r.t, r.queue.DeleteEndpoint(r.ctx, "acme", "a"), fault.Unavailable)
	_, err = r.queue.Backlog(r.ctx)
	code(r.t, err, fault.Unavailable)
	_, err = r.attempts("e1")
	code(r.t, err, fault.Unavailable)
	_, err = r.queue.Endpoints(r.ctx, "", "")
	code(r.t, err, fault.Unavailable)
}
