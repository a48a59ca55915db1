package tests

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestErasedWordsInWebhooks: after a caller was erased, no attempt, replay, fetched body or log
// entry of another caller's call has its words. Those of others arrive, with valid signatures.
func TestErasedWordsInWebhooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	down, up := newHook(t), newHook(t)
	down.status.Store(http.StatusServiceUnavailable)
	events := []string{"agent.joined", "agent.history", "agent.message", "agent.turns", "agent.left"}
	secrets := []any{map[string]any{"secret": hookOwn}}
	late := s.hookTo(down, map[string]any{"events": events, "secrets": secrets, "retry_schedule": slices.Repeat([]float64{1}, 20)})
	early := s.hookTo(up, map[string]any{"events": events, "secrets": secrets})
	thin := s.hookTo(up, map[string]any{"events": []string{"agent.history"}, "secrets": secrets, "payload": "thin"})

	s.putCaller("anna", "aliases", `{"aliases":["crm-17"]}`)
	theirs := s.join("theirs", caller("bob"))
	by := func(m map[string]any, user string) map[string]any {
		m["scope"] = map[string]any{"user_id": user}
		return m
	}
	s.say(theirs, user("keep one"), by(user("gone one"), "anna"), by(user("keep two"), "carl"), assistant("keep three"))
	s.say(theirs, by(user("gone \"two\" é"), "crm-17"), by(assistant("gone three"), "anna"), user("keep four"))
	// At one place of the history: same turn, role and time.
	s.say(theirs, map[string]any{"role": "user", "content": "keep five", "turn_id": 40, "timestamp": 1790000000000},
		by(map[string]any{"role": "user", "content": "gone four", "turn_id": 40, "timestamp": 1790000000000}, "anna"))
	s.post(agent(theirs, "/leave"), nil).ok(nil)
	also := s.join("live", caller("bob"))
	s.say(also, by(user("gone five"), "anna"), user("keep six"))

	all := func() (out []delivery) {
		t.Helper()
		for cursor := ""; ; {
			var page deliveryPage
			s.get(hooks + "/deliveries?limit=100&cursor=" + cursor).ok(&page)
			out = append(out, page.Deliveries...)
			if cursor = page.Next; cursor == "" {
				return out
			}
		}
	}
	of := func(e endpoint, done func(delivery) bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(all(), func(d delivery) bool { return d.Endpoint == e.ID && !done(d) })
		}
	}
	delivered := func(d delivery) bool { return d.State == "delivered" }
	waitFor(t, "deliveries before the erasure", of(early, delivered))
	waitFor(t, "deliveries before the erasure", of(thin, delivered))
	waitFor(t, "a failed attempt", func() bool {
		return slices.ContainsFunc(all(), func(d delivery) bool { return d.Endpoint == late.ID && d.Attempt > 0 })
	})
	var before []call
	for len(up.got) > 0 {
		before = append(before, up.next(t))
	}
	if text := string(slices.Concat(bodies(before)...)); !strings.Contains(text, "gone four") || !strings.Contains(text, "keep four") {
		t.Fatalf("the test proves nothing: %s", text)
	}

	s.do("DELETE", userPath("crm-17"), nil).ok(nil)
	s.stop() // and with it the attempts that were being made
	for len(down.got) > 0 {
		down.next(t)
	}
	down.status.Store(0)
	s = start(t, s.env...)
	waitFor(t, "deliveries after the erasure", of(late, delivered))
	// Replays of what was delivered before.
	for _, e := range []endpoint{early, thin} {
		s.post(hooks+"/replays", map[string]any{"filter": map[string]any{"endpoint": e.ID, "states": []string{"delivered"}}}).ok(nil)
	}
	waitFor(t, "replays", of(early, delivered))
	waitFor(t, "replays", of(thin, delivered))

	var after []call
	for _, h := range []*hook{down, up} {
		for len(h.got) > 0 {
			after = append(after, h.next(t))
		}
	}
	var texts []string
	for _, c := range after {
		texts = append(texts, string(c.body))
		if verified(c, hookOwn) != "0" {
			t.Errorf("no valid signature of %s", c.body)
		}
		var p thinPayload
		if err := json.Unmarshal(c.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if p.Thin {
			texts = append(texts, string(s.get(p.URL[strings.Index(p.URL, "/v1/"):]).ok(nil).body))
		}
	}
	for _, d := range all() {
		texts = append(texts, string(s.get(hooks+"/messages/"+d.MessageID).ok(nil).body))
	}
	got := strings.Join(texts, "\n")
	if strings.Contains(got, "gone") {
		for _, text := range texts {
			if strings.Contains(text, "gone") {
				t.Errorf("an erased word is in %s", text)
			}
		}
	}
	for _, word := range []string{"one", "two", "three", "four", "five", "six"} {
		if strings.Count(got, "keep "+word) < 3 {
			t.Errorf("%q has got lost", "keep "+word)
		}
	}
	if !strings.Contains(got, `"state":"removed"`) {
		t.Error("no event says that a message was removed")
	}
	for _, c := range after {
		if c.EventType == 103 && !strings.Contains(string(c.body), `"thin":true`) && strings.Count(string(c.body), `"content"`) != 5 {
			t.Errorf("the history is %s", c.body)
		}
	}
}

func bodies(list []call) (out [][]byte) {
	for _, c := range list {
		out = append(out, c.body)
	}
	return out
}
