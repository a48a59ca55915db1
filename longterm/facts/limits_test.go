package facts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// full is a store of a project that has no room left.
type full struct{ record.Store }

func (full) ChangeRecords(_ context.Context, _ record.Space, changes []record.Change, _ record.Limit, _ []memory.Event, _ int64) (record.State, error) {
	return record.State{}, fault.New(fault.Quota, "%d changes do not fit", len(changes))
}

// TestFullProject: a full project takes no new facts, and what is no longer true goes all the same.
func TestFullProject(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.add("Is on holiday", func(n *facts.New) { n.ValidToMS = k.now.Load() + 1000 })
	k.add("Has a dog", nil)
	k.config.Store = full{k.config.Store}
	k.Service = facts.NewService(k.config)
	k.now.Add(2000)
	if got := k.search(facts.Query{}); !slices.Equal(got, []string{"Has a dog"}) {
		t.Errorf("%q", got)
	}
	_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: "x"})
	refused(t, err, fault.Quota)
}

// fill stores copies of a fact past all limits, as those of another name are that becomes an alias.
func (k *kit) fill(n int, f facts.Fact) {
	k.t.Helper()
	at := record.Space{Project: project, Name: facts.Space, User: anna}
	for from := 0; from < n; from += record.MaxChanges {
		var changes []record.Change
		for i := from; i < min(n, from+record.MaxChanges); i++ {
			f.Content = fmt.Sprint("copy ", i)
			body, err := json.Marshal(f)
			if err != nil {
				k.t.Fatal(err)
			}
			changes = append(changes, record.Change{ID: fmt.Sprint("copy", i), Body: body})
		}
		if _, err := k.config.Upkeep.ChangeRecords(k.ctx, at, changes, record.Limit{}, nil, 1); err != nil {
			k.t.Fatal(err)
		}
	}
}

// TestMoreThanAllowed: a caller that has more active facts than are allowed keeps them, and may
// undo a change.
func TestMoreThanAllowed(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	old := k.add("Lives in Bonn", nil)
	if _, err := k.Change(k.ctx, project, anna, old.ID, facts.Patch{Content: ptr("Lives in Ulm")}); err != nil {
		t.Fatal(err)
	}
	k.fill(facts.MaxActive, *old)
	if f, err := k.Undo(k.ctx, project, anna, old.ID, ""); err != nil || f.State != facts.Active {
		t.Errorf("%+v, %v", f, err)
	}
	_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: "x"})
	refused(t, err, fault.Quota, "1001 active facts", "at most 1000")
}

// TestExtractFull: the facts of a call that a caller has no room for are rejected one by one.
func TestExtractFull(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	id := k.call(anna, "user: I like tea and cake", "assistant: ?It is 9 euros", "user: Fine")
	f := k.add("Likes milk", func(n *facts.New) { n.Subject = "drink" })
	old := *f
	old.State = facts.Superseded
	k.fill(facts.MaxFacts-2, old)
	out := k.extract(id, `[{"content":"Likes tea","from_seq":1,"to_seq":1,"quote":"I like tea"},
		{"op":"supersede","subject":"drink","content":"Likes cake","from_seq":1,"to_seq":1,"quote":"cake"},
		{"kind":"agreement","content":"Pays 9 euros","speaker":"assistant","from_seq":2,"to_seq":2,"quote":"9 euros"}]`)
	if len(out.Facts) != 1 || !slices.Equal(reasons(out.Rejected), []string{"1 full", "2 full"}) {
		t.Errorf("%+v", out)
	}
	_, _, err := k.Add(k.ctx, project, anna, facts.New{Content: "x"})
	refused(t, err, fault.Quota, "at most 5000 facts of this caller", "5001")
}

// TestNeverActive: what was only a draft was never held to be true.
func TestNeverActive(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	draft := func(n *facts.New) { n.Draft = true }
	first := k.add("Pays 90 euros", draft)
	k.add("Pays 70 euros", func(n *facts.New) { n.Draft, n.ValidToMS = true, k.now.Load()+50 })
	past := k.add("Lived in Bonn", func(n *facts.New) { n.ValidFromMS, n.ValidToMS = 1000, 2000 })
	if past.State != facts.Expired {
		t.Errorf("%+v", past)
	}
	at := k.now.Load()
	if _, err := k.Change(k.ctx, project, anna, first.ID, facts.Patch{Content: ptr("Pays 80 euros")}); err != nil {
		t.Fatal(err)
	}
	k.now.Add(100)
	for ms, want := range map[int64][]string{at: {}, 1500: {"Lived in Bonn"}, 500: {}} {
		if got := k.search(facts.Query{AsOfMS: ms}); !slices.Equal(got, want) {
			t.Errorf("as of %d: %q, want %q", ms, got, want)
		}
	}
}

// TestScripts: a text is found in another case or encoding of the same letters, and a budget holds
// for scripts whose characters have several bytes.
func TestScripts(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.add("Wohnt in der Küchenstraße", func(n *facts.New) { n.Topics = []string{norm.NFD.String("Café")} })
	k.add("彼女は京都の静かな部屋を好みます", nil)
	for _, q := range []facts.Query{
		{Text: norm.NFD.String("küchen")}, {Text: "STRASSE"}, {Text: norm.NFC.String("CAFÉ")}, {Topic: norm.NFC.String("café")}, {Text: norm.NFD.String("Küchenstraße"), Words: true},
	} {
		if got := k.search(q); len(got) != 1 || !strings.HasPrefix(got[0], "Wohnt") {
			t.Errorf("%+v: %q", q, got)
		}
	}
	for budget, want := range map[int]int{20: 0, 26: 1} { // 27 bytes of heading, 71 of the line
		b, err := k.Context(k.ctx, project, anna, "京都", 5, budget)
		if err != nil || len(b.Facts) != want || len(b.Text) > 4*budget {
			t.Errorf("%d tokens: %q, %v", budget, b.Text, err)
		}
	}
}
