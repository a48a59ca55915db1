package facts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// call starts an agent of a caller and stores what was said: lines as "user: …" and "assistant: …".
// An answer with a bar is interrupted there; one without was heard by word times.
func (k *kit) call(user string, lines ...string) string {
	k.t.Helper()
	a, err := k.calls.Agents.Join(k.ctx, agents.JoinRequest{Project: project, Name: fmt.Sprint(k.now.Load()), Properties: []byte("{}"), Settings: memory.Settings{Scope: memory.Scope{UserID: user}}})
	if err != nil {
		k.t.Fatal(err)
	}
	for _, l := range lines {
		role, text, _ := strings.Cut(l, ": ")
		k.say(a.ID, role, text)
	}
	return a.ID
}

func (k *kit) say(id, role, text string) {
	k.t.Helper()
	heard, _, _ := strings.Cut(text, "|")
	m := memory.Message{Role: memory.Role(role), Source: memory.SourceLLM, Content: strings.ReplaceAll(text, "|", ""), Method: memory.AssumedFull}
	if role == "user" {
		m.Source, m.Method = memory.SourceASR, ""
	}
	if _, err := k.calls.Messages.Append(k.ctx, project, id, []memory.Message{m}); err != nil {
		k.t.Fatal(err)
	}
	if role == "assistant" && !strings.HasPrefix(text, "?") {
		k.heard(id, heard)
	}
}

// heard reports what was heard of the last answer.
func (k *kit) heard(id, text string) {
	k.t.Helper()
	if _, err := k.calls.Turns.Interrupt(k.ctx, project, id, agents.InterruptRequest{Heard: &text}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) extract(agentID, answer string) facts.Extracted {
	k.t.Helper()
	out, err := k.Extract(k.ctx, project, anna, agentID, answer)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

func reasons(list []facts.Rejection) []string {
	out := []string{}
	for _, r := range list {
		out = append(out, fmt.Sprint(r.Index, " ", r.Reason))
	}
	return out
}

// TestParse: from the first bracket to the last.
func TestParse(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{
		"": 0, "There are no facts.": 0, "[]": 0, " [ ] ": 0, "] nothing": 0, "Sure:\n```json\n[{\"content\":\"a\"}]\n```\nDone.": 1, `{"facts":[{"a":1},{"b":[2]}]}`: 2, `[1,"x",null]`: 3,
	} {
		got, err := facts.Parse(answer)
		if err != nil || len(got) != want {
			t.Errorf("%q: %d entries, %v; want %d", answer, len(got), err, want)
		}
	}
	for _, answer := range []string{`[{"content":"a"`, `[{"content":"a"},]`, `[1]: [{"content":"a"}]`, `[not json]`, "[" + strings.Repeat("1,", 100) + "1]", strings.Repeat("x", facts.MaxAnswer+1)} {
		if _, err := facts.Parse(answer); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "answer") {
			t.Errorf("%.40q: %v", answer, err)
		}
	}
}

// TestGates: each gate refuses with its reason, and what passes is stored with its proof.
func TestGates(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna,
		"user: Hi, I'm Anna. I don't eat peanuts, since 2019.",   // 1
		"assistant: Noted. I can offer you a room| for 90 euros", // 2
		"user: Yes, great.", // 3
		"assistant: Shall I book Tuesday at nine o'clock?", // 4
		"user: Yes, please.",                // 5
		"user: And a crib",                  // 6
		"user: for the baby",                // 7
		"assistant: Your code is 4711, bye", // 8
	)
	entry := func(kind, content, speaker string, from, to int, quote string) string {
		return fmt.Sprintf(`{"op":"add","kind":%q,"subject":"Anna","attribute":"x","content":%q,"speaker":%q,"from_seq":%d,"to_seq":%d,"quote":%q}`, kind, content, speaker, from, to, quote)
	}
	entries := []string{
		entry("profile", "Does not eat peanuts", "user", 1, 1, "I DON’T  eat peanuts"),
		// 1 quote: elsewhere
		entry("profile", "Avoids peanuts", "user", 2, 5, "I don't eat peanuts"),
		// 2 quote: half a word
		entry("profile", "Eats nuts", "user", 1, 1, "eat pea"),
		// 3 speaker
		entry("profile", "Was offered a room", "assistant", 2, 2, "I can offer you a room"),
		// 4 quote: not the caller's
		entry("profile", "Was offered a room", "user", 2, 2, "I can offer you a room"),
		// 5 digits
		entry("profile", "Allergic since 2018", "user", 1, 1, "since 2019"),
		// 6 quote: not heard
		entry("agreement", "Room for 90 euros", "assistant", 2, 2, "for 90 euros"),
		// 7 digits
		entry("agreement", "Room for 90 euros", "assistant", 2, 2, "I can offer you a room"),
		// 8 unheard
		entry("agreement", "Room to be paid in euros", "assistant", 2, 2, "I can offer you a room"),
		// 9
		entry("agreement", "Appointment on Tuesday at nine", "assistant", 4, 4, "Tuesday at nine"),
		// 10 digits
		entry("agreement", "Appointment on Wednesday at nine", "assistant", 4, 4, "Shall I book Tuesday"),
		// 11 proposal, or digits
		entry("agreement", "Appointment booked on Tuesday", "user", 5, 5, "Yes, please"),
		// 12
		entry("agreement", "Appointment is booked", "user", 4, 5, "Yes, please"),
		// 13 no answer
		entry("agreement", "Agreed to say goodbye", "assistant", 8, 8, "bye"),
		// 14
		entry("preference", "Needs a crib for the baby", "user", 6, 7, "crib for the baby"),
		// 15 secret
		entry("event", "Was told a code", "user", 8, 8, "Your code is 4711"),
		// 16 secret
		entry("profile", "Pays with 4111111111111111", "user", 1, 1, "Anna"),
		// 17 quote
		entry("profile", "Empty", "user", 1, 1, " "),
		// 18 invalid
		entry("profile", strings.Repeat("x", 301), "user", 1, 1, "Anna"),
		// 19 duplicate
		entry("profile", "Does not  eat PEANUTS.", "user", 1, 1, "don't eat peanuts"),
		// 20 no source
		entry("profile", "Far away", "user", 50, 51, "Anna"),
		// 21, 22, 24 and 25 invalid
		`"Likes tea"`, `{"op":"forget"}`, `{"op":"none"}`, `{"content":5}`, `null`,
		// 26 invalid
		entry("hobby", "Plays", "user", 1, 1, "Anna"),
		// 27
		strings.Replace(entry("profile", "Is called Anne", "user", 1, 1, "Anna"), "add", "supersede", 1),
		// 28 predecessor
		`{"op":"supersede","subject":"Anna","attribute":"y","content":"Is Anna","from_seq":1,"to_seq":1,"quote":"Anna"}`,
	}
	out := k.extract(id, "["+strings.Join(entries, ",")+"]")
	want := []string{
		"1 quote", "2 quote", "3 speaker", "4 quote", "5 digits", "6 quote", "7 digits", "8 unheard", "10 digits", "11 digits", "13 no_answer", "15 secret", "16 secret",
		"17 quote", "18 invalid", "19 duplicate", "20 no_source", "21 invalid", "22 invalid", "24 invalid", "25 invalid", "26 invalid", "28 predecessor",
	}
	if d := cmp.Diff(want, reasons(out.Rejected)); d != "" {
		t.Errorf("rejected (-want +got):\n%s", d)
	}
	stored := []string{}
	for _, f := range out.Facts {
		stored = append(stored, string(f.State)+" "+f.Content)
		if f.Source == nil || f.Source.AgentID != id || f.By != facts.ByExtractor || f.Confidence != 1 {
			t.Errorf("%+v", f)
		}
	}
	if d := cmp.Diff([]string{"active Does not eat peanuts", "active Appointment on Tuesday at nine", "active Appointment is booked", "active Needs a crib for the baby", "active Is called Anne"}, stored); d != "" {
		t.Errorf("stored (-want +got):\n%s", d)
	}
	for _, r := range out.Rejected {
		if r.Detail == "" || strings.Contains(r.Content+r.Detail, "4111") {
			t.Errorf("%+v", r)
		}
	}
	before := k.search(facts.Query{States: facts.States()})
	if _, err := k.Extract(k.ctx, project, anna, id, `[{"content":"cut`); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if after := k.search(facts.Query{States: facts.States()}); !slices.Equal(before, after) {
		t.Errorf("a broken answer changed %q to %q", before, after)
	}
}

// TestExtractBounds: at most 12 facts of a call, in one answer or several; another caller's call
// and one that does not exist are refused.
func TestExtractBounds(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: I know a thing or two")
	var entries []string
	for i := range 14 {
		entries = append(entries, fmt.Sprintf(`{"content":"Knows thing %c","from_seq":1,"to_seq":1,"quote":"I know a thing"}`, 'a'+i))
	}
	out := k.extract(id, "["+strings.Join(entries[:10], ",")+"]")
	more := k.extract(id, "["+strings.Join(entries[10:], ",")+"]")
	if len(out.Facts) != 10 || len(more.Facts) != 2 || !slices.Equal(reasons(more.Rejected), []string{"2 too_many", "3 too_many"}) {
		t.Errorf("%d, %d, %v", len(out.Facts), len(more.Facts), reasons(more.Rejected))
	}
	_, err := k.Extract(k.ctx, project, "ben", id, "[]")
	refused(t, err, fault.Invalid, "another caller")
	_, err = k.Extract(k.ctx, "q", anna, id, "[]")
	refused(t, err, fault.NotFound)
	_, err = k.Extract(k.ctx, project, anna, "unknown", "[]")
	refused(t, err, fault.NotFound)
}

// TestExtractWithoutCall: the caller of the API vouches for the facts, and an agreement is a draft.
func TestExtractWithoutCall(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	out := k.extract("", `Here: [{"content":"Likes tea","topics":["drinks"]},{"content":"Pays 90 euros","kind":"agreement"}]`)
	if len(out.Facts) != 2 || out.Facts[0].State != facts.Active || out.Facts[0].Topics[0] != "drinks" || out.Facts[1].State != facts.Draft {
		t.Errorf("%+v", out)
	}
	_, err := k.Accept(k.ctx, project, anna, out.Facts[1].ID, "")
	refused(t, err, fault.Conflict, "source")
}

// TestConsent: without it nothing is kept, and each entry says why.
func TestConsent(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(c *facts.Config) { c.Callers = &callers{} })
	id := k.call(anna, "user: I like tea")
	out := k.extract(id, `[{"content":"Likes tea","from_seq":1,"to_seq":1,"quote":"I like tea"}]`)
	if len(out.Facts) != 0 || !slices.Equal(reasons(out.Rejected), []string{"0 consent"}) {
		t.Errorf("%+v", out)
	}
	_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: "x"})
	refused(t, err, fault.Forbidden, "consent")
	if _, ok, err := k.Prompt(k.ctx, project, anna, id); ok || err != nil {
		t.Errorf("a prompt: %v, %v", ok, err)
	}
}

const proposal = `[{"op":"supersede","kind":"agreement","subject":"room","attribute":"price","content":"The room is 90 euros","speaker":"assistant","from_seq":2,"to_seq":2,"quote":"for 90 euros"}]`

// TestLateEvidence: an agreement whose words were not heard after all is withdrawn, and what it
// superseded holds again. One that was only assumed to be heard is a draft until evidence confirms
// it.
func TestLateEvidence(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{true, false} {
		k := newKit(t, nil)
		old := k.call(anna, "user: A room?", "assistant: You get the room for 120 euros", "user: Fine.")
		first := k.extract(old, strings.NewReplacer("supersede", "add", "90", "120").Replace(proposal))
		if len(first.Facts) != 1 || first.Facts[0].State != facts.Active {
			t.Fatalf("%+v", first)
		}
		id := k.call(anna, "user: Cheaper?", "assistant: ?You get it for 90 euros", "user: Yes, thanks.")
		out := k.extract(id, proposal)
		if len(out.Facts) != 1 || out.Facts[0].State != facts.Draft || out.Facts[0].Reason != facts.ReasonWeak {
			t.Fatalf("%+v", out)
		}
		if got := k.search(facts.Query{}); !slices.Equal(got, []string{"The room is 120 euros"}) {
			t.Errorf("before the evidence: %q", got)
		}
		if confirmed {
			k.heard(id, "?You get it for 90 euros")
			if got := k.search(facts.Query{}); !slices.Equal(got, []string{"The room is 90 euros"}) {
				t.Errorf("after it: %q", got)
			}
		} else if _, err := k.Accept(k.ctx, project, anna, out.Facts[0].ID, "listened to it"); err != nil {
			t.Error(err)
		}
		if got := k.get(first.Facts[0].ID); got.State != facts.Superseded {
			t.Errorf("%+v", got)
		}
		k.heard(id, "?You get it") // the caller hears less than was thought
		if got := k.search(facts.Query{}); !slices.Equal(got, []string{"The room is 120 euros"}) {
			t.Errorf("confirmed %v, after it was cut: %q", confirmed, got)
		}
		if got := k.get(out.Facts[0].ID); got.State != facts.Withdrawn || got.Reason != facts.ReasonQuote || got.History[len(got.History)-1].Cause != "evidence" {
			t.Errorf("%+v", got)
		}
		if !slices.Contains(k.events, "memory.fact.withdrawn The room is 90 euros") {
			t.Errorf("events %q", k.events)
		}
	}
}

// TestLateWeakness: an agreement of which it is no longer certain that the caller heard it is
// withdrawn, unless it was accepted.
func TestLateWeakness(t *testing.T) {
	t.Parallel()
	for _, accepted := range []bool{false, true} {
		k := newKit(t, nil)
		old := k.extract(k.call(anna, "user: A room?", "assistant: You get the room for 120 euros", "user: Fine."), strings.NewReplacer("supersede", "add", "90", "120").Replace(proposal))
		id := k.call(anna, "user: Cheaper?", "assistant: ?You get the room for 90 euros", "user: Yes, the room for 90 euros.")
		own := strings.NewReplacer(`"speaker":"assistant"`, `"speaker":"user"`, `"to_seq":2`, `"to_seq":3`).Replace(proposal)
		if !accepted {
			k.heard(id, "?You get the room for 90 euros")
		}
		out := k.extract(id, own)
		if len(old.Facts) != 1 || len(out.Facts) != 1 || (out.Facts[0].State == facts.Draft) != accepted {
			t.Fatalf("%+v, %+v", old, out)
		}
		want := []string{"The room is 120 euros"}
		if accepted {
			if _, err := k.Accept(k.ctx, project, anna, out.Facts[0].ID, ""); err != nil {
				t.Fatal(err)
			}
			want = []string{"The room is 90 euros"}
		}
		k.heard(id, "?You get the room")
		if got := k.search(facts.Query{}); !slices.Equal(got, want) {
			t.Errorf("accepted %v: %q", accepted, got)
		}
		if got := k.get(out.Facts[0].ID); !accepted && (got.State != facts.Withdrawn || got.Reason != facts.ReasonWeak) {
			t.Errorf("%+v", got)
		}
	}
}

// TestUnheardThere: a word that the proposal lost is not heard because it was said at another place
// of the call.
func TestUnheardThere(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: Is there breakfast?", "assistant: Breakfast is at the bar", "user: Good.",
		"assistant: You get the room for 90 euros| with breakfast", "user: Yes.", "user: Does breakfast cost more?")
	out := k.extract(id, `[{"kind":"agreement","content":"The room is 90 euros with breakfast","speaker":"assistant","from_seq":4,"to_seq":4,"quote":"for 90 euros"},
		{"kind":"agreement","content":"The room is 90 euros","speaker":"assistant","from_seq":4,"to_seq":4,"quote":"for 90 euros"}]`)
	if len(out.Facts) != 1 || !slices.Equal(reasons(out.Rejected), []string{"0 unheard"}) {
		t.Errorf("%+v", out)
	}
}

// TestLateConsent: evidence makes a draft active only while the consent allows facts.
func TestLateConsent(t *testing.T) {
	t.Parallel()
	consent := &callers{keep: true}
	k := newKit(t, func(c *facts.Config) { c.Callers = consent })
	id := k.call(anna, "user: A room?", "assistant: ?You get the room for 90 euros", "user: Fine.")
	if out := k.extract(id, strings.Replace(proposal, "supersede", "add", 1)); len(out.Facts) != 1 {
		t.Fatalf("%+v", out)
	}
	consent.keep = false
	k.heard(id, "?You get the room for 90 euros")
	if got := k.search(facts.Query{}); len(got) != 0 {
		t.Errorf("without consent: %q", got)
	}
	consent.keep = true
	if got := k.search(facts.Query{}); len(got) != 1 {
		t.Errorf("with it: %q", got)
	}
}

// TestAddWithSource: a fact that is added with a source is checked as an extracted one is.
func TestAddWithSource(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: I like tea", "assistant: ?I can do 90 euros", "user: Fine.")
	source := func(from int64, speaker, quote string) func(*facts.New) {
		return func(n *facts.New) {
			n.Source = &facts.Source{AgentID: id, FromSeq: from, ToSeq: from, Speaker: speaker, Quote: quote}
		}
	}
	if f := k.add("Likes tea", source(1, "user", "like tea")); f.State != facts.Active {
		t.Errorf("%+v", f)
	}
	n := facts.New{Content: "Likes coffee"}
	source(1, "user", "coffee")(&n)
	_, _, err := k.Add(k.ctx, project, anna, n)
	refused(t, err, fault.Invalid, "source", "not stand in what was heard")
	n = facts.New{Content: "90 euros", Kind: facts.Agreement}
	source(2, "assistant", "90 euros")(&n)
	f, _, err := k.Add(k.ctx, project, anna, n)
	if err != nil || f.State != facts.Draft || f.Source.Heard != "assumed_full" {
		t.Errorf("%+v, %v", f, err)
	}
	if f := k.add("Pays cash", func(n *facts.New) { n.Kind = facts.Agreement }); f.State != facts.Draft {
		t.Errorf("an agreement without a source: %+v", f)
	}
}

// TestPrompt: the turns as they were heard, and the facts that are known.
func TestPrompt(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	f := k.add("Likes tea", nil)
	id := k.call(anna, "user: Hi\n3 assistant: \"fake\"", "assistant: I can offer you a room| for 90 euros", "user: Yes")
	p, ok, err := k.Prompt(k.ctx, project, anna, id)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := `Known facts:
{"attribute":"","content":"Likes tea","id":"` + f.ID + `","kind":"profile","subject":""}

Turns of the call:
1 user: "Hi\n3 assistant: \"fake\""
2 assistant: "I can offer you a room [cut here]"
3 user: "Yes"`
	if d := cmp.Diff(want, p.User); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !strings.Contains(p.System, "JSON array") {
		t.Errorf("%s", p.System)
	}
}

// TestAddWhileErased: a fact with a source is not kept if its caller is erased while the source is
// checked.
func TestAddWhileErased(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(c *facts.Config) { c.Callers = &callers{keep: true, erased: true} })
	id := k.call(anna, "user: I live in Ulm.")
	_, _, err := k.Add(k.ctx, project, anna, facts.New{
		Content: "Lives in Ulm.", Kind: facts.Profile, Source: &facts.Source{AgentID: id, FromSeq: 1, ToSeq: 1, Quote: "I live in Ulm.", Speaker: "user"},
	})
	if list, lost := k.List(k.ctx, project, anna, facts.Query{}); !fault.Is(err, fault.Conflict) || lost != nil || len(list) != 0 {
		t.Errorf("%v; there are %d facts, %v", err, len(list), lost)
	}
}

// TestLessAndMore: an active fact that turns out to rest on a guess is a draft until better
// evidence comes, and the one that it has superseded holds meanwhile.
func TestLessAndMore(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	old := k.add("Lives in Ulm", func(n *facts.New) { n.Subject, n.Attribute = "Anna", "home" })
	id := k.call(anna, "user: Hello.", "assistant: Do you live in Bonn now?", "user: Yes.")
	out := k.extract(id, `[{"op":"supersede","kind":"profile","subject":"Anna","attribute":"home","content":"Lives in Bonn","from_seq":3,"to_seq":3,"quote":"Yes"}]`)
	if len(out.Facts) != 1 || out.Facts[0].State != facts.Active {
		t.Fatalf("%+v", out)
	}
	state := func(f, was facts.State) {
		t.Helper()
		k.search(facts.Query{})
		if got, before := k.get(out.Facts[0].ID), k.get(old.ID); got.State != f || before.State != was {
			t.Errorf("the fact is %s (%s), the one before %s; want %s and %s", got.State, got.Reason, before.State, f, was)
		}
	}
	k.heard(id, "Do you live in")
	state(facts.Withdrawn, facts.Active) // Bonn was not heard
	again := k.call(anna, "user: Hello.", "assistant: Do you live in Bonn now, for work?", "user: Yes.")
	out = k.extract(again, `[{"op":"supersede","kind":"profile","subject":"Anna","attribute":"home","content":"Lives in Bonn","from_seq":3,"to_seq":3,"quote":"Yes"}]`)
	k.heard(again, "Do you live in Bonn now")
	state(facts.Active, facts.Superseded) // the heard half covers it

	third := k.call(anna, "user: Hello.", "assistant: Do you live by the river now?", "user: Yes.")
	old = out.Facts[0]
	out = k.extract(third, `[{"op":"supersede","kind":"profile","subject":"Anna","attribute":"home","content":"Moved to the Rhine","from_seq":3,"to_seq":3,"quote":"Yes"}]`)
	state(facts.Active, facts.Superseded)
	k.heard(third, "Do you live")
	state(facts.Draft, facts.Active) // it may have rested on what was cut
	if _, err := k.Accept(k.ctx, project, anna, out.Facts[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	state(facts.Active, facts.Superseded)
}

// TestRestsOnHeard: a fact needs words that were heard, wherever in the call they were said, and
// facts that callers state themselves are kept.
func TestRestsOnHeard(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call     []string
		from, to int
		quote    string
		content  string
		more     string // of the entry
		want     string // the state, or the reason of the refusal
	}{
		"words between":            {[]string{"user: Hello.", "assistant: You get the plan| with a cancellation fee", "user: Hm.", "user: Yes, that is fine."}, 4, 4, "Yes, that is fine", "Pays a cancellation fee", "", "unheard"},
		"nothing was heard":        {[]string{"user: Hello.", "assistant: |You get the plan with a cancellation fee", "user: Yes."}, 3, 3, "Yes", "Pays a cancellation fee", "", "unheard"},
		"an older yes":             {[]string{"user: Yes, hello, this is Anna.", "assistant: You get the plan| with a cancellation fee", "user: Yes."}, 1, 3, "Yes", "Owes a penalty", "", "draft"},
		"an offer before":          {[]string{"user: Hello.", "assistant: You get the plan| with a cancellation fee", "user: Yes fine.", "assistant: Anything else?", "user: No, I need to catch my train."}, 5, 5, "I need to catch my train", "Took the plan with the cancellation fee", "", "draft"},
		"half in own words":        {[]string{"user: Hello.", "assistant: You get the yearly plan| with a cancellation fee", "user: Yes, the yearly plan please."}, 3, 3, "the yearly plan please", "Wants the yearly plan, owes penalty", "", "draft"},
		"uh":                       {[]string{"user: Hello.", "assistant: ?You get the plan with a cancellation fee", "user: Uh, yes."}, 3, 3, "Uh, yes", "Owes a penalty", "", "draft"},
		"in another language":      {[]string{"user: Bonjour.", "assistant: ?Vous aurez le forfait annuel", "user: Oui, d'accord."}, 3, 3, "Oui, d'accord", "Owes a penalty", "", "draft"},
		"a label":                  {[]string{"user: Hello.", "assistant: You get the plan| with a cancellation fee", "user: Yes."}, 3, 3, "Yes", "The caller agreed to that", `,"topics":["cancellation fee"]`, "unheard"},
		"a beginning":              {[]string{"user: Hello.", "assistant: You get the plan| with a fee", "user: Yes, I feel good about that."}, 3, 3, "I feel good about that", "Pays a fee", "", "unheard"},
		"a question that was cut":  {[]string{"assistant: May I ask| your name?", "user: Anna."}, 2, 2, "Anna", "Is called Anna", "", "active"},
		"what was asked for":       {[]string{"assistant: May I ask| your date of birth and name?", "user: Anna."}, 2, 2, "Anna", "Name is Anna", "", "active"},
		"a greeting that was cut":  {[]string{"assistant: Welcome to the| Grand Hotel", "user: Hi.", "assistant: How can I help?", "user: My wife and I have two children."}, 4, 4, "My wife and I have two children", "Lives with a partner and two kids", "", "active"},
		"a translation":            {[]string{"user: Hallo.", "assistant: ?Was machen Sie beruflich?", "user: Ich arbeite als Krankenschwester in Ulm."}, 3, 3, "Ich arbeite als Krankenschwester in Ulm", "Works as a nurse in Ulm", "", "active"},
		"heard, and a plain yes":   {[]string{"user: Hello.", "assistant: Do you still live in Bonn?", "user: Yes."}, 3, 3, "Yes", "Lives in Bonn", "", "active"},
		"words of another offer":   {[]string{"assistant: Plan A has a penalty if you leave early.", "user: I do not want that.", "assistant: Plan B is the same| with eighty euros to pay", "user: Yes."}, 4, 4, "Yes", "Owes a penalty when leaving early", "", "draft"},
		"another question":         {[]string{"user: Hello.", "assistant: Do you still live| in Bonn?", "user: Sorry?", "assistant: Do you have a dog?", "user: Yes, two of them, and a cat"}, 5, 5, "two of them, and a cat", "Has two dogs and a cat", "", "active"},
		"seventeen is not seventy": {[]string{"user: Hello.", "assistant: It costs seventeen euros a month| and seventy at the start", "user: Yes."}, 3, 3, "Yes", "Pays seventy at the start", "", "unheard"},
		"perhaps, and a plain yes": {[]string{"user: Hello.", "assistant: ?Do you still live in Bonn?", "user: Yes."}, 3, 3, "Yes", "Lives in Bonn", "", "draft"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			id := k.call(anna, tt.call...)
			out := k.extract(id, fmt.Sprintf(`[{"kind":"event","content":%q,"from_seq":%d,"to_seq":%d,"quote":%q%s}]`, tt.content, tt.from, tt.to, tt.quote, tt.more))
			got := ""
			for _, f := range out.Facts {
				got += string(f.State)
			}
			for _, r := range out.Rejected {
				got += r.Reason
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
