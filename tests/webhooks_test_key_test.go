package tests

import (
	"net/http"
	"testing"
)

// TestRepeatedKeyOfReplayedTest: a test's key returns the test that it created, not a later replay
// of it.
func TestRepeatedKeyOfReplayedTest(t *testing.T) {
	t.Parallel()
	s, h := start(t), newHook(t)
	var e endpoint
	s.post(hooks+"/endpoints", map[string]any{"url": h.url}).is(http.StatusCreated, &e)
	test := func() (d delivery) {
		t.Helper()
		s.post(hooks+"/endpoints/"+e.ID+"/test", nil, "Idempotency-Key", "k").is(http.StatusAccepted, &d)
		return d
	}
	first := test()
	s.settled(first.ID)
	for range 3 {
		var again delivery
		s.post(hooks+"/deliveries/"+first.ID+"/replay", nil).is(http.StatusAccepted, &again)
		s.settled(again.ID)
	}
	if second := test(); second.ID != first.ID {
		t.Errorf("delivery %s, and %s before", second.ID, first.ID)
	}
	for range 4 {
		h.next(t)
	}
	h.quiet(t)
}
