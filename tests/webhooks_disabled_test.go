package tests

import (
	"encoding/json"
	"net/http"
	"testing"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/webhook"
)

// TestDisabledAndResumed: an endpoint that answers 410 is disabled and its sibling gets an event.
// Pending deliveries stay and are sent when the endpoint is enabled again, which only an explicit
// change does.
func TestDisabledAndResumed(t *testing.T) {
	t.Parallel()
	s := start(t)
	h, sibling := newHook(t), newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined"}, "description": "billing"})
	s.hookTo(sibling, map[string]any{"events": []string{"delivery.dead", "endpoint.disabled"}})
	path := hooks + "/endpoints/" + e.ID
	h.status.Store(http.StatusGone)
	id := s.join("n", nil)
	first := h.next(t)
	told := map[int]call{}
	for range 2 {
		c := sibling.next(t)
		told[c.EventType] = c
	}
	var dead struct {
		EndpointID string `json:"endpoint_id"`
		DeliveryID string `json:"delivery_id"`
		EventID    string `json:"event_id"`
		AgentID    string `json:"agent_id"`
	}
	if err := json.Unmarshal(told[eventtype.DeliveryDead].Payload, &dead); err != nil || dead.EndpointID != e.ID || dead.EventID != first.NoticeID || dead.AgentID != id {
		t.Errorf("%v: %s", err, told[eventtype.DeliveryDead].body)
	}
	var off struct {
		EndpointID  string `json:"endpoint_id"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(told[eventtype.EndpointDisabled].Payload, &off); err != nil || off.EndpointID != e.ID || off.Description != "billing" {
		t.Errorf("%v: %s", err, told[eventtype.EndpointDisabled].body)
	}
	h.status.Store(0)
	var again delivery
	s.post(hooks+"/deliveries/"+dead.DeliveryID+"/replay", nil).is(http.StatusAccepted, &again)
	for _, body := range []string{`{"url":"` + h.url + `","events":["agent.joined"]}`, `{"url":"` + h.url + `"}`} {
		var put, patch endpoint
		s.do("PUT", path, body).ok(&put)
		s.do("PATCH", path, body).ok(&patch)
		if !put.Disabled || !patch.Disabled || put.Reason == "" {
			t.Errorf("a change that says nothing of it has enabled the endpoint: %+v, %+v", put, patch)
		}
	}
	s.join("m", nil) // this is never sent
	h.quiet(t)
	if d := s.until(again.ID, func(delivery) bool { return true }); d.State != "pending" || d.Attempt != 0 {
		t.Errorf("%+v", d)
	}
	var on endpoint
	s.do("PATCH", path, `{"disabled":false}`).ok(&on)
	if on.Disabled || on.Reason != "" {
		t.Errorf("%+v", on)
	}
	if c := h.next(t); string(c.body) != string(first.body) || c.header.Get(webhook.HeaderAttempt) != "1" {
		t.Errorf("%s", c.body)
	}
	if d := s.settled(again.ID); d.State != "delivered" {
		t.Errorf("%+v", d)
	}
	h.quiet(t)
	sibling.quiet(t)
}
