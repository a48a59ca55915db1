package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// reworded are terms that were not heard, in words that stand nowhere in the call.
var reworded = []string{
	"Settles everything upfront", "Owes a penalty for leaving early", "Is bound until the end of the week", "Gives up the previous provider first", "Shares the coupon",
}

// ghosts is what a careless model makes of an offer whose terms were not heard, as facts of every
// other kind than agreements.
func (o offer) ghosts(i int) []string {
	var out []string
	thing := strings.TrimPrefix(o.heard, "I can offer you ")
	for _, kind := range []string{"event", "profile", "preference", "instruction"} {
		for _, content := range []string{"The caller took " + thing + " " + o.terms, "Wants it " + o.terms, reworded[i%len(reworded)], thing + ": " + strings.ToLower(reworded[(i+1)%len(reworded)])} {
			// from_seq 1: as the tool does it.
			out = append(out, fmt.Sprintf(`{"kind":%q,"content":%q,"source":{"agent_id":"ID","from_seq":%d,"to_seq":5,"quote":"yes, that is fine","speaker":"user"}}`, kind, content, 1+i%2*4))
		}
	}
	return out
}

// truths are facts that callers say themselves, and how a model words them.
var truths = []struct{ said, content, quote string }{
	{"I live in Bonn now.", "Lives in Bonn", "live in Bonn"},
	{"I am allergic to peanuts.", "Has an allergy to peanuts", "allergic to peanuts"},
	{"My daughter is called Mia.", "Daughter is named Mia", "daughter is called Mia"},
	{"Please call me in the mornings only.", "Prefers calls in the morning", "call me in the mornings only"},
	{"I work as a nurse.", "Is a nurse", "work as a nurse"},
	{"We keep two dogs at home.", "Has two dogs", "two dogs"},
	{"I never drink coffee.", "Does not drink coffee", "never drink coffee"},
	{"Ich wohne jetzt in Ulm.", "Wohnt in Ulm", "wohne jetzt in Ulm"},
}

// TestGhosts: in 200 calls the terms of an offer come after the barge-in. No fact of any kind holds
// them as true, in their words or in others, by a proof that a client sends, by an extraction or by
// the model's tool, before or after late evidence. What the callers said themselves is true all the
// time.
func TestGhosts(t *testing.T) {
	t.Parallel()
	s := start(t)
	const calls = 200
	ids := make([]string, calls)
	who := func(i int) string { return fmt.Sprint("ghost-", i) }
	want := func(i int) string { return truths[i%len(truths)].content }
	check := func(when string) {
		t.Helper()
		for i := range ids {
			if got := s.facts(who(i), "").texts(); !slices.Equal(got, []string{want(i)}) {
				t.Errorf("%s, call %d (%q): %q", when, i, offers(calls)[i].rest, got)
			}
		}
	}
	late := func(i int) bool { return i%2 == 1 }
	drafts := 0
	for i, o := range offers(calls) {
		truth := truths[i%len(truths)]
		ids[i] = s.join(fmt.Sprint("call ", i), caller(who(i)))
		s.say(ids[i], user("Hello."), assistant("Hello, how can I help?"), user(truth.said), assistant(o.heard+o.rest))
		cut := map[string]any{"heard": o.heard, "turn_id": 1}
		if !late(i) {
			s.interrupt(ids[i], cut).ok(nil)
		}
		s.say(ids[i], user("Yes, that is fine."))
		s.addFact(who(i), fmt.Sprintf(`{"content":%q,"source":{"agent_id":%q,"from_seq":3,"to_seq":3,"quote":%q,"speaker":"user"}}`, truth.content, ids[i], truth.quote))
		var entries []string
		for _, g := range o.ghosts(i) {
			a := s.post(factsPath(who(i)), strings.Replace(g, "ID", ids[i], 1))
			if a.status >= 500 {
				t.Errorf("%d %s", a.status, a.body)
			}
			var flat map[string]any
			if err := json.Unmarshal([]byte(g), &flat); err != nil {
				t.Fatal(err)
			}
			for k, v := range flat["source"].(map[string]any) {
				flat[k] = v
			}
			delete(flat, "source")
			delete(flat, "agent_id")
			flat["content"] = "So: " + flat["content"].(string)
			b, _ := json.Marshal(flat)
			entries = append(entries, string(b))
		}
		var out factList
		body, _ := json.Marshal(map[string]string{"agent_id": ids[i], "answer": "[" + strings.Join(entries, ",") + "]"})
		s.post(factsPath(who(i), "/extract"), body).ok(&out)
		drafts += len(out.Facts)
	}
	check("before late evidence")
	if drafts == 0 {
		t.Error("no draft was kept: the test proves nothing about late evidence")
	}
	for i, o := range offers(calls) {
		if late(i) {
			s.interrupt(ids[i], map[string]any{"heard": o.heard, "turn_id": 1}).ok(nil)
		}
	}
	check("after late evidence")
	for i, o := range offers(calls) { // less than before
		s.interrupt(ids[i], map[string]any{"heard": strings.Join(strings.Fields(o.heard)[:4], " "), "turn_id": 1}).ok(nil)
	}
	check("after evidence of less")

	// The half that was heard: an agreement to it may have had a condition, another fact stands.
	id := s.join("half", caller("half"))
	s.say(id, user("Hello."), assistant("I can offer you the yearly plan but only if you pay a cancellation fee."))
	s.interrupt(id, map[string]any{"heard": "I can offer you the yearly plan"}).ok(nil)
	s.say(id, user("Yes, that is fine."))
	for kind, state := range map[string]string{"agreement": "draft", "preference": "active"} {
		f := s.addFact("half", fmt.Sprintf(`{"kind":%q,"content":"The caller wants the yearly plan","source":{"agent_id":%q,"from_seq":2,"to_seq":3,"quote":"yes, that is fine","speaker":"user"}}`, kind, id))
		if f.State != state {
			t.Errorf("%s to the heard half is %s", kind, f.State)
		}
	}
}
