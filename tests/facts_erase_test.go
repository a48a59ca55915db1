package tests

import (
	"encoding/json"
	"net/http"
	"testing"
)

// TestFactsOfAnErasedCall: facts that rest on an erased call alone go with it. One that was said
// again in another call stays without its source, and goes with that call; one that a client has
// reinforced stays.
func TestFactsOfAnErasedCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	const said = "I like green tea, I live in Oslo and I have a dog."
	extract := func(id string) (out factList) {
		t.Helper()
		entries := `[{"op":"add","kind":"preference","content":"Likes green tea","speaker":"user","from_seq":1,"to_seq":1,"quote":"I like green tea"}`
		if len(s.facts("anna", "").Facts) == 0 {
			entries += `,{"op":"add","kind":"profile","content":"Lives in Oslo","speaker":"user","from_seq":1,"to_seq":1,"quote":"I live in Oslo"},
				{"op":"add","kind":"profile","content":"Has a dog","speaker":"user","from_seq":1,"to_seq":1,"quote":"I have a dog"}`
		}
		body, _ := json.Marshal(map[string]string{"agent_id": id, "answer": entries + "]"})
		s.post(factsPath("anna", "/extract"), body).ok(&out)
		return out
	}
	first, second := s.join("first", caller("anna")), s.join("second", caller("anna"))
	s.say(first, user(said))
	s.say(second, user(said))
	facts := extract(first).Facts
	if len(facts) != 3 {
		t.Fatalf("extracted: %+v", facts)
	}
	extract(second)
	tea, oslo, dog := factsPath("anna", "/"+facts[0].ID), factsPath("anna", "/"+facts[1].ID), factsPath("anna", "/"+facts[2].ID)
	s.post(dog+"/reinforce", `{}`).ok(nil)

	h := s.hold(userPath("anna"), "kept")
	s.do("DELETE", agent(first), nil).refused(http.StatusConflict, "TaskConflict", h.ID)
	for _, path := range []string{tea, oslo, dog} {
		s.get(path).ok(nil)
	}
	s.do("DELETE", userPath("anna", "/hold"), nil).is(http.StatusNoContent, nil)

	s.do("DELETE", agent(first), nil).is(http.StatusNoContent, nil)
	s.get(oslo).refused(http.StatusNotFound, "TaskNotFound")
	for _, path := range []string{tea, dog} {
		var left struct {
			State  string
			Source *struct{}
		}
		s.get(path).ok(&left)
		if left.State != "active" || left.Source != nil {
			t.Errorf("%s after its call was erased: %+v", path, left)
		}
	}
	s.do("DELETE", agent(second), nil).is(http.StatusNoContent, nil)
	s.get(tea).refused(http.StatusNotFound, "TaskNotFound")
	s.get(dog).ok(nil)
}
