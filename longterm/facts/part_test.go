package facts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory/agents"
)

// part asks what is new in a running call and stores an answer.
func (k *kit) part(id string, from facts.Read, running bool, answer string) (asked string, to facts.Read, out facts.Extracted) {
	k.t.Helper()
	p, to, ok, err := k.Part(k.ctx, project, anna, id, from, running)
	if err != nil {
		k.t.Fatal(err)
	}
	if !ok {
		return "", to, out
	}
	_, asked, _ = strings.Cut(p.User, "\n\n")
	if out, err = k.ExtractPart(k.ctx, project, anna, id, answer, from, to); err != nil {
		k.t.Fatal(err)
	}
	return asked, to, out
}

func told(kind, content string, from, to int, quote string) string {
	return fmt.Sprintf(`{"kind":%q,"content":%q,"speaker":"user","from_seq":%d,"to_seq":%d,"quote":%q}`, kind, content, from, to, quote)
}

// TestPart: a running call is read up to the caller's last words that were answered. What was read
// is shown again but not stored again, and the end of the call reads the rest.
func TestPart(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: I live in Bonn.")
	if asked, to, _ := k.part(id, facts.Read{}, true, ""); asked != "" || to.UpTo != 0 {
		t.Fatalf("before the answer: %q, %+v", asked, to)
	}
	k.say(id, "assistant", "Nice. Anything else?")
	bonn := told("profile", "Lives in Bonn", 1, 1, "live in Bonn")
	asked, first, out := k.part(id, facts.Read{}, true, "["+bonn+"]")
	if asked != "Turns of the call:\n1 user: \"I live in Bonn.\"" || first.UpTo != 1 || len(out.Facts) != 1 {
		t.Fatalf("%q, %+v, %+v", asked, first, out)
	}
	if asked, _, _ := k.part(id, first, true, ""); asked != "" {
		t.Errorf("nothing is new: %q", asked)
	}
	k.say(id, "user", "I have two dogs.")
	k.say(id, "assistant", "I can offer you the large room| for 90 euros")
	again := told("profile", "Home town is Bonn", 1, 1, "I live in Bonn")
	spoken := told("event", "Takes the large room", 4, 4, "the large room")
	asked, second, out := k.part(id, first, true, "["+again+","+told("profile", "Has two dogs", 3, 3, "two dogs")+","+spoken+"]")
	want := "Turns before, which were read for facts already. They are for understanding only, but for a proposal to which the caller agrees below:\n1 user: \"I live in Bonn.\"\n\n" +
		"Turns of the call:\n2 assistant: \"Nice. Anything else?\"\n3 user: \"I have two dogs.\""
	if asked != want || second.UpTo != 3 || len(out.Facts) != 1 || out.Facts[0].Content != "Has two dogs" || !slices.Equal(reasons(out.Rejected), []string{"0 duplicate", "2 no_source"}) {
		t.Errorf("%q, %+v, %v, %v", asked, second, contents(out.Facts), reasons(out.Rejected))
	}
	k.say(id, "user", "Yes, please.")
	k.say(id, "assistant", "Done.")
	large := `{"kind":"agreement","content":"Takes the large room","speaker":"assistant","from_seq":4,"to_seq":5,"quote":"the large room"}`
	asked, third, out := k.part(id, second, false, "["+again+","+large+"]")
	if !strings.Contains(asked, "\n\nTurns of the call:\n4 ") || third.UpTo != 6 || len(out.Facts) != 1 || out.Facts[0].State != facts.Draft {
		t.Errorf("%q, %+v, %v, %v", asked, third, contents(out.Facts), reasons(out.Rejected))
	}
	// Evidence that comes later still counts, and what it changes is read again.
	k.heard(id, "Done.")
	if asked, _, _ = k.part(id, second, false, ""); asked != "" {
		t.Errorf("the caller said nothing more: %q", asked)
	}
}

// TestPartTwice: a server that ended between the facts and the note of how far it read asks for the
// rest alone, and an answer to the same part stores nothing more.
func TestPartTwice(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: I live in Bonn.", "assistant: Nice.")
	k.part(id, facts.Read{}, true, "["+told("profile", "Lives in Bonn", 1, 1, "live in Bonn")+"]")
	other := "[" + told("profile", "Home is Bonn", 1, 1, "in Bonn") + "]"
	if out, err := k.ExtractPart(k.ctx, project, anna, id, other, facts.Read{}, facts.Read{UpTo: 1}); err != nil || len(out.Facts) != 0 {
		t.Errorf("the same part: %v, %v", contents(out.Facts), err)
	}
	if asked, _, _ := k.part(id, facts.Read{}, false, other); asked != "" {
		t.Errorf("nothing is left: %q", asked)
	}
	k.say(id, "user", "I have two dogs.")
	k.say(id, "assistant", "Good.")
	asked, _, out := k.part(id, facts.Read{}, false, "["+other[1:len(other)-1]+","+told("profile", "Has two dogs", 3, 3, "two dogs")+"]")
	if !strings.HasSuffix(asked, "Turns of the call:\n2 assistant: \"Nice.\"\n3 user: \"I have two dogs.\"\n4 assistant: \"Good.\"") || !slices.Equal(contents(out.Facts), []string{"Has two dogs"}) {
		t.Errorf("%q, %v", asked, contents(out.Facts))
	}
}

// TestPartChanged: an answer about which an earlier part knew less is read again with the caller's
// next words, and only what rests on it is stored.
func TestPartChanged(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: Hello.", "assistant: ?You get the plan with a gift", "user: Fine.", "user: I live in Bonn.", "assistant: Good.")
	_, read, out := k.part(id, facts.Read{}, true, "["+told("profile", "Lives in Bonn", 4, 4, "live in Bonn")+"]")
	if len(out.Facts) != 1 || read.UpTo != 4 {
		t.Fatalf("%+v, %v, %v", read, contents(out.Facts), reasons(out.Rejected))
	}
	all, turn := "You get the plan with a gift", int64(0)
	if _, err := k.calls.Turns.Interrupt(k.ctx, project, id, agents.InterruptRequest{TurnID: &turn, Heard: &all}); err != nil {
		t.Fatal(err)
	}
	asked, _, out := k.part(id, read, false, "["+told("event", "Takes the plan with a gift", 2, 3, "Fine.")+","+told("profile", "Home is Bonn", 2, 4, "I live in Bonn")+"]")
	if !strings.HasSuffix(asked, "Turns of the call:\n2 assistant: \"?You get the plan with a gift\"\n3 user: \"Fine.\"\n5 assistant: \"Good.\"") ||
		!slices.Equal(contents(out.Facts), []string{"Takes the plan with a gift"}) || out.Facts[0].State != facts.Active {
		t.Errorf("%q, %v, %v", asked, contents(out.Facts), reasons(out.Rejected))
	}
}

// TestPartAgreement: consent that comes after the proposal was read proves it, once; and what was a
// draft is active when the caller says it.
func TestPartAgreement(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: Hello.", "assistant: I can offer you the large room for 90 euros.", "user: What does breakfast cost?", "assistant: It is free.")
	_, read, _ := k.part(id, facts.Read{}, true, "[]")
	k.say(id, "user", "Yes, please.")
	k.say(id, "assistant", "Done.")
	large := `[{"kind":"agreement","content":"Takes the large room for 90 euros","speaker":"assistant","from_seq":2,"to_seq":2,"quote":"the large room for 90 euros"}]`
	_, next, out := k.part(id, read, true, large)
	if read.UpTo != 3 || len(out.Facts) != 1 || out.Facts[0].State != facts.Active {
		t.Fatalf("%+v, %v, %v", read, contents(out.Facts), reasons(out.Rejected))
	}
	k.say(id, "user", "And a parking space.")
	k.say(id, "assistant", "Then I keep a place next to us| for ten euros a day.")
	if _, _, out = k.part(id, next, true, strings.ReplaceAll(large, "Takes", "Booked")); len(out.Facts) != 0 {
		t.Errorf("the same agreement in other words: %v", contents(out.Facts))
	}
	k.say(id, "user", "Count me in.")
	k.say(id, "assistant", "Good.")
	parking := func(seq int, quote string) string {
		return "[" + told("event", "Needs parking beside the house", seq, seq, quote) + "]"
	}
	if _, next, out = k.part(id, next, true, parking(9, "Count me in.")); len(out.Facts) != 1 || out.Facts[0].State != facts.Draft {
		t.Fatalf("%v, %v", contents(out.Facts), reasons(out.Rejected))
	}
	draft := out.Facts[0].ID
	k.say(id, "user", "I need parking beside the house.")
	k.say(id, "assistant", "Good.")
	k.part(id, next, true, parking(11, "I need parking beside the house."))
	if f, err := k.Get(k.ctx, project, anna, draft); err != nil || f.State != facts.Active || f.Source.FromSeq != 11 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestPartFull: a running call that has as many facts as it may is not asked about any more. Its
// end may add agreements alone.
func TestPartFull(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna)
	var entries []string
	for i := range facts.MaxExtracted + 1 {
		k.say(id, "user", fmt.Sprintf("I own a blue-%d house.", i))
		k.say(id, "assistant", "I see.")
		entries = append(entries, told("profile", fmt.Sprintf("Owns a blue-%d house", i), 2*i+1, 2*i+1, fmt.Sprintf("a blue-%d house", i)))
	}
	_, to, out := k.part(id, facts.Read{}, true, "["+strings.Join(entries, ",")+"]")
	k.say(id, "user", "I own a boat.")
	k.say(id, "assistant", "I see.")
	if asked, _, _ := k.part(id, to, true, ""); len(out.Facts) != facts.MaxExtracted || asked != "" {
		t.Errorf("%d facts, then %q", len(out.Facts), asked)
	}
	k.say(id, "assistant", "I can offer you a berth for 90 euros.")
	k.say(id, "user", "Yes, please.")
	n := 2*facts.MaxExtracted + 2
	berth := fmt.Sprintf(`{"kind":"agreement","content":"Takes a berth for 90 euros","speaker":"assistant","from_seq":%d,"to_seq":%d,"quote":"a berth for 90 euros"}`, n+3, n+3)
	_, _, out = k.part(id, to, false, "["+told("profile", "Owns a boat", n+1, n+1, "a boat")+","+berth+"]")
	if !slices.Equal(contents(out.Facts), []string{"Takes a berth for 90 euros"}) || !slices.Equal(reasons(out.Rejected), []string{"0 too_many"}) {
		t.Errorf("%v, %v", contents(out.Facts), reasons(out.Rejected))
	}
}
