package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

// TestTestEvent: a test event is signed, carries the endpoint's headers, passes the guard and is in
// the log of attempts.
func TestTestEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"headers": map[string]string{"X-Env": "prod"}, "auth": map[string]string{"bearer": "t0ken-of-mine"}, "events": []string{"agent.left"}})
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, &d)
	c := h.next(t)
	if c.EventType != eventtype.Test || c.NoticeID != d.MessageID || c.header.Get("X-Env") != "prod" || c.header.Get("Authorization") != "Bearer t0ken-of-mine" {
		t.Errorf("%s with %v", c.body, c.header)
	}
	if err := verifyStandard(secret.String(e.Secrets[0].Secret), c.header, c.body, time.Now()); err != nil {
		t.Error(err)
	}
	signed := http.Header{}
	signed.Set(webhook.HeaderID, d.MessageID)
	for _, h := range s.settled(d.ID).Attempts[0].Signed {
		signed.Set(h.Name, h.Value)
	}
	if err := verifyStandard(secret.String(e.Secrets[0].Secret), signed, c.body, time.Now()); err != nil {
		t.Errorf("the log of attempts has %v: %v", signed, err)
	}
	// As encodeURIComponent gives it.
	s.get(hooks + "/messages/" + strings.Replace(d.MessageID, ":", "%3A", 1)).ok(nil)
	// A change keeps values that it names with the placeholder of answers, and drops those it
	// leaves out of an object.
	s.do("PATCH", hooks+"/endpoints/"+e.ID, `{"headers":{"x-env":"[secret]","X-Two":"2"},"auth":{"bearer":"[secret]"}}`).ok(nil)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, nil)
	if kept := h.next(t); kept.header.Get("X-Env") != "prod" || kept.header.Get("X-Two") != "2" || kept.header.Get("Authorization") != "Bearer t0ken-of-mine" {
		t.Errorf("%v", kept.header)
	}
	s.do("PATCH", hooks+"/endpoints/"+e.ID, `{"headers":{"X-Two":"[secret]"},"auth":null}`).ok(nil)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, nil)
	if left := h.next(t); left.header.Get("X-Env") != "" || left.header.Get("X-Two") != "2" || left.header.Get("Authorization") != "" {
		t.Errorf("%v", left.header)
	}
	if got := s.settled(d.ID); got.State != "delivered" || len(got.Attempts) != 1 || got.Attempts[0].Status != 200 || int64(got.DoneAt) < c.NotifyMS || len(got.Attempts[0].Headers) == 0 {
		t.Errorf("%+v", got)
	}
	h.status.Store(http.StatusGone)
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).is(http.StatusAccepted, &d)
	got := s.settled(d.ID)
	if got.State != "dead" || got.Attempts[0].Response != "<b>no</b>" || !strings.Contains(got.Reason, "410") {
		t.Errorf("%+v", got)
	}
	if raw := s.get(hooks + "/deliveries/" + d.ID).ok(nil); strings.Contains(string(raw.body), "<b>") {
		t.Errorf("what the receiver wrote is not escaped: %s", raw.body)
	}
	var gone, on, off endpoint
	s.get(hooks + "/endpoints/" + e.ID).ok(&gone)
	if !gone.Disabled || !strings.Contains(gone.Reason, "410") {
		t.Errorf("%+v", gone)
	}
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil).refused(http.StatusConflict, "TaskConflict", "disabled")
	s.post(hooks+"/endpoints/"+e.ID+"/enable", nil).ok(&on)
	if on.Disabled || on.Reason != "" {
		t.Errorf("%+v", on)
	}
	s.post(hooks+"/endpoints/"+e.ID+"/disable", nil).ok(&off)
	if !off.Disabled || off.Reason == "" {
		t.Errorf("%+v", off)
	}
}

// TestTestIsGuarded: the guard applies to tests. The endpoint's name is allowed when it is saved;
// its address is refused when it is dialled.
func TestTestIsGuarded(t *testing.T) {
	t.Parallel()
	// A server for everybody has no leave to call its own machine.
	s := start(t, twoTenants, "HEARDLOG_ADDR=0.0.0.0:0")
	h := newHook(t)
	alice := []string{"Authorization", "Bearer wonder"}
	s.post(hooks+"/endpoints", map[string]any{"url": h.url}, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "url", "127.0.0.1")
	h.url = strings.Replace(h.url, "127.0.0.1", "localhost", 1)
	e := s.hookTo(h, map[string]any{"retry_schedule": []float64{}}, alice...)
	var d delivery
	s.post(hooks+"/endpoints/"+e.ID+"/test", nil, alice...).is(http.StatusAccepted, &d)
	if got := s.settled(d.ID, alice...); got.State != "dead" || got.Class != "blocked" || !strings.Contains(got.Attempts[0].Error, "HEARDLOG_OUTBOUND_ALLOW") {
		t.Errorf("%+v", got)
	}
	h.quiet(t)
	s.post(hooks+"/endpoints", map[string]any{"url": h.url, "payload": "thin"}, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "payload", "HEARDLOG_PUBLIC_URL")
	s.get(hooks+"/fetch/x").refused(http.StatusNotFound, "TaskNotFound", "HEARDLOG_PUBLIC_URL")
}

// TestReplay: each replay sends the same bytes under the same ID once per call. A dry run sends
// nothing, and a cancelled one is not sent.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined"}, "retry_schedule": []float64{3600}})
	s.join("n", nil)
	first := h.next(t)
	var page deliveryPage
	s.get(hooks + "/deliveries?endpoint=" + e.ID + "&type=agent.joined").ok(&page)
	if len(page.Deliveries) != 1 {
		t.Fatalf("%+v", page)
	}
	id := s.settled(page.Deliveries[0].ID).ID
	for range 2 {
		var d delivery
		s.post(hooks+"/deliveries/"+id+"/replay", nil).is(http.StatusAccepted, &d)
		again := h.next(t)
		if d.ReplayOf != id || d.MessageID != first.NoticeID || string(again.body) != string(first.body) || again.header.Get(webhook.HeaderAttempt) != "1" {
			t.Errorf("%+v: %s", d, again.body)
		}
		s.settled(d.ID)
	}
	h.status.Store(http.StatusBadGateway)
	for i := range 3 {
		s.join(fmt.Sprint("m", i), nil)
		h.next(t)
	}
	var out struct {
		Count  int
		DryRun bool `json:"dry_run"`
	}
	s.post(hooks+"/replays", `{}`).ok(&out)
	if out.Count != 0 { // nothing is dead
		t.Errorf("%+v", out)
	}
	filter := `{"states":["pending"],"types":["agent.*"],"endpoint":"` + e.ID + `"}`
	s.post(hooks+"/replays", `{"dry_run":true,"filter":`+filter+`}`).ok(&out)
	if out.Count != 3 || !out.DryRun {
		t.Errorf("%+v", out)
	}
	h.quiet(t)
	h.status.Store(0)
	began := time.Now()
	s.post(hooks+"/replays", `{"per_second":5,"filter":`+filter+`}`).ok(&out)
	if out.Count != 3 {
		t.Errorf("%+v", out)
	}
	for range 3 {
		h.next(t)
	}
	if took := time.Since(began); took < 350*time.Millisecond {
		t.Errorf("three deliveries at five a second took %s", took)
	}
	for n := 0; n != 3; { // the results of the replays are stored
		var all deliveryPage
		s.get(hooks + "/deliveries?state=pending").ok(&all)
		n = len(all.Deliveries)
	}
	page = deliveryPage{}
	s.get(hooks + "/deliveries?state=pending&limit=2").ok(&page)
	if len(page.Deliveries) != 2 || page.Next == "" {
		t.Fatalf("%+v", page)
	}
	var last deliveryPage
	s.get(hooks + "/deliveries?state=pending&limit=2&cursor=" + page.Next).ok(&last)
	if len(last.Deliveries) != 1 || last.Next != "" {
		t.Errorf("%+v", last)
	}
	pending := last.Deliveries[0].ID
	var d delivery
	s.post(hooks+"/deliveries/"+pending+"/cancel", nil).ok(&d)
	if d.State != "canceled" {
		t.Errorf("%+v", d)
	}
	s.post(hooks+"/deliveries/"+pending+"/cancel", nil).refused(http.StatusConflict, "TaskConflict")
	h.quiet(t)
	s.do("DELETE", hooks+"/endpoints/"+e.ID, nil).is(http.StatusNoContent, nil)
	s.post(hooks+"/deliveries/"+id+"/replay", nil).refused(http.StatusConflict, "TaskConflict")
	if got := s.settled(page.Deliveries[0].ID); got.State != "dead" || got.Endpoint != e.ID {
		t.Errorf("after its endpoint was deleted: %+v", got)
	}
	var m struct {
		Body json.RawMessage
	}
	s.get(hooks + "/messages/" + first.NoticeID).ok(&m)
	if string(m.Body) != string(first.body) {
		t.Errorf("stored %s, sent %s", m.Body, first.body)
	}
	var list struct {
		Messages []struct{ ID string }
	}
	s.get(hooks + "/messages?type=101&agent=" + first.SID).ok(&list)
	if len(list.Messages) != 1 || list.Messages[0].ID != first.NoticeID {
		t.Errorf("%+v", list)
	}
	var types struct {
		Types []struct{ Name string } `json:"event_types"`
	}
	if s.get(hooks + "/event-types").ok(&types); len(types.Types) < 12 {
		t.Errorf("%+v", types)
	}
}

// TestListsOfWebhooks: each filter of the lists lets through what it names and nothing else.
func TestListsOfWebhooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	h, other := newHook(t), newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined", "102"}})
	s.hookTo(other, map[string]any{"events": []string{"agent.left"}})
	ids := []string{s.join("a", nil), s.join("b", nil)}
	for _, id := range ids {
		s.post(agent(id, "/leave"), nil).ok(nil)
	}
	for range 4 {
		h.next(t)
	}
	for range 2 {
		other.next(t)
	}
	count := func(path string) (n int, last deliveryPage) {
		t.Helper()
		s.get(hooks + path).ok(&last)
		return len(last.Deliveries), last
	}
	_, all := count("/deliveries")
	first, last := all.Deliveries[len(all.Deliveries)-1], all.Deliveries[0]
	for query, want := range map[string]int{
		"": 6, "endpoint=" + e.ID: 4, "endpoint=none": 0, "agent=" + ids[0]: 3, "type=agent.joined": 2, "type=101,agent.left": 6, "type=agent.*&endpoint=" + e.ID: 4, "type=103": 0,
		"message=" + last.MessageID: 2, "state=pending,delivered": 6, "state=dead": 0, "since=2020-01-01T00:00:00Z": 6, "since=2120-01-01T00:00:00Z": 0,
		"until=" + first.CreatedAt.String(): 0, "until=" + (first.CreatedAt + 1).String() + "&agent=" + ids[0]: 1, "limit=500": 6,
	} {
		if n, _ := count("/deliveries?" + query); n != want {
			t.Errorf("%q: %d deliveries, want %d", query, n, want)
		}
	}
	seen := map[string]bool{}
	for cursor, pages := "", 0; ; pages++ {
		n, page := count("/deliveries?limit=4&cursor=" + cursor)
		for _, d := range page.Deliveries {
			seen[d.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if n == 0 || pages > 3 {
			t.Fatalf("page %d holds %d and leads on", pages, n)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the pages hold %d deliveries", len(seen))
	}
	for query, want := range map[string]int{"": 4, "type=101": 2, "agent=" + ids[1]: 2, "agent=" + ids[1] + "&type=agent.left": 1, "until=2000-01-01T00:00:00Z": 0} {
		var page struct{ Messages []struct{ ID string } }
		if s.get(hooks + "/messages?" + query).ok(&page); len(page.Messages) != want {
			t.Errorf("%q: %d events, want %d", query, len(page.Messages), want)
		}
	}
}
