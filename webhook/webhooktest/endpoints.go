package webhooktest

import (
	"time"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

func testEndpoints(r rig) {
	a := endpoint("a", eventtype.Left, eventtype.History)
	a.Agora = true
	a.Secrets = []webhook.SigningSecret{{Value: "whsec_1"}, {Value: "old", NotAfter: time.UnixMilli(1_780_000_000_000).UTC()}}
	b := endpoint("b")
	b.Project = "other"
	b.Disabled, b.DisabledWhy = true, "by hand"
	r.put(a, b)
	for project, want := range map[string][]webhook.Endpoint{"acme": {a}, "other": {b}, "": {a, b}, "nobody": nil} {
		got, err := r.queue.Endpoints(r.ctx, project, "")
		if err != nil {
			r.t.Fatal(err)
		}
		same(r.t, "endpoints of "+project, got, want)
	}
	code(r.t, r.queue.DeleteEndpoint(r.ctx, "acme", "unknown"), fault.NotFound)
	code(r.t, webhook.PutEndpoint(r.ctx, r.queue, webhook.Endpoint{}), fault.Missing)
}

func testEndpointReplaced(r rig) {
	r.put(endpoint("a"))
	r.emit(event("e1", 102, 10))
	changed := endpoint("a", eventtype.Joined)
	changed.URL, changed.Secrets = "https://new.example", []webhook.SigningSecret{{Value: "new"}}
	r.put(changed)
	r.emit(event("e2", 102, 20), event("e3", 101, 30)) // only e3 is wanted now
	list := r.claim(100, 10)
	same(r.t, "claimed", names(list), []string{"e1>a", "e3>a"})
	same(r.t, "endpoint of what waited", list[0].Endpoint, changed)
}

func testEndpointDeleted(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 102, 10), event("e2", 102, 20))
	if err := r.queue.DeleteEndpoint(r.ctx, "acme", "a"); err != nil {
		r.t.Fatal(err)
	}
	r.wantBacklog(webhook.Backlog{Pending: 2, Dead: 2, OldestDue: 10})
	same(r.t, "claimed", names(r.claim(100, 10)), []string{"e1>b", "e2>b"})
	code(r.t, r.queue.DeleteEndpoint(r.ctx, "acme", "a"), fault.NotFound)
	r.put(endpoint("a")) // a new one of the name inherits nothing
	r.emit(event("e3", 102, 30))
	same(r.t, "claimed", names(r.claim(100, 10)), []string{"e3>b", "e3>a"})
}

func testEndpointDisabled(r rig) {
	e := endpoint("a")
	r.put(e)
	r.emit(event("e1", 102, 10))
	e.Disabled, e.DisabledWhy = true, "by hand"
	r.put(e)
	r.emit(event("e2", 102, 20)) // gets no delivery
	same(r.t, "claimed while disabled", names(r.claim(100, 10)), []string{})
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 10})
	e.Disabled = false
	r.put(e)
	same(r.t, "claimed when enabled again", names(r.claim(100, 10)), []string{"e1>a"})
}

func testFanOut(r rig) {
	other := endpoint("other")
	other.Project = "other"
	r.put(endpoint("all"), endpoint("left", 102), endpoint("both", 101, 102), other)
	r.emit(event("e1", 101, 10), event("e2", 102, 20), event("e3", 110, 30))
	same(r.t, "claimed", names(r.claim(100, 100)), []string{"e1>all", "e1>both", "e2>all", "e2>left", "e2>both", "e3>all"})
}

func testNobodyWants(r rig) {
	r.emit(event("e1", 101, 10))
	r.put(endpoint("a", 102))
	r.emit(event("e2", 101, 20))
	r.put(endpoint("b")) // what happened before it was there is not for it
	r.wantBacklog(webhook.Backlog{})
	same(r.t, "claimed", names(r.claim(100, 10)), []string{})
	r.emit(event("e1", 102, 30)) // e1 was never stored, so its id is free
	same(r.t, "claimed", names(r.claim(100, 10)), []string{"e1>a", "e1>b"})
}

func testOutboxIsAllOrNone(r rig) {
	r.put(endpoint("a"))
	m := memory.Message{Seq: 1, Rev: 2, Role: memory.User, Content: "x"}
	update := func(c memory.Change) error {
		return r.store.Update(r.ctx, r.agent.Project, r.agent.ID, func(memory.AgentView) (memory.Change, error) { return c, nil })
	}
	if err := update(memory.Change{Append: []memory.Message{m, m}, Events: []memory.Event{event("e1", 102, 10)}}); err == nil {
		r.t.Fatal("a change with two messages of one seq was stored")
	}
	r.wantBacklog(webhook.Backlog{})
	if err := update(memory.Change{Append: []memory.Message{m}, Events: []memory.Event{event("e1", 102, 10)}}); err != nil {
		r.t.Fatal(err)
	}
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 10})
	m.Seq = 2
	code(r.t, update(memory.Change{Append: []memory.Message{m}, Events: []memory.Event{event("e2", 102, 10), event("e1", 102, 10)}}), fault.Conflict)
	h, list, err := r.store.Recent(r.ctx, r.agent.Project, r.agent.ID, 10, false)
	if err != nil || len(list) != 1 || h.NextSeq != 2 {
		r.t.Errorf("the refused event's message was stored: %d messages, %v", len(list), err)
	}
	r.wantBacklog(webhook.Backlog{Pending: 1, OldestDue: 10})
}

func testEventIDsAreUnique(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	r.emit(event("e1", 102, 10))
	err := r.store.Update(r.ctx, r.agent.Project, r.agent.ID, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Events: []memory.Event{event("e1", 102, 20)}}, nil
	})
	code(r.t, err, fault.Conflict)
	r.wantBacklog(webhook.Backlog{Pending: 2, OldestDue: 10})
}

func testCreateEmits(r rig) {
	r.put(endpoint("a"))
	a := r.agent
	a.ID, a.Name, a.JoinKey = "0190-second", "second", "key"
	for range 2 { // the repeated join emits nothing
		if _, _, err := r.store.Create(r.ctx, a, 0, memory.Change{Events: []memory.Event{event("e1", 101, 10)}}); err != nil {
			r.t.Fatal(err)
		}
	}
	d := r.one(100)
	if d.AgentID != a.ID || d.EventID != "e1" {
		r.t.Errorf("claimed %+v", d)
	}
}

func testWoken(r rig) {
	woken := func() bool {
		select {
		case <-r.queue.Woken():
			return true
		default:
			return false
		}
	}
	r.put(endpoint("a", 102))
	for woken() {
	}
	r.emit(event("e1", 102, 10))
	if !woken() {
		r.t.Error("not woken by a new delivery")
	}
	for woken() {
	}
	r.emit(event("e2", 101, 20))
	if woken() {
		r.t.Error("woken by an event that nobody wants")
	}
	for range 100 { // a slow reader does not block the store, and still gets a signal
		r.emit(event(time.Now().String(), 102, 30))
	}
	if !woken() {
		r.t.Error("not woken by a hundred")
	}
}

// full returns an endpoint with a value in every field.
func full(id string) webhook.Endpoint {
	return webhook.Endpoint{
		ID: id, Project: "acme", URL: "https://full.example/hook?token=x", Description: "the one", Events: []string{"agent.*", "10011"}, Agora: true,
		Secrets: []webhook.SigningSecret{{ID: "s2", Value: "whsec_1", CreatedMS: 7}, {ID: "s1", Value: "old", NotAfter: time.UnixMilli(1_780_000_000_000).UTC()}},
		Headers: []webhook.Header{{Name: "X-Key", Value: "secret"}}, Auth: webhook.Auth{User: "u", Password: "p"},
		ClientCert: webhook.ClientCert{Cert: "cert", Key: "key"}, Payload: webhook.PayloadThin, MaxBodyBytes: 2000,
		Retry: []time.Duration{time.Second, time.Minute}, MaxAge: time.Hour, Timeout: 3 * time.Second, MaxInFlight: 2, RateLimit: 1.5,
		CreatedMS: 5, UpdatedMS: 6,
	}
}

func testCreateEndpoint(r rig) {
	e := full("a")
	if err := webhook.CreateEndpoint(r.ctx, r.queue, e, 2); err != nil {
		r.t.Fatal(err)
	}
	got, err := webhook.FindEndpoint(r.ctx, r.queue, "acme", "a")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "created", got, e)
	code(r.t, webhook.CreateEndpoint(r.ctx, r.queue, e, 2), fault.Conflict)
	other := full("a")
	other.Project = "other"
	// An ID is unique over all projects.
	code(r.t, webhook.CreateEndpoint(r.ctx, r.queue, other, 2), fault.Conflict)
	code(r.t, webhook.CreateEndpoint(r.ctx, r.queue, webhook.Endpoint{}, 2), fault.Missing)
	if err := webhook.CreateEndpoint(r.ctx, r.queue, full("b"), 2); err != nil {
		r.t.Fatal(err)
	}
	code(r.t, webhook.CreateEndpoint(r.ctx, r.queue, full("c"), 2), fault.Quota)
	_, err = webhook.FindEndpoint(r.ctx, r.queue, "other", "a")
	code(r.t, err, fault.NotFound)
	// A copy: the stored value does not change.
	got.Secrets[0].Value, got.Events[0] = "changed", "changed"
	again, err := webhook.FindEndpoint(r.ctx, r.queue, "", "a")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "after its copy was changed", again, e)
}

func testUpdateEndpoint(r rig) {
	e := full("a")
	r.put(e)
	update := func(project string, rev int64, change func(*webhook.Endpoint) error) (webhook.Endpoint, error) {
		return webhook.UpdateEndpoint(r.ctx, r.queue, project, "a", rev, func(e webhook.Endpoint) (webhook.Endpoint, error) {
			return e, change(&e)
		})
	}
	rename := func(e *webhook.Endpoint) error {
		e.Description, e.ID, e.Project, e.Rev = "new", "x", "y", 99
		return nil
	}
	got, err := webhook.UpdateEndpoint(r.ctx, r.queue, "acme", "a", 0, func(e webhook.Endpoint) (webhook.Endpoint, error) {
		err := rename(&e)
		return e, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	want := e
	want.Description, want.Rev = "new", 1
	same(r.t, "answer", got, want)
	stored, err := webhook.FindEndpoint(r.ctx, r.queue, "acme", "a")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "stored", stored, want)
	_, err = update("acme", 7, rename)
	code(r.t, err, fault.Conflict)
	_, err = update("other", 0, rename)
	code(r.t, err, fault.NotFound)
	_, err = update("acme", 1, func(e *webhook.Endpoint) error {
		e.Events[0] = "changed" // of a copy
		return fault.New(fault.Invalid, "no")
	})
	code(r.t, err, fault.Invalid)
	stored, err = webhook.FindEndpoint(r.ctx, r.queue, "acme", "a")
	if err != nil {
		r.t.Fatal(err)
	}
	same(r.t, "after refusals", stored, want)
}

// testRoom bounds a claim by the endpoint's own numbers and by what the worker says of it.
func testRoom(r rig) {
	own := endpoint("own")
	own.MaxInFlight = 1
	r.put(own, endpoint("held"), endpoint("free"))
	for i := range 5 {
		r.emit(event(string(rune('p'+i)), 102, int64(i+1)))
	}
	room := func(e *webhook.Endpoint) int {
		switch e.ID {
		case "held":
			return 0
		case "free":
			return 2
		}
		return 100
	}
	claim := func(now int64) []string {
		list, err := webhook.ClaimFrom(r.ctx, r.queue, webhook.Claim{NowMS: now, Limit: 100, PerEndpoint: 4, Lease: lease, Room: room})
		if err != nil {
			r.t.Fatal(err)
		}
		return names(list)
	}
	same(r.t, "claimed", claim(10), []string{"p>own", "p>free", "q>free"})
	same(r.t, "claimed again", claim(11), []string{"r>free", "s>free"})
	same(r.t, "the server's number is full", claim(12), []string{})
	// The oldest due is that of the disabled one: nothing is excluded.
	r.wantBacklog(webhook.Backlog{Pending: 15, OldestDue: 1})
}
