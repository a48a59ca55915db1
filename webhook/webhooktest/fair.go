package webhooktest

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// testReplayNamed checks that calls with one name act once, and that names of different projects
// are independent.
func testReplayNamed(r rig) {
	other := endpoint("b")
	other.Project = "other"
	r.put(endpoint("a"), other)
	r.emit(event("e1", 102, 10), event("e2", 102, 20))
	for _, d := range r.claim(20, 10) {
		r.finish(d, webhook.Delivered, 0)
	}
	first := r.list(webhook.DeliveryQuery{EventID: "e1"})[0]
	one, err := r.queue.Replay(r.ctx, "acme", first.ID, 30, "k")
	if err != nil {
		r.t.Fatal(err)
	}
	again, err := r.queue.Replay(r.ctx, "acme", first.ID, 40, "k")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "again", again, one)
	_, err = r.queue.Replay(r.ctx, "acme", r.list(webhook.DeliveryQuery{EventID: "e2"})[0].ID, 40, "k")
	code(r.t, err, fault.Conflict)
	if two, err := r.queue.Replay(r.ctx, "acme", first.ID, 40, "l"); err != nil || two.ID == one.ID {
		r.t.Errorf("of another name: %+v, %v", two, err)
	}
	all := webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme", EventID: "e2"}, NowMS: 50, Name: "m"}
	for range 3 {
		got, err := r.queue.ReplayAll(r.ctx, all)
		if err != nil {
			r.t.Fatal(err)
		}
		same(r.t, "all", got, webhook.Replayed{Count: 1})
		all.NowMS++
	}
	if n := len(r.list(webhook.DeliveryQuery{EventID: "e2"})); n != 2 {
		r.t.Errorf("%d deliveries of what was replayed once by a name", n)
	}
	for _, wrong := range []webhook.Replay{
		{Filter: webhook.DeliveryQuery{Project: "acme", EventID: "e1"}, NowMS: 60, Name: "m"},
		{Filter: all.Filter, NowMS: 60, PerSecond: 1, Name: "m"}, {Filter: all.Filter, NowMS: 60, Name: "k"},
	} {
		_, err := r.queue.ReplayAll(r.ctx, wrong)
		code(r.t, err, fault.Conflict)
	}
	elsewhere, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "other"}, NowMS: 60, Name: "m"})
	if err != nil || elsewhere.Count != 0 {
		r.t.Errorf("in another project: %+v, %v", elsewhere, err)
	}
	// Names are dropped together with rows of their time.
	if _, err := r.queue.ForgetDone(r.ctx, 1000, false); err != nil {
		r.t.Fatal(err)
	}
	if got, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme", EventID: "e1"}, NowMS: 1000, Name: "m"}); err != nil {
		r.t.Errorf("a forgotten name: %+v, %v", got, err)
	}
}

// testReplayPaced wants each of a paced replay to be as old as the time since its own turn.
func testReplayPaced(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10), event("e2", 102, 20), event("e3", 102, 30))
	for _, d := range r.claim(30, 10) {
		r.finish(d, webhook.Delivered, 0)
	}
	if _, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme"}, NowMS: 1000, PerSecond: 1}); err != nil {
		r.t.Fatal(err)
	}
	for i := range 3 {
		due := int64(1000 + 1000*i)
		d := r.one(due)
		if d.FirstDueMS != due {
			r.t.Errorf("number %d was first due at %d, want %d", i, d.FirstDueMS, due)
		}
		r.finish(d, webhook.Pending, due+500)
		if d = r.one(due + 500); d.FirstDueMS != due || d.Attempt != 2 {
			r.t.Errorf("its retry: %+v", d)
		}
		r.finish(d, webhook.Delivered, 0)
	}
}

// testTestsFirst wants tests to go before what waits, beside every limit but their own.
func testTestsFirst(r rig) {
	r.put(endpoint("a"), endpoint("b"), endpoint("off"))
	for i := range 50 {
		r.emit(event(fmt.Sprint("e", i), 102, 10))
	}
	test := func(id, to string) {
		r.t.Helper()
		if _, err := r.queue.Send(r.ctx, webhook.Event{ID: id, Type: eventtype.Test, Project: "acme", CreatedMS: 20, Body: []byte("{}")}, to); err != nil {
			r.t.Fatal(err)
		}
	}
	claim := func(c webhook.Claim) []webhook.Delivery {
		r.t.Helper()
		c.NowMS, c.Lease = 30, lease
		list, err := webhook.ClaimFrom(r.ctx, r.queue, c)
		if err != nil {
			r.t.Fatal(err)
		}
		return list
	}
	none := func(*webhook.Endpoint) int { return 0 }
	test("t1", "a")
	test("t2", "b")
	test("t3", "off")
	off := endpoint("off")
	off.Disabled = true
	r.put(off)
	got := claim(webhook.Claim{Urgent: 1, Room: none})
	same(r.t, "one test", names(got), []string{"t1>a"})
	if !got[0].Urgent || got[0].Attempt != 1 {
		r.t.Errorf("%+v", got[0])
	}
	got = claim(webhook.Claim{Limit: 1, Urgent: 4, PerEndpoint: 1, Room: func(e *webhook.Endpoint) int { return map[string]int{"b": 1}[e.ID] }})
	same(r.t, "the other, and one beside it", names(got), []string{"t2>b", "e0>b"})
	if got[1].Urgent {
		r.t.Error("an ordinary delivery was taken beside the limit")
	}
	same(r.t, "no more", names(claim(webhook.Claim{Urgent: 4, Room: none})), []string{})
	// A test that failed is like any other.
	d := got[0]
	r.finish(d, webhook.Pending, 30)
	same(r.t, "a retry", names(claim(webhook.Claim{Urgent: 4, Room: none})), []string{})
	// Tests of one endpoint do not delay another endpoint's: two of each go before the rest.
	for i := range 5 {
		test(fmt.Sprint("m", i), "a")
	}
	same(r.t, "many", names(claim(webhook.Claim{Urgent: 4, Room: none})), []string{"m0>a", "m1>a"})
	off.Disabled = false
	r.put(off)
	if got := names(claim(webhook.Claim{Limit: 1000})); len(got) != 50*3-1+5 {
		r.t.Errorf("%d are left: %v", len(got), got)
	}
}

// testUntried checks that a delivery that ended before its attempt records none.
func testUntried(r rig) {
	r.put(endpoint("a"), endpoint("b", eventtype.DeliveryDead))
	r.emit(event("e1", 102, 10))
	d := r.one(10)
	err := r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Dead, Reason: "too old", AtMS: 70, Untried: true})
	if err != nil {
		r.t.Fatal(err)
	}
	got, tries, err := r.queue.Delivery(r.ctx, "acme", d.ID)
	if err != nil || got.State != webhook.Dead || got.Attempt != 0 || got.Reason != "too old" || got.DoneMS != 70 || len(tries) != 0 {
		r.t.Errorf("%+v, %+v, %v", got, tries, err)
	}
	e, err := webhook.FindEndpoint(r.ctx, r.queue, "acme", "a")
	if err != nil || e.FirstFailureMS != 0 {
		r.t.Errorf("%+v, %v", e, err)
	}
	told := r.one(80)
	if told.Type != eventtype.DeliveryDead || told.Endpoint.ID != "b" || !strings.Contains(string(told.Body), `"attempts":0`) {
		r.t.Errorf("%+v, %s", told, told.Body)
	}
}

// testReplayNamedAtOnce checks that concurrent calls with one name, as from a caller that retries,
// create each delivery once.
func testReplayNamedAtOnce(r rig) {
	const events, calls = 1300, 4 // of several slices
	r.put(endpoint("a"))
	var list []memory.Event
	for i := range events {
		list = append(list, event(fmt.Sprint("e", i), 102, int64(i+1)))
	}
	r.emit(list...)
	all := webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme", ToMS: 5000}, NowMS: 10_000, Name: "n"}
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			r := r
			all := all
			all.NowMS += int64(i)
			got, err := r.queue.ReplayAll(r.ctx, all)
			if err != nil || got.Count != events {
				r.t.Errorf("call %d: %+v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if b, err := r.queue.Backlog(r.ctx); err != nil || b.Pending != 2*events {
		r.t.Errorf("%+v wait, want %d (%v)", b, 2*events, err)
	}
}

// testClaimFair checks that endpoints with the fewest attempts in progress go first.
func testClaimFair(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	for i := range 3 {
		r.emit(event(fmt.Sprint("e", i), 102, int64(i)))
	}
	list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 100, Limit: 4, Lease: lease, Busy: func(e *webhook.Endpoint) (project, own int) {
		if e.Project != "acme" {
			r.t.Errorf("asked of %+v", e)
		}
		return 2, map[string]int{"a": 2}[e.ID]
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "claimed", names(list), []string{"e0>b", "e1>b", "e0>a", "e2>b"})
}

// testClaimAllow checks that each claim takes only what it is allowed.
func testClaimAllow(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	for i := range 4 {
		r.emit(event(fmt.Sprint("e", i), 102, int64(i)))
	}
	for i, want := range []int{2, 2, 2, 2, 0} {
		asked, left := 0, 2
		list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 100, Limit: 8, Lease: lease, Allow: func(e *webhook.Endpoint) bool {
			if asked++; e.Project != "acme" {
				r.t.Errorf("asked of %+v", e)
			}
			left--
			return left >= 0
		}})
		if err != nil || len(list) != want || asked < want {
			r.t.Errorf("claim %d: %d, asked %d times, want %d: %v", i, len(list), asked, want, err)
		}
	}
}

// testClaimBytes wants one claim to read no more than it says, but always something.
func testClaimBytes(r rig) {
	r.put(endpoint("a"))
	for i, n := range []int{10, 3000, 400, 400, 400, 10} {
		e := event(fmt.Sprint("e", i), 102, int64(i))
		e.Body = []byte(`"` + strings.Repeat("x", n-2) + `"`)
		r.emit(e)
	}
	for _, want := range [][]string{{"e0>a"}, {"e1>a"}, {"e2>a", "e3>a"}, {"e4>a", "e5>a"}, {}} {
		list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: 100, Limit: 10, Lease: lease, Bytes: 1000})
		if err != nil {
			r.t.Fatal(err)
		}
		same(r.t, "claimed", names(list), want)
		for _, d := range list {
			if want := map[string]int{"e0": 10, "e1": 3000, "e5": 10}[d.EventID]; len(d.Body) != cmp.Or(want, 400) {
				r.t.Errorf("%s has a body of %d bytes", d.EventID, len(d.Body))
			}
		}
	}
}

// testForgetAgentless checks that rows of agents are kept when only rows without an agent are to be
// erased.
func testForgetAgentless(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	if _, err := r.queue.Send(r.ctx, webhook.Event{ID: "t1", Type: eventtype.Test, Project: "acme", CreatedMS: 10, Body: []byte("{}")}, "a"); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range r.claim(10, 10) {
		if err := r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Delivered, AtMS: 20, Try: webhook.Attempt{N: 1}}); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		before int64
		all    bool
		want   int
		left   []string
	}{{20, false, 0, []string{"t1>a", "e1>a"}}, {21, false, 1, []string{"e1>a"}}, {21, true, 1, []string{}}} {
		n, err := r.queue.ForgetDone(r.ctx, tt.before, !tt.all)
		if err != nil || n != tt.want {
			r.t.Errorf("forgot %d, want %d: %v", n, tt.want, err)
		}
		same(r.t, "left", shown(r.list(webhook.DeliveryQuery{})), tt.left)
	}
}
