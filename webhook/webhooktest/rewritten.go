package webhooktest

import (
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// testRewritten: a change gives stored events new bodies, for what is pending, for retries, and for
// replays, and deletes what receivers answered. It changes no other event, and nothing if it fails.
func testRewritten(r rig) {
	r.put(endpoint("a"), endpoint("b"))
	other := memory.Agent{ID: "other", Project: "acme", Status: memory.Running, StartMS: 1, Rev: 1}
	if _, _, err := r.store.Create(r.ctx, other, 0, memory.Change{Events: []memory.Event{event("theirs", 102, 10)}}); err != nil {
		r.t.Fatal(err)
	}
	r.emit(event("e1", 103, 10), event("e2", 102, 10))
	for _, d := range r.claim(10, 10) {
		try := webhook.Attempt{N: 1, Status: 500, Response: []byte("I got " + d.EventID)}
		state := webhook.Pending
		if d.Endpoint.ID == "b" {
			state = webhook.Delivered
		}
		if err := r.queue.Finish(r.ctx, d, webhook.Result{State: state, DueMS: 20, Try: try}); err != nil {
			r.t.Fatal(err)
		}
	}
	rewrite := func(c memory.Change) error {
		return r.store.Update(r.ctx, "acme", r.agent.ID, func(memory.AgentView) (memory.Change, error) {
			c.Rewritten = []memory.Event{{ID: "e1", Body: []byte("new")}, {ID: "theirs", Body: []byte("new")}}
			return c, nil
		})
	}
	code(r.t, rewrite(memory.Change{Events: []memory.Event{event("e2", 102, 10)}}), fault.Conflict)
	read := func() map[string]string {
		out := map[string]string{}
		for _, agent := range []string{r.agent.ID, "other", "none"} {
			if err := r.queue.AgentEvents(r.ctx, "acme", agent, func(e webhook.Event) error {
				out[agent+" "+e.ID] = string(e.Body)
				return nil
			}); err != nil {
				r.t.Fatal(err)
			}
		}
		return out
	}
	want := map[string]string{r.agent.ID + " e1": `{"noticeId":"e1"}`, r.agent.ID + " e2": `{"noticeId":"e2"}`, "other theirs": `{"noticeId":"theirs"}`}
	same(r.t, "after a change that failed", read(), want)
	if err := rewrite(memory.Change{}); err != nil {
		r.t.Fatal(err)
	}
	want[r.agent.ID+" e1"] = "new"
	same(r.t, "rewritten", read(), want)
	if _, err := r.queue.ReplayAll(r.ctx, webhook.Replay{NowMS: 20, Filter: webhook.DeliveryQuery{Project: "acme", Endpoint: "b"}}); err != nil {
		r.t.Fatal(err)
	}
	sent := map[string]int{}
	for _, d := range r.claim(20, 10) {
		sent[d.EventID+" "+string(d.Body)]++
	}
	same(r.t, "sent", sent, map[string]int{"e1 new": 2, `e2 {"noticeId":"e2"}`: 2, `theirs {"noticeId":"theirs"}`: 2})
	for id, want := range map[string]string{"e1": "", "e2": "I got e2"} {
		tries, err := r.attempts(id)
		if err != nil || len(tries) != 2 {
			r.t.Fatal(tries, err)
		}
		for _, try := range tries {
			same(r.t, "the answer to "+id, string(try.Response), want)
		}
	}
}
