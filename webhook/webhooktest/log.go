package webhooktest

import (
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

func (r rig) list(q webhook.DeliveryQuery) []webhook.Record {
	r.t.Helper()
	q.Project = "acme"
	if q.Limit == 0 {
		q.Limit = 100
	}
	page, err := r.queue.Deliveries(r.ctx, q)
	if err != nil {
		r.t.Fatalf("list deliveries: %v", err)
	}
	return page.Deliveries
}

// shown returns records as "event>endpoint".
func shown(list []webhook.Record) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d.EventID+">"+d.EndpointID)
	}
	return out
}

func testDeliveries(r rig) {
	r.put(endpoint("a"), endpoint("b", 102))
	r.emit(event("e1", 101, 10), event("e2", 102, 20), event("e3", 102, 30))
	list := r.claim(20, 10) // e1>a, e2>a, e2>b
	try := webhook.Attempt{N: 1, StartedMS: 40, DurationMS: 2, Status: 500, ErrorClass: webhook.Class5xx}
	for _, d := range list {
		res := webhook.Result{State: webhook.Delivered, AtMS: 50, Try: webhook.Attempt{N: 1, Status: 200}}
		if d.Endpoint.ID == "b" {
			res = webhook.Result{State: webhook.Dead, Reason: "why", AtMS: 60, Try: try}
		}
		if err := r.queue.Finish(r.ctx, d, res); err != nil {
			r.t.Fatal(err)
		}
	}
	same(r.t, "all", shown(r.list(webhook.DeliveryQuery{})), []string{"e3>b", "e3>a", "e2>b", "e2>a", "e1>a"})
	for what, tt := range map[string]struct {
		q    webhook.DeliveryQuery
		want []string
	}{
		"endpoint":  {webhook.DeliveryQuery{Endpoint: "b"}, []string{"e3>b", "e2>b"}},
		"state":     {webhook.DeliveryQuery{States: []webhook.DeliveryState{webhook.Delivered}}, []string{"e2>a", "e1>a"}},
		"states":    {webhook.DeliveryQuery{States: []webhook.DeliveryState{webhook.Dead, webhook.Pending}}, []string{"e3>b", "e3>a", "e2>b"}},
		"type":      {webhook.DeliveryQuery{Types: []int{101}}, []string{"e1>a"}},
		"agent":     {webhook.DeliveryQuery{AgentID: r.agent.ID, Endpoint: "a"}, []string{"e3>a", "e2>a", "e1>a"}},
		"no agent":  {webhook.DeliveryQuery{AgentID: "nobody"}, []string{}},
		"event":     {webhook.DeliveryQuery{EventID: "e2"}, []string{"e2>b", "e2>a"}},
		"from":      {webhook.DeliveryQuery{FromMS: 20}, []string{"e3>b", "e3>a", "e2>b", "e2>a"}},
		"to":        {webhook.DeliveryQuery{ToMS: 20}, []string{"e1>a"}},
		"between":   {webhook.DeliveryQuery{FromMS: 20, ToMS: 30, States: []webhook.DeliveryState{webhook.Dead}}, []string{"e2>b"}},
		"no result": {webhook.DeliveryQuery{Endpoint: "unknown"}, []string{}},
	} {
		same(r.t, what, shown(r.list(tt.q)), tt.want)
	}
	dead := r.list(webhook.DeliveryQuery{States: []webhook.DeliveryState{webhook.Dead}})[0]
	same(r.t, "dead", dead, webhook.Record{
		ID: dead.ID, EventID: "e2", Type: 102, Project: "acme", AgentID: r.agent.ID, EndpointID: "b", State: webhook.Dead, Attempt: 1, EventMS: 20,
		CreatedMS: 20, DoneMS: 60, Reason: "why", Size: len(event("e2", 102, 20).Body), LastStatus: 500, LastClass: webhook.Class5xx,
	})
	one, tries, err := r.queue.Delivery(r.ctx, "acme", dead.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "one", one, dead)
	same(r.t, "its attempts", tries, []webhook.Attempt{try})
	_, _, err = r.queue.Delivery(r.ctx, "other", dead.ID)
	code(r.t, err, fault.NotFound)
	_, _, err = r.queue.Delivery(r.ctx, "acme", 1<<40)
	code(r.t, err, fault.NotFound)
	if list, err := r.queue.Deliveries(r.ctx, webhook.DeliveryQuery{Project: "other", EventID: "e1", Limit: 10}); err != nil || len(list.Deliveries) != 0 {
		r.t.Errorf("another project sees %v, %v", list, err)
	}
}

func testDeliveriesPaged(r rig) {
	r.put(endpoint("a"), endpoint("b"), endpoint("c", 102))
	const events = 150
	for i := range events {
		r.emit(event(fmt.Sprint("e", i), 101+i%2, int64(i/4))) // several at one time
	}
	all := shown(r.list(webhook.DeliveryQuery{Limit: webhook.MaxPage}))
	if len(all) != 2*events+events/2 {
		r.t.Fatalf("%d deliveries listed", len(all))
	}
	for _, q := range []webhook.DeliveryQuery{{Limit: 7}, {Limit: 100}, {Limit: 60, Types: []int{102}}, {Limit: 75, Endpoint: "c"}} {
		want := shown(r.list(webhook.DeliveryQuery{Limit: webhook.MaxPage, Types: q.Types, Endpoint: q.Endpoint}))
		var got []string
		for q.Project = "acme"; ; {
			page, err := r.queue.Deliveries(r.ctx, q)
			if err != nil {
				r.t.Fatal(err)
			}
			got = append(got, shown(page.Deliveries)...)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
			if len(page.Deliveries) != q.Limit {
				r.t.Fatalf("a page of %d with a next one", len(page.Deliveries))
			}
		}
		same(r.t, fmt.Sprintf("in pages of %d", q.Limit), got, want)
	}
	for _, bad := range []string{"x", "1", "-1-2", "1-2-3", "99999999999999999999-1"} {
		_, err := r.queue.Deliveries(r.ctx, webhook.DeliveryQuery{Project: "acme", Limit: 1, Cursor: bad})
		code(r.t, err, fault.Invalid)
		_, err = r.queue.Events(r.ctx, webhook.EventQuery{Project: "acme", Limit: 1, Cursor: bad})
		code(r.t, err, fault.Invalid)
	}
}

func testEvents(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 101, 10), event("e2", 102, 20), event("e3", 102, 20))
	ids := func(q webhook.EventQuery) ([]string, string) {
		q.Project = "acme"
		page, err := r.queue.Events(r.ctx, q)
		if err != nil {
			r.t.Fatal(err)
		}
		out := []string{}
		for _, e := range page.Events {
			out = append(out, e.ID)
		}
		return out, page.Next
	}
	got, next := ids(webhook.EventQuery{Limit: 2})
	same(r.t, "first page", got, []string{"e3", "e2"})
	got, next = ids(webhook.EventQuery{Limit: 2, Cursor: next})
	same(r.t, "second page", append(got, next), []string{"e1", ""})
	got, _ = ids(webhook.EventQuery{Limit: 9, Types: []int{101}})
	same(r.t, "by type", got, []string{"e1"})
	got, _ = ids(webhook.EventQuery{Limit: 9, FromMS: 20, AgentID: r.agent.ID})
	same(r.t, "by time and agent", got, []string{"e3", "e2"})
	got, _ = ids(webhook.EventQuery{Limit: 9, AgentID: "nobody"})
	same(r.t, "of nobody", got, []string{})
	for _, project := range []string{"acme", ""} {
		one, err := r.queue.Event(r.ctx, project, "e2")
		if err != nil {
			r.t.Fatal(err)
		}
		body := event("e2", 102, 20).Body
		same(r.t, "one", one, webhook.Event{ID: "e2", Type: 102, Project: "acme", AgentID: r.agent.ID, CreatedMS: 20, Size: len(body), Body: body})
	}
	_, err := r.queue.Event(r.ctx, "other", "e2")
	code(r.t, err, fault.NotFound)
	_, err = r.queue.Event(r.ctx, "acme", "unknown")
	code(r.t, err, fault.NotFound)
}

// testReplay checks that each replay sends the same bytes again and counts its attempts from 1.
func testReplay(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	first := r.one(10)
	// While it is pending.
	if _, err := r.queue.Replay(r.ctx, "acme", first.ID, 20, ""); err != nil {
		r.t.Fatal(err)
	}
	r.finish(first, webhook.Dead, 0)
	for range 2 {
		if _, err := r.queue.Replay(r.ctx, "acme", first.ID, 30, ""); err != nil {
			r.t.Fatal(err)
		}
	}
	list := r.claim(30, 10)
	same(r.t, "claimed", names(list), []string{"e1>a", "e1>a", "e1>a"})
	for i, d := range list {
		want := first
		want.ID, want.Fence, want.FirstDueMS = d.ID, d.Fence, 30
		if i == 0 {
			want.FirstDueMS = 20
		}
		want.Endpoint.FirstFailureMS, want.Endpoint.LastFailureMS = 1, 1 // of the first
		same(r.t, "replay", d, want)
	}
	got, _, err := r.queue.Delivery(r.ctx, "acme", list[2].ID)
	if err != nil || got.ReplayOf != first.ID || got.CreatedMS != 30 || got.EventMS != 10 {
		r.t.Errorf("replay is %+v, %v", got, err)
	}
	r.finish(list[0], webhook.Delivered, 0)
	again, err := r.queue.Replay(r.ctx, "acme", list[0].ID, 40, "") // a delivered one
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "claimed", names(r.claim(40, 10)), []string{"e1>a"})
	_, err = r.queue.Replay(r.ctx, "other", first.ID, 40, "")
	code(r.t, err, fault.NotFound)
	if err := r.queue.DeleteEndpoint(r.ctx, "acme", "a"); err != nil {
		r.t.Fatal(err)
	}
	r.put(endpoint("a")) // not the one that it was for
	_, err = r.queue.Replay(r.ctx, "acme", again.ID, 50, "")
	code(r.t, err, fault.Conflict)
	if n := len(r.list(webhook.DeliveryQuery{Endpoint: "a"})); n != 5 {
		r.t.Errorf("%d deliveries of the deleted endpoint are listed, want 5", n)
	}
}

func testReplayAll(r rig) {
	r.put(endpoint("a"), endpoint("b"), endpoint("gone"))
	const events = 600 // more than a slice
	for i := range events {
		r.emit(event(fmt.Sprint("e", i), 101+i%2, int64(i)))
	}
	if err := r.queue.DeleteEndpoint(r.ctx, "acme", "gone"); err != nil {
		r.t.Fatal(err)
	}
	for left := 2 * events; left > 0; {
		for _, d := range r.claim(events, 500) {
			r.finish(d, webhook.Delivered, 0)
			left--
		}
	}
	replay := func(f webhook.DeliveryQuery, perSecond float64, dry bool) webhook.Replayed {
		r.t.Helper()
		f.Project = "acme"
		got, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: f, NowMS: 10_000, PerSecond: perSecond, DryRun: dry})
		if err != nil {
			r.t.Fatal(err)
		}
		return got
	}
	filter := webhook.DeliveryQuery{Endpoint: "a", Types: []int{102}}
	same(r.t, "dry run", replay(filter, 0, true), webhook.Replayed{Count: events / 2})
	r.wantBacklog(webhook.Backlog{Dead: events})
	same(r.t, "replay", replay(filter, 100, false), webhook.Replayed{Count: events / 2})
	r.wantBacklog(webhook.Backlog{Pending: events / 2, Dead: events, OldestDue: 10_000})
	if n := len(r.claim(10_000+990, 1000)); n != 100 {
		r.t.Errorf("%d deliveries became due in the first second, want 100", n)
	}
	// What was replayed already is there twice, and is sent once.
	same(r.t, "again", replay(filter, 0, false), webhook.Replayed{Count: events / 2})
	same(r.t, "nothing", replay(webhook.DeliveryQuery{Endpoint: "gone"}, 0, false), webhook.Replayed{})
	same(r.t, "other project", func() webhook.Replayed {
		got, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "other", AgentID: r.agent.ID}, NowMS: 1})
		if err != nil {
			r.t.Fatal(err)
		}
		return got
	}(), webhook.Replayed{})
}

func testCancel(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10), event("e2", 102, 20))
	flying := r.one(10)
	waiting := r.list(webhook.DeliveryQuery{EventID: "e2"})[0]
	for _, id := range []int64{flying.ID, waiting.ID} {
		got, err := r.queue.Cancel(r.ctx, "acme", id, 30)
		if err != nil {
			r.t.Fatal(err)
		}
		if got.State != webhook.Canceled || got.Reason != webhook.CanceledReason || got.DoneMS != 30 || got.Claimed {
			r.t.Errorf("canceled: %+v", got)
		}
		_, err = r.queue.Cancel(r.ctx, "acme", id, 40)
		code(r.t, err, fault.Conflict)
	}
	_, err := r.queue.Cancel(r.ctx, "other", waiting.ID, 40)
	code(r.t, err, fault.NotFound)
	code(r.t, r.queue.Finish(r.ctx, flying, webhook.Result{State: webhook.Pending, DueMS: 20, Try: webhook.Attempt{N: 1}}), fault.Conflict)
	same(r.t, "claimed", names(r.claim(1<<40, 10)), []string{})
	r.wantBacklog(webhook.Backlog{})
	if _, err := r.queue.Replay(r.ctx, "acme", waiting.ID, 50, ""); err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "replayed", names(r.claim(50, 10)), []string{"e2>a"})
}

func testSend(r rig) {
	r.put(endpoint("a", 101), endpoint("b"))
	ev := webhook.Event{ID: "t1", Type: eventtype.Test, Project: "acme", CreatedMS: 10, Body: []byte("{}")}
	got, err := r.queue.Send(r.ctx, ev, "a")
	if err != nil {
		r.t.Fatal(err)
	}
	if got.ID == 0 || got.EventID != "t1" || got.EndpointID != "a" || got.State != webhook.Pending {
		r.t.Errorf("sent: %+v", got)
	}
	_, err = r.queue.Send(r.ctx, ev, "b")
	code(r.t, err, fault.Conflict)
	same(r.t, "claimed", names(r.claim(10, 10)), []string{"t1>a"})
	ev.ID = "t2"
	_, err = r.queue.Send(r.ctx, ev, "unknown")
	code(r.t, err, fault.NotFound)
	off := endpoint("b")
	off.Disabled = true
	r.put(off)
	_, err = r.queue.Send(r.ctx, ev, "b")
	code(r.t, err, fault.Conflict)
	ev.Project = "other"
	_, err = r.queue.Send(r.ctx, ev, "a")
	code(r.t, err, fault.NotFound)
}

func testForgetDone(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	const events = 100 // more than a slice
	for i := range events {
		r.emit(event(fmt.Sprint("e", i), 102, int64(i)))
	}
	for _, d := range r.claim(events, 2*events) {
		if d.Endpoint.ID == "b" && d.EventID == "e5" {
			continue // waits for ever
		}
		err := r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Delivered, AtMS: 1000 + d.CreatedMS, Try: webhook.Attempt{N: 1}})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	forget := func(before int64, want int) {
		r.t.Helper()
		if n, err := r.queue.ForgetDone(r.ctx, before, false); err != nil || n != want {
			r.t.Fatalf("forgot %d, want %d: %v", n, want, err)
		}
	}
	forget(1000, 0)
	forget(1090, 2*90-1)
	same(r.t, "left", len(r.list(webhook.DeliveryQuery{Limit: webhook.MaxPage})), 2*10+1)
	page, err := r.queue.Events(r.ctx, webhook.EventQuery{Project: "acme", Limit: 100})
	if err != nil || len(page.Events) != 11 {
		r.t.Errorf("%d events are left, want 11: %v", len(page.Events), err)
	}
	_, err = r.queue.Event(r.ctx, "acme", "e4")
	code(r.t, err, fault.NotFound)
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: events + lease.Milliseconds()})
	r.emit(event("e4", 102, 2000)) // its id is free again, as is its agent
}

func testServerKey(r rig) {
	get := func(name string) []byte {
		key, err := r.queue.ServerKey(r.ctx, name)
		if err != nil {
			r.t.Fatal(err)
		}
		return key
	}
	a := get("a")
	if len(a) != 32 || cmp.Equal(a, make([]byte, 32)) || !cmp.Equal(a, get("a")) || cmp.Equal(a, get("b")) {
		r.t.Errorf("keys: %x, %x, %x", a, get("a"), get("b"))
	}
}

// testDeadTells checks that a dead delivery makes an event for the other endpoints in the same
// transaction, and that the failure of such an event makes none.
func testDeadTells(r rig) {
	// A gets no event about itself.
	r.put(endpoint("a", 102, eventtype.DeliveryDead), endpoint("b", eventtype.DeliveryDead), endpoint("c"))
	r.emit(event("e1", 102, 10))
	dead := webhook.Result{State: webhook.Dead, Reason: "given up", AtMS: 100, Try: webhook.Attempt{N: 1, Status: 500, ErrorClass: webhook.Class5xx}}
	for _, d := range r.claim(10, 10) {
		if d.Endpoint.ID == "a" {
			if err := r.queue.Finish(r.ctx, d, dead); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	list := r.claim(100, 10)
	if len(list) != 1 || list[0].Endpoint.ID != "b" || list[0].Type != eventtype.DeliveryDead || list[0].AgentID != r.agent.ID {
		r.t.Fatalf("claimed %+v", list)
	}
	e, err := webhook.Decode(list[0].Body)
	if err != nil || e.NoticeID != list[0].EventID || e.EventType != eventtype.DeliveryDead || e.SID != r.agent.ID {
		r.t.Errorf("body %s: %v", list[0].Body, err)
	}
	r.put(endpoint("d", eventtype.DeliveryDead))
	if err := r.queue.Finish(r.ctx, list[0], dead); err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "about its own kind", names(r.claim(1000, 10)), []string{})
}

// testDisabledAfter lets an endpoint fail for days. It is disabled with the attempt that completes
// the period, and continues where it stopped when it is enabled.
func testDisabledAfter(r rig) {
	const day = 24 * 60 * 60 * 1000
	r.put(endpoint("a", 102), endpoint("b", eventtype.EndpointDisabled))
	for i := range 4 {
		r.emit(event(fmt.Sprint("e", i), 102, 10))
	}
	finish := func(state webhook.DeliveryState, now int64) {
		r.t.Helper()
		try := webhook.Attempt{N: 1, Status: 200}
		if state != webhook.Delivered {
			try = webhook.Attempt{N: 1, ErrorClass: webhook.ClassRefused, Error: "the connection was refused"}
		}
		list := r.claim(now, 1)
		if len(list) != 1 {
			r.t.Fatalf("claimed %v", names(list))
		}
		err := r.queue.Finish(r.ctx, list[0], webhook.Result{State: state, AtMS: now, DueMS: now, Try: try, DisableAfter: 5 * 24 * time.Hour})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	get := func() webhook.Endpoint {
		e, err := webhook.FindEndpoint(r.ctx, r.queue, "acme", "a")
		if err != nil {
			r.t.Fatal(err)
		}
		return e
	}
	finish(webhook.Pending, 1000)
	finish(webhook.Delivered, day)
	if e := get(); e.LastSuccessMS != day || e.FirstFailureMS != 0 {
		r.t.Errorf("after a success: %+v", e)
	}
	finish(webhook.Pending, day+1)   // one, and none for two days
	finish(webhook.Pending, 3*day+1) // too long after the previous one: the period starts again
	for _, now := range []int64{4 * day, 5 * day, 6 * day, 7 * day} {
		finish(webhook.Pending, now)
	}
	finish(webhook.Pending, 8*day)
	if e := get(); e.Disabled || e.FirstFailureMS != 3*day+1 || e.LastFailureMS != 8*day {
		r.t.Errorf("before the days are full: %+v", e)
	}
	finish(webhook.Pending, 8*day+1)
	e := get()
	if !e.Disabled || e.DisabledMS != 8*day+1 || e.DisabledWhy == "" || e.Rev != 1 || e.LastSuccessMS != day {
		r.t.Errorf("after five days: %+v", e)
	}
	if e.KeepUntilMS != 15*day+1 {
		r.t.Errorf("events are kept until %d", e.KeepUntilMS)
	}
	// Events of one week are kept, and no more.
	r.emit(event("kept", 102, 9*day), event("unwanted", 102, 15*day+1))
	list := r.claim(9*day, 10)
	if len(list) != 1 || list[0].Endpoint.ID != "b" || list[0].Type != eventtype.EndpointDisabled {
		r.t.Fatalf("claimed while it is disabled: %v", names(list))
	}
	_, err := webhook.UpdateEndpoint(r.ctx, r.queue, "acme", "a", 0, func(e webhook.Endpoint) (webhook.Endpoint, error) {
		e.Disabled = false
		return e, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if e := get(); e.Disabled || e.DisabledWhy != "" || e.DisabledMS != 0 || e.FirstFailureMS != 0 || e.LastFailureMS != 0 || e.Rev != 2 {
		r.t.Errorf("enabled: %+v", e)
	}
	finish(webhook.Pending, 10*day) // not disabled at once
	if get().Disabled {
		r.t.Error("disabled by one failure after it was enabled")
	}
	if n := len(r.list(webhook.DeliveryQuery{Endpoint: "a", States: []webhook.DeliveryState{webhook.Pending}})); n != 4 {
		r.t.Errorf("%d deliveries wait, want 4", n)
	}
	for i, want := range map[string]int{"kept": 1, "unwanted": 0} {
		if n := len(r.list(webhook.DeliveryQuery{Endpoint: "a", EventID: i})); n != want {
			r.t.Errorf("%d deliveries of %s, want %d", n, i, want)
		}
	}
	if e := get(); e.KeepUntilMS != 0 {
		r.t.Errorf("enabled, and still kept until %d", e.KeepUntilMS)
	}
}

// testOldestPending checks that failed attempts move the due time, but not the time since when the
// event has waited.
func testOldestPending(r rig) {
	r.put(endpoint("a", 101), endpoint("b"))
	r.emit(event("e1", 101, 30), event("e2", 102, 20))
	r.wantBacklog(webhook.Backlog{Pending: 3, OldestDue: 20, OldestPending: 20})
	list := r.claim(30, 10)
	r.wantBacklog(webhook.Backlog{Pending: 3, OldestDue: 30 + lease.Milliseconds(), OldestPending: 20})
	for _, d := range list {
		r.finish(d, webhook.Pending, 5000)
	}
	r.wantBacklog(webhook.Backlog{Pending: 3, OldestDue: 5000, OldestPending: 20})
	for _, d := range r.claim(5000, 10) {
		if d.EventID == "e2" {
			r.finish(d, webhook.Delivered, 0)
			continue
		}
		r.finish(d, webhook.Pending, 6000)
	}
	r.wantBacklog(webhook.Backlog{Pending: 2, OldestDue: 6000, OldestPending: 30})
	// Counts from its own creation.
	if _, err := r.queue.Replay(r.ctx, "acme", list[0].ID, 7000, ""); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range r.claim(6500, 10) {
		r.finish(d, webhook.Dead, 0)
	}
	r.wantBacklog(webhook.Backlog{Pending: 1, Dead: 2, OldestDue: 7000, OldestPending: 7000})
	// A delivery that a paced replay sends later does not wait before its turn, and counts from
	// then on, whatever its attempts return.
	for _, d := range r.claim(7000, 10) {
		r.finish(d, webhook.Dead, 0)
	}
	if _, err := r.queue.ReplayAll(r.ctx, webhook.Replay{Filter: webhook.DeliveryQuery{Project: "acme", EventID: "e1"}, NowMS: 8000, PerSecond: 0.5}); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range r.claim(8000, 10) {
		r.finish(d, webhook.Delivered, 0)
	}
	r.wantBacklog(webhook.Backlog{Pending: 1, Dead: 3, OldestDue: 10_000, OldestPending: 10_000})
	r.finish(r.one(10_000), webhook.Pending, 20_000)
	r.wantBacklog(webhook.Backlog{Pending: 1, Dead: 3, OldestDue: 20_000, OldestPending: 10_000})
}

// testHealthInOneGroup ends claims of several endpoints at the same time and checks that no
// endpoint loses another one's update.
func testHealthInOneGroup(r rig) {
	const n = 40
	for i := range n {
		r.put(endpoint(fmt.Sprint("p", i)))
	}
	r.emit(event("e1", 102, 10))
	done := make(chan error)
	for _, d := range r.claim(10, n) {
		go func() {
			done <- r.queue.Finish(r.ctx, d, webhook.Result{State: webhook.Pending, DueMS: 99, AtMS: 50, Try: webhook.Attempt{N: 1, ErrorClass: webhook.ClassDNS}})
		}()
	}
	for range n {
		if err := <-done; err != nil {
			r.t.Fatal(err)
		}
	}
	list, err := r.queue.Endpoints(r.ctx, "acme", "")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range list {
		if e.FirstFailureMS != 50 {
			r.t.Errorf("endpoint %s: first failure at %d", e.ID, e.FirstFailureMS)
		}
	}
	if got := len(r.claim(99, n)); got != n {
		r.t.Errorf("%d deliveries are due again, want %d", got, n)
	}
	if _, _, err := r.store.Create(r.ctx, memory.Agent{ID: "x", Project: "acme", Status: memory.Running, Rev: 1}, 0, memory.Change{}); err != nil {
		r.t.Fatal(err)
	}
}
