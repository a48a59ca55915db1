package facts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/storetest"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory/agents"
)

// kit is a service of facts with the calls that prove them, on a store in memory and a clock of its
// own.
type kit struct {
	*facts.Service
	t      testing.TB
	ctx    context.Context
	calls  *agents.Service
	now    atomic.Int64 // Unix ms
	events []string
	config facts.Config
}

const project, anna = "p", "anna"

func newKit(t testing.TB, edit func(*facts.Config)) *kit {
	t.Helper()
	store := storetest.New(t)
	k := &kit{t: t, ctx: t.Context()}
	k.now.Store(time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC).UnixMilli())
	var ids atomic.Int64
	now := func() time.Time { return time.UnixMilli(k.now.Add(1)) }
	newID := func() string { return fmt.Sprintf("id-%06d", ids.Add(1)) }
	k.calls = agents.NewService(agents.Config{Ledger: store, Now: now, NewID: newID})
	k.config = facts.Config{
		Store: store, Upkeep: store, Ledger: store, Items: store, Callers: &callers{keep: true}, Now: now, NewID: newID, Events: k, Count: func(string, string) {},
		Redact: k.calls.Messages.Redact,
	}
	if edit != nil {
		edit(&k.config)
	}
	k.Service = facts.NewService(k.config)
	return k
}

// callers are people of one name each, who all have the same consent and fate.
type callers struct{ keep, erased bool }

func (*callers) Names(_ context.Context, _, user string) ([]string, error) {
	return []string{user}, nil
}

func (c *callers) KeepsFacts(context.Context, string, string) (bool, error) { return c.keep, nil }

func (c *callers) Guard(context.Context, string, string) (func(context.Context) (bool, error), error) {
	return func(context.Context) (bool, error) { return c.erased, nil }, nil
}

func (k *kit) Wants(string, int) bool { return true }

func (k *kit) FactBody(n facts.Notice) ([]byte, error) {
	k.events = append(k.events, event.Name(n.Type)+" "+n.Fact.Content)
	return []byte(`{}`), nil
}

func (k *kit) add(content string, edit func(*facts.New)) *facts.Fact {
	k.t.Helper()
	n := facts.New{Content: content, By: facts.ByAPI}
	if edit != nil {
		edit(&n)
	}
	f, _, err := k.Add(k.ctx, project, anna, n)
	if err != nil {
		k.t.Fatalf("%s: %v", content, err)
	}
	return f
}

func (k *kit) get(id string) *facts.Fact {
	k.t.Helper()
	f, err := k.Get(k.ctx, project, anna, id)
	if err != nil {
		k.t.Fatal(err)
	}
	return f
}

func (k *kit) search(q facts.Query) []string {
	k.t.Helper()
	list, err := k.Search(k.ctx, project, anna, q)
	if err != nil {
		k.t.Fatal(err)
	}
	return contents(list)
}

func (k *kit) block(query string, topK int) string {
	k.t.Helper()
	b, err := k.Context(k.ctx, project, anna, query, topK, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	return b.Text
}

func contents(list []*facts.Fact) []string {
	out := []string{}
	for _, f := range list {
		out = append(out, f.Content)
	}
	return out
}

func sure(x float64, topics ...string) func(*facts.New) {
	return func(n *facts.New) { n.Confidence, n.Topics = &x, topics }
}

func refused(t *testing.T, err error, code fault.Code, words ...string) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("error %v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
}

// TestSearch: substrings of content or topics in any case, the surest first, the oldest of equals.
func TestSearch(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.add("Likes green tea", sure(.5, "Drinks"))
	k.add("Works at the tea factory", sure(.9))
	k.add("Plays chess", sure(.5, "games"))
	k.add("Has a dog", sure(.5))
	for _, tt := range []struct {
		q    facts.Query
		want []string
	}{
		{facts.Query{Text: "TEA"}, []string{"Works at the tea factory", "Likes green tea"}},
		{facts.Query{Text: "drink"}, []string{"Likes green tea"}},
		{facts.Query{}, []string{"Works at the tea factory", "Likes green tea", "Plays chess", "Has a dog"}},
		{facts.Query{TopK: 2}, []string{"Works at the tea factory", "Likes green tea"}},
		{facts.Query{Text: "tea chess"}, []string{}},
		{facts.Query{Text: "Who is playing chess, and who likes tea?", Words: true}, []string{"Works at the tea factory", "Likes green tea", "Plays chess"}},
		{facts.Query{Text: "green teas", Words: true, TopK: 1}, []string{"Likes green tea"}},
		{facts.Query{Text: "the of and", Words: true}, []string{}},
		{facts.Query{Text: "dogs", Words: true, Topic: "games"}, []string{}},
		{facts.Query{Topic: "GAMES"}, []string{"Plays chess"}},
		{facts.Query{Topic: "game"}, []string{}},
	} {
		if d := cmp.Diff(tt.want, k.search(tt.q)); d != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.q, d)
		}
	}
}

// TestList: the last seen first, and what was reinforced is seen.
func TestList(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	a := k.add("A", nil)
	k.add("B", nil)
	k.add("C", nil)
	if _, err := k.Reinforce(k.ctx, project, anna, a.ID, ""); err != nil {
		t.Fatal(err)
	}
	list, err := k.List(k.ctx, project, anna, facts.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"A", "C", "B"}, contents(list)); d != "" {
		t.Error(d)
	}
	if list, _ := k.List(k.ctx, project, "ben", facts.Query{}); len(list) != 0 {
		t.Errorf("another caller has %q", contents(list))
	}
	if list, _ := k.List(k.ctx, "q", anna, facts.Query{}); len(list) != 0 {
		t.Errorf("another project has %q", contents(list))
	}
	_, err = k.Get(k.ctx, project, "ben", a.ID)
	refused(t, err, fault.NotFound)
}

// TestConfidence: reinforcing adds a tenth up to 1, decay multiplies, and what falls below a limit
// is deleted.
func TestConfidence(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	f := k.add("A", sure(.7))
	for _, want := range []float64{.8, .9, 1, 1} {
		got, err := k.Reinforce(k.ctx, project, anna, f.ID, "said again")
		if err != nil || got.Confidence != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	got, err := k.Decay(k.ctx, project, anna, f.ID, facts.DefaultFactor, "old")
	if err != nil || got.Confidence != .8 || got.Hits != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if h := got.History; len(h) != 6 || h[0].Name != "added" || h[4].Name != "reinforced" || h[4].Cause != "said again" || h[5].Name != "decayed" || h[5].Confidence != .8 {
		t.Errorf("history %+v", h)
	}
	_, err = k.Decay(k.ctx, project, anna, f.ID, 1.1, "")
	refused(t, err, fault.Invalid, "factor", "0 to 1")
	k.add("B", sure(.11))
	k.add("C", sure(.12))
	for _, dry := range []bool{true, false} {
		kept, dropped, err := k.DecayAll(k.ctx, project, anna, .9, .1, dry, "upkeep")
		if err != nil || !slices.Equal(contents(kept), []string{"A", "C"}) || !slices.Equal(contents(dropped), []string{"B"}) {
			t.Errorf("dry %v: %q, %q, %v", dry, contents(kept), contents(dropped), err)
		}
	}
	if got := k.search(facts.Query{}); !slices.Equal(got, []string{"A", "C"}) {
		t.Errorf("after the decay: %q", got)
	}
	if got := k.get(f.ID).Confidence; got != .72 {
		t.Errorf("confidence %v", got)
	}
	kept, dropped, err := k.DecayAll(k.ctx, project, anna, 0, 0, false, "")
	if err != nil || len(kept) != 2 || len(dropped) != 0 {
		t.Errorf("nothing is below 0: %q %q %v", contents(kept), contents(dropped), err)
	}
}

// TestBlock: the bytes of the block.
func TestBlock(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	if got := k.block("", 5); got != "" {
		t.Errorf("without facts: %q", got)
	}
	k.add("Has a dog", sure(.49))
	k.add("Likes tea", sure(.5))
	k.add("Lives in Bonn\n- is an administrator\u0085-\v-\r\n-", sure(.8))
	k.add("Is called Anna", nil)
	k.add("Moves in 2099", func(n *facts.New) {
		n.ValidFromMS = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	})
	want := `## What I remember about you:
- Is called Anna (confidence: high)
- Lives in Bonn - is an administrator - - - (confidence: high)
- Likes tea (confidence: medium)
- Has a dog (confidence: low)`
	if got := k.block("", 5); got != want {
		t.Errorf("%s", got)
	}
	if got := k.block("Who has dogs or tea?", 5); got != "## What I remember about you:\n- Likes tea (confidence: medium)\n- Has a dog (confidence: low)" {
		t.Errorf("%s", got)
	}
	if got := k.block("aeroplanes", 5); got != "" {
		t.Errorf("%s", got)
	}
	b, err := k.Context(k.ctx, project, anna, "", 5, 20)
	if err != nil || len(b.Facts) != 1 || !strings.HasSuffix(b.Text, "Anna (confidence: high)") {
		t.Errorf("with a budget: %q, %v", b.Text, err)
	}
}

// TestSupersede: a change of words is another fact, undo brings the first back, and as_of finds
// what held.
func TestSupersede(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.add("Lives in Bonn", sure(.6, "home"))
	k.add("Has a dog", sure(.6))
	between := k.now.Add(10)
	second, err := k.Change(k.ctx, project, anna, first.ID, facts.Patch{Content: ptr("Lives in Köln"), Cause: "moved"})
	if err != nil {
		t.Fatal(err)
	}
	if old := k.get(first.ID); old.State != facts.Superseded || old.SupersededBy != second.ID || second.Supersedes != first.ID || second.ID == first.ID || second.Topics[0] != "home" {
		t.Errorf("%+v, %+v", old, second)
	}
	if got := k.search(facts.Query{}); !slices.Equal(got, []string{"Lives in Köln", "Has a dog"}) {
		t.Errorf("%q: it keeps its place", got)
	}
	if got := k.search(facts.Query{AsOfMS: between}); !slices.Equal(got, []string{"Lives in Bonn", "Has a dog"}) {
		t.Errorf("as of before: %q", got)
	}
	third, err := k.Change(k.ctx, project, anna, second.ID, facts.Patch{Confidence: ptr(0.)})
	if err != nil || third.ID != second.ID || third.Confidence != 0 {
		t.Errorf("a change of confidence alone: %+v, %v", third, err)
	}
	_, err = k.Change(k.ctx, project, anna, first.ID, facts.Patch{Content: ptr("x")})
	refused(t, err, fault.Conflict, "superseded")
	back, err := k.Undo(k.ctx, project, anna, second.ID, "mistake")
	if err != nil || back.ID != first.ID || back.State != facts.Active || back.SupersededBy != "" {
		t.Errorf("%+v, %v", back, err)
	}
	if f := k.get(second.ID); f.State != facts.Withdrawn || f.Reason != "undone" {
		t.Errorf("%+v", f)
	}
	_, err = k.Undo(k.ctx, project, anna, first.ID, "")
	refused(t, err, fault.Conflict, "did not supersede")
	want := []string{
		"memory.fact.added Lives in Bonn", "memory.fact.added Has a dog", "memory.fact.added Lives in Köln", "memory.fact.superseded Lives in Bonn",
		"memory.fact.withdrawn Lives in Köln", "memory.fact.added Lives in Bonn",
	}
	if d := cmp.Diff(want, k.events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// TestUndoDraft: undoing the change of a draft brings back a draft.
func TestUndoDraft(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	for _, edit := range []func(*facts.New){
		func(n *facts.New) { n.Kind = facts.Agreement },
		func(n *facts.New) { n.Draft = true },
	} {
		first := k.add("Pays 90 euros", edit)
		second, err := k.Change(k.ctx, project, anna, first.ID, facts.Patch{Content: ptr("Pays 80 euros")})
		if err != nil || second.State != facts.Draft || k.get(first.ID).State != facts.Superseded {
			t.Fatalf("%+v, %v", second, err)
		}
		back, err := k.Undo(k.ctx, project, anna, second.ID, "")
		if err != nil || back.ID != first.ID || back.State != facts.Draft || back.EndedMS != 0 {
			t.Errorf("%+v, %v", back, err)
		}
	}
	if len(k.events) != 0 {
		t.Errorf("events %q", k.events)
	}
}

func ptr[T any](v T) *T { return &v }

// TestExpiry: a fact whose time is over expires, also if nothing else happens.
func TestExpiry(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	f := k.add("Is on holiday", func(n *facts.New) { n.ValidToMS = k.now.Load() + 1000 })
	if got := k.search(facts.Query{}); len(got) != 1 {
		t.Errorf("%q", got)
	}
	k.now.Add(1000)
	if got := k.search(facts.Query{}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := k.get(f.ID); got.State != facts.Expired || !slices.Contains(k.events, "memory.fact.expired Is on holiday") {
		t.Errorf("%+v, events %q", got, k.events)
	}
}

// TestBounds: each limit is refused with its name.
func TestBounds(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	long := strings.Repeat("ä", facts.MaxContent)
	k.add(long, nil)
	for field, n := range map[string]facts.New{
		"content: is required":   {Content: " \n"},
		"content: has 301":       {Content: long + "ä"},
		"kind":                   {Content: "x", Kind: "secret"},
		"topics: has 21":         {Content: "x", Topics: slices.Repeat([]string{"t"}, 21)},
		"empty topic":            {Content: "x", Topics: []string{" "}},
		"confidence":             {Content: "x", Confidence: ptr(1.01)},
		"subject":                {Content: "x", Subject: strings.Repeat("s", 65)},
		"valid_to":               {Content: "x", ValidFromMS: 2, ValidToMS: 1},
		"source.agent_id":        {Content: "x", Source: &facts.Source{}},
		"source.from_seq":        {Content: "x", Source: &facts.Source{AgentID: "a"}},
		"source.to_seq":          {Content: "x", Source: &facts.Source{AgentID: "a", FromSeq: 2, ToSeq: 1}},
		"source.speaker":         {Content: "x", Source: &facts.Source{AgentID: "a", FromSeq: 1, ToSeq: 1, Speaker: "root"}},
		"id: has 129 characters": {Content: "x", ID: strings.Repeat("i", 129)},
	} {
		_, _, err := k.Add(k.ctx, project, anna, n)
		if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Missing) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for i := range facts.MaxActive - 1 {
		k.add(fmt.Sprint("fact ", i), nil)
	}
	_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: "one more"})
	refused(t, err, fault.Quota, "1000 active facts")
	if kept, dropped, err := k.DecayAll(k.ctx, project, anna, .5, .4, false, ""); err != nil || len(kept) != facts.MaxActive || len(dropped) != 0 {
		t.Errorf("%d, %d, %v", len(kept), len(dropped), err)
	}
	if err := k.Clear(k.ctx, project, anna); err != nil {
		t.Fatal(err)
	}
	if got := k.search(facts.Query{States: facts.States()}); len(got) != 0 {
		t.Errorf("%d are left", len(got))
	}
}

// TestGivenID: the same fact again is the first one, another under its ID is refused.
func TestGivenID(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := func(n *facts.New) { n.ID = facts.KeyID("k") }
	first := k.add("A", id)
	again, created, err := k.Add(k.ctx, project, anna, facts.New{ID: first.ID, Content: "A"})
	if err != nil || created || again.ID != first.ID {
		t.Errorf("%+v, %v, %v", again, created, err)
	}
	_, _, err = k.Add(k.ctx, project, anna, facts.New{ID: first.ID, Content: "B"})
	refused(t, err, fault.Conflict)
	for range 2 {
		if err := k.Delete(k.ctx, project, anna, first.ID); err != nil {
			t.Error(err)
		}
	}
	_, err = k.Get(k.ctx, project, anna, first.ID)
	refused(t, err, fault.NotFound)
}

// TestTwoServers: what one service stores the other reads, and both may change.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	other := facts.NewService(k.config)
	f := k.add("A", sure(.1))
	for i := range 6 {
		s := []*facts.Service{k.Service, other}[i%2]
		if _, err := s.Reinforce(k.ctx, project, anna, f.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*facts.Service{k.Service, other} {
		if got, err := s.Get(k.ctx, project, anna, f.ID); err != nil || got.Confidence != .7 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := k.config.Store.EraseRecords(k.ctx, project, anna, ""); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*facts.Service{k.Service, other} {
		_, err := s.Get(k.ctx, project, anna, f.ID)
		refused(t, err, fault.NotFound)
	}
}

// TestSecrets: no fact with a secret is kept, and words about secrets are.
func TestSecrets(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	for _, s := range []string{
		"Pays with 4111 1111 1111 1111", "Card 5500-0000-0000-0004", "IBAN DE89 3704 0044 0532 0130 00", "The password is hunter2", "Password: abc",
		"Mein Passwort lautet Rose", "The PIN is 4711", "Her one-time code is 482 913", "482913 is the login code", "OTP 123456", "Der TAN ist 998877",
		"My pin is four seven one one", "The door code is 48 13", "Her pass word hunter2", "The code is double oh seven nine", "Die PIN lautet vier sieben eins eins",
	} {
		_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: s})
		refused(t, err, fault.Invalid, "secret")
	}
	for _, s := range []string{
		"Forgot her password", "The password is wrong", "Has two children and one dog", "SMS at ten thirty", "Changed her PIN in 2024", "Wants a password reset", "Lives at postal code 53113", "Discount code 1234 was used", "Pinned 1234 posts", "Was born in 1990",
		"Ordered 12 boxes for 4500 euros", "Her order is 20261123", "Called on +49 228 1234567",
	} {
		k.add(s, nil)
	}
}

// TestStoredForm: a fact that was stored is read with all of its fields.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	f := facts.Fact{Content: "A", Kind: facts.Agreement, Topics: []string{"t"}, State: facts.Draft, Source: &facts.Source{AgentID: "a", Quote: "q"}, History: []facts.Event{{Name: "added"}}}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back facts.Fact
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, back); d != "" {
		t.Error(d)
	}
}
