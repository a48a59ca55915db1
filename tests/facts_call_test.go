package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	eventtype "github.com/heardlog/heardlog/internal/event"
)

// offer is an answer with a proposal: what comes before a barge-in, and the price, date or
// condition after it.
type offer struct{ heard, rest, terms string }

// offers returns n different ones.
func offers(n int) []offer {
	things := []string{"the large room", "the yearly plan", "a new router", "the repair", "the extended warranty", "the morning flight", "a table by the window", "the second delivery"}
	rests := []struct{ text, terms string }{
		{" for %d euros a month", "for %d euros a month"}, {" at %d dollars in total", "at %d dollars"}, {" on the %dth of May", "on the %dth of May"}, {" next Thursday at %d o'clock", "on Thursday at %d"},
		{" if you cancel your old contract by %d", "if the old contract is cancelled by %d"}, {" provided that you prepay %d percent", "with a prepayment of %d percent"},
		{" but only for customers who keep it until Friday, order %d", "for customers who keep it until Friday"}, {" for ninety euros with code %d", "for ninety euros"},
	}
	var out []offer
	for i := range n {
		r, number := rests[i/len(things)%len(rests)], 11+i
		out = append(out, offer{"I can offer you " + things[i%len(things)], strings.ReplaceAll(r.text, "%d", fmt.Sprint(number)), strings.ReplaceAll(r.terms, "%d", fmt.Sprint(number))})
	}
	return out
}

// claims is what a careless model makes of a call: agreements with terms that were not heard, by
// every kind of quote.
func (o offer) claims() string {
	agree := func(content, speaker, quote string, from, to int) string {
		return fmt.Sprintf(`{"op":"add","kind":"agreement","subject":"order","attribute":"terms","content":%q,"speaker":%q,"from_seq":%d,"to_seq":%d,"quote":%q}`, content, speaker, from, to, quote)
	}
	thing := strings.TrimPrefix(o.heard, "I can offer you ")
	return "Here you are: [" + strings.Join([]string{
		agree("Agreed on "+thing+" "+o.terms, "assistant", o.heard+o.rest, 2, 2),
		agree("Agreed "+o.terms, "assistant", strings.TrimSpace(o.rest), 2, 2),
		agree("The caller takes "+thing+" "+o.terms, "assistant", o.heard, 2, 2),
		agree("The caller accepts "+thing+" "+o.terms, "user", "yes, that is fine", 2, 3),
		agree("The caller agrees to the offer", "user", "yes, that is fine", 2, 3),
		agree("The caller agrees to the offer", "user", "yes, that is fine", 3, 3),
		agree("The caller accepts the terms "+o.terms, "assistant", o.rest, 1, 4),
	}, ",") + "]"
}

// TestAgreedMeansHeard: in 200 calls the price, date or condition comes after the barge-in. None of
// them leaves an active agreement, whether the evidence comes before the extraction, after it, or
// never.
func TestAgreedMeansHeard(t *testing.T) {
	t.Parallel()
	s := start(t)
	const calls = 200
	ids := make([]string, calls)
	user0 := func(i int) string { return fmt.Sprint("caller-", i) }
	active := func(when string) {
		t.Helper()
		for i := range ids {
			if got := s.facts(user0(i), "?kind=agreement"); got.Total != 0 {
				t.Errorf("%s, call %d: %q", when, i, got.texts())
			}
		}
	}
	drafts := 0
	for i, o := range offers(calls) {
		ids[i] = s.join(fmt.Sprint("call ", i), caller(user0(i)))
		s.say(ids[i], user("What can you do for me?"), assistant(o.heard+o.rest))
		late := i%2 == 1
		if !late {
			s.interrupt(ids[i], map[string]any{"heard": o.heard}).ok(nil)
		}
		s.say(ids[i], user("Yes, that is fine."))
		var out factList
		body, _ := json.Marshal(map[string]string{"agent_id": ids[i], "answer": o.claims()})
		s.post(factsPath(user0(i), "/extract"), body).ok(&out)
		for _, f := range out.Facts {
			if f.State == "active" {
				t.Errorf("call %d: active at once: %q by %q", i, f.Content, f.Source.Quote)
			}
		}
		drafts += len(out.Facts)
	}
	active("before late evidence")
	if drafts == 0 {
		t.Error("no draft was kept: the test proves nothing about late evidence")
	}
	for i, o := range offers(calls) {
		if i%2 == 1 {
			s.interrupt(ids[i], map[string]any{"heard": o.heard, "turn_id": 0}).ok(nil)
		}
	}
	active("after late evidence")
	s = s.again()
	active("after a restart")

	// The same offer, heard to its end, is agreed.
	o := offers(1)[0]
	id := s.join("heard", caller("heard"))
	s.say(id, user("What can you do for me?"), assistant(o.heard+o.rest))
	s.interrupt(id, map[string]any{"heard": o.heard + o.rest}).ok(nil)
	s.say(id, user("Yes, that is fine."))
	body, _ := json.Marshal(map[string]string{"agent_id": id, "answer": o.claims()})
	s.post(factsPath("heard", "/extract"), body).ok(nil)
	if got := s.facts("heard", "?kind=agreement"); got.Total == 0 {
		t.Error("an offer that was heard is not agreed")
	}
}

// TestFactsFromCall: a model is asked with what was heard, its answer is checked, and late evidence
// withdraws what was not heard. Endpoints learn of it.
func TestFactsFromCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"memory.fact.*"}})
	id := s.join("n", caller("anna"))
	s.say(id, user("I am allergic to peanuts."), assistant("We deliver on Monday at nine."), user("Great."))
	s.interrupt(id, map[string]any{"heard": "We deliver on Monday at nine."}).ok(nil)
	var asked factList
	s.post(factsPath("anna", "/extract"), map[string]string{"agent_id": id}).ok(&asked)
	if len(asked.Prompt) != 2 || !strings.Contains(asked.Prompt[1].Content, `1 user: "I am allergic to peanuts."`) {
		t.Fatalf("%+v", asked)
	}
	answer := `[{"op":"add","kind":"profile","content":"Allergic to peanuts","speaker":"user","from_seq":1,"to_seq":1,"quote":"allergic to peanuts","topics":["health"]},
		{"op":"add","kind":"agreement","content":"Delivery on Monday","speaker":"assistant","from_seq":2,"to_seq":2,"quote":"deliver on Monday"},
		{"op":"add","kind":"profile","content":"Allergic to milk","speaker":"user","from_seq":1,"to_seq":1,"quote":"allergic to milk"}]`
	var out factList
	s.post(factsPath("anna", "/extract"), map[string]string{"agent_id": id, "answer": answer}).ok(&out)
	if !slices.Equal(out.texts(), []string{"Allergic to peanuts", "Delivery on Monday"}) || len(out.Rejected) != 1 || out.Rejected[0].Reason != "quote" || out.Rejected[0].Index != 2 {
		t.Fatalf("%+v", out)
	}
	if f := out.Facts[1]; f.State != "active" || f.Source.Heard != "vendor_text" || f.By != "extractor@1" {
		t.Errorf("%+v", f)
	}
	s.interrupt(id, map[string]any{"heard": "We deliver", "turn_id": 0}).ok(nil)
	if got := s.facts("anna", ""); !slices.Equal(got.texts(), []string{"Allergic to peanuts"}) {
		t.Errorf("after late evidence: %q", got.texts())
	}
	var f fact
	if s.get(factsPath("anna", "/", out.Facts[1].ID)).ok(&f); f.State != "withdrawn" || f.Reason != "quote" {
		t.Errorf("%+v", f)
	}
	var told []string
	for range 3 {
		e := h.next(t)
		var p struct {
			UserID string `json:"user_id"`
			FactID string `json:"fact_id"`
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil || e.SID != id || p.UserID != "anna" {
			t.Errorf("%v: %s", err, e.body)
		}
		told = append(told, eventtype.Name(e.EventType)+" "+p.FactID)
	}
	slices.Sort(told)
	want := []string{"memory.fact.added " + out.Facts[0].ID, "memory.fact.added " + out.Facts[1].ID, "memory.fact.withdrawn " + out.Facts[1].ID}
	if slices.Sort(want); !slices.Equal(told, want) {
		t.Errorf("events %q", told)
	}
	h.quiet(t)
	s.post(factsPath("ben", "/extract"), map[string]string{"agent_id": id, "answer": "[]"}).refused(http.StatusBadRequest, "InvalidFieldValue", "another caller")
}

// TestRecallFacts: facts are found beside turns, a fact and the turn that proves it are one hit,
// and superseded ones are found as of their time.
func TestRecallFacts(t *testing.T) {
	t.Parallel()
	s := start(t)
	type recalled struct {
		Hits []struct {
			Kind, ID, Content string
			AgentID           string `json:"agent_id"`
			Also              []string
			Fact              *fact
		}
		Strength string
		Degraded []string
	}
	find := func(query, more string) (out []string, got recalled) {
		t.Helper()
		s.post(v1+"/recall", fmt.Sprintf(`{"user_id":"anna","query":%q,"deadline_ms":10000%s}`, query, more)).ok(&got)
		for _, h := range got.Hits {
			out = append(out, h.Kind+" "+h.Content)
		}
		return out, got
	}
	old := s.addFact("anna", `{"content":"Lives in Bonn","topics":["home"]}`)
	if got, all := find("Where does she have her home?", ""); !slices.Equal(got, []string{"fact Lives in Bonn"}) || all.Strength == "none" {
		t.Errorf("a caller without calls: %q, %+v", got, all)
	}
	id := s.join("n", caller("anna"))
	s.say(id, user("My parrot eats mangoes."), assistant("How nice."), user("The cellar is dry."))
	proved := s.addFact("anna", fmt.Sprintf(`{"content":"Has a parrot that eats mangoes","source":{"agent_id":%q,"from_seq":1,"to_seq":1,"quote":"parrot eats mangoes","speaker":"user"}}`, id))
	got, all := find("Which fruit does the parrot eat, mangoes?", `,"explain":true`)
	if n := strings.Count(strings.Join(got, "\n"), "mangoes"); n != 1 {
		t.Errorf("the fact and its turn are %d hits: %q", n, got)
	}
	if h := all.Hits[0]; len(h.Also) != 1 || h.Also[0] != proved.ID && h.Also[0] != id+":1" {
		t.Errorf("%+v", h)
	}
	if got, _ := find("parrot mangoes", `,"kinds":["turn"]`); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "fact") }) || len(got) == 0 {
		t.Errorf("turns alone: %q", got)
	}
	if got, _ := find("parrot mangoes", `,"kinds":["fact"],"budget_tokens":5`); !slices.Equal(got, []string{"fact Has a parrot that eats mangoes"}) {
		t.Errorf("facts alone: %q", got)
	}
	if got, _ := find("parrot mangoes", `,"role":"assistant"`); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "fact") }) {
		t.Errorf("of the assistant: %q", got)
	}
	if got, _ := find("parrot home", `,"kinds":["fact"],"agent_id":"`+id+`"`); !slices.Equal(got, []string{"fact Has a parrot that eats mangoes"}) {
		t.Errorf("of one call: %q", got)
	}
	s.do("PATCH", factsPath("anna", "/", old.ID), `{"content":"Lives in Ulm"}`).ok(nil)
	if got, _ := find("home", `,"kinds":["fact"]`); !slices.Equal(got, []string{"fact Lives in Ulm"}) {
		t.Errorf("now: %q", got)
	}
	if got, _ := find("home", `,"kinds":["fact"],"as_of":"`+old.CreatedAt+`"`); !slices.Equal(got, []string{"fact Lives in Bonn"}) {
		t.Errorf("as of before: %q", got)
	}
	if got, _ := find("submarine", `,"kinds":["fact"]`); len(got) != 0 {
		t.Errorf("nothing fits: %q", got)
	}
	s.putCaller("anna", "consent", `{"remember":"turns"}`)
	if got, _ := find("parrot mangoes", ""); len(got) == 0 || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "fact") }) {
		t.Errorf("with consent for turns alone: %q", got)
	}
	s.post(v1+"/recall", `{"user_id":"anna","query":"x","kinds":["call"]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "kinds")
	s.post(v1+"/recall", `{"user_id":"anna","query":"x","as_of":"then"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "as_of")
}
