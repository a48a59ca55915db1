package tests

import (
	"net/http"
	"testing"
)

// TestReplayOnce: with an Idempotency-Key a repeated replay, of one delivery and of many, sends
// once.
func TestReplayOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	e := s.hookTo(h, map[string]any{"events": []string{"agent.joined"}})
	s.join("n", nil)
	h.next(t)
	var page deliveryPage
	s.get(hooks + "/deliveries?endpoint=" + e.ID).ok(&page)
	id := s.settled(page.Deliveries[0].ID).ID
	var one, again delivery
	s.post(hooks+"/deliveries/"+id+"/replay", nil, "Idempotency-Key", "k").is(http.StatusAccepted, &one)
	h.next(t)
	s.post(hooks+"/deliveries/"+id+"/replay", nil, "Idempotency-Key", "k").is(http.StatusAccepted, &again)
	if one.ID != again.ID {
		t.Errorf("made %s, then %s", one.ID, again.ID)
	}
	s.settled(one.ID)
	var out struct{ Count int }
	all := `{"filter":{"states":["delivered"]}}`
	for range 2 {
		if s.post(hooks+"/replays", all, "Idempotency-Key", "many").ok(&out); out.Count != 1 {
			t.Errorf("%+v", out)
		}
	}
	h.next(t)
	h.quiet(t)
	s.post(hooks+"/replays", `{"filter":{"states":["dead"]}}`, "Idempotency-Key", "many").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another replay")
	s.post(hooks+"/deliveries/"+id+"/replay", nil, "Idempotency-Key", "many").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key", "another replay")
	s.post(hooks+"/deliveries/"+id+"/replay", nil, "Idempotency-Key", "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	s.post(hooks+"/replays", all, "Idempotency-Key", "a b").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
}
