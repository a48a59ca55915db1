package facts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/recall"
)

// TestFade: confidence falls by itself from when a fact was last seen, wherever it is read, and
// nothing is stored for it.
func TestFade(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	k := newKit(t, func(c *facts.Config) { c.HalfLife = 100 * day })
	began := k.now.Load()
	after := func(d time.Duration) { k.now.Store(began + d.Milliseconds()) }
	confidence := func(want float64, f *facts.Fact) {
		t.Helper()
		if f.Confidence != want {
			t.Errorf("%s has %v, want %v", f.Content, f.Confidence, want)
		}
	}
	peanuts := k.add("Is allergic to peanuts", nil)
	after(1000 * time.Second)
	confidence(1, k.get(peanuts.ID))
	after(50 * day)
	confidence(.71, k.get(peanuts.ID))
	k.add("Lives in Bonn", sure(.8))
	if got := k.search(facts.Query{}); !slices.Equal(got, []string{"Lives in Bonn", "Is allergic to peanuts"}) {
		t.Errorf("a search: %q", got)
	}
	if got := k.block("", 5); !strings.Contains(got, "Bonn (confidence: high)\n- Is allergic to peanuts (confidence: medium)") {
		t.Errorf("%s", got)
	}
	hits, _, err := k.Recall(k.ctx, project, anna, recall.Query{Text: "peanuts", K: 1}, 0)
	if err != nil || len(hits) != 1 {
		t.Fatal(hits, err)
	}
	confidence(.71, hits[0].Fact)
	events := len(k.events)
	after(100 * day)
	confidence(.5, k.get(peanuts.ID))
	if got := k.get(peanuts.ID); len(got.History) != 1 || len(k.events) != events {
		t.Errorf("something was stored: %+v, %q", got, k.events[events:])
	}
	reinforced, err := k.Reinforce(k.ctx, project, anna, peanuts.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	confidence(.6, reinforced)
	after(200 * day)
	confidence(.3, k.get(peanuts.ID))
	half := .5
	changed, err := k.Change(k.ctx, project, anna, peanuts.ID, facts.Patch{Confidence: &half})
	if err != nil {
		t.Fatal(err)
	}
	confidence(.5, changed)
	if got := k.get(peanuts.ID).History; got[len(got)-1].Confidence != .5 || got[1].Confidence != .6 {
		t.Errorf("%+v", got)
	}
	after(600 * day)
	if kept, dropped, err := k.DecayAll(k.ctx, project, anna, 1, .05, false, ""); err != nil || len(kept) != 0 || len(dropped) != 2 {
		t.Errorf("%d kept, %d dropped, %v", len(kept), len(dropped), err)
	}
}

// TestSeenAgain: a fact that the caller says in another call has its confidence again; one that the
// same call holds twice does not change.
func TestSeenAgain(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(c *facts.Config) { c.HalfLife = time.Hour })
	answer := "[" + told("profile", "Lives in Bonn", 1, 1, "live in Bonn") + "]"
	first := k.call(anna, "user: I live in Bonn.")
	f := k.extract(first, answer).Facts[0]
	k.now.Add(2 * time.Hour.Milliseconds())
	k.extract(first, answer)
	if got := k.get(f.ID); got.Confidence != .25 {
		t.Errorf("%+v", got)
	}
	k.extract(k.call(anna, "user: Yes, I live in Bonn, still."), answer)
	if got := k.get(f.ID); got.Confidence != 1 || got.CreatedUS != f.CreatedUS || got.SeenUS == f.SeenUS || got.Source.AgentID != first {
		t.Errorf("%+v", got)
	}
}

// TestTimes: a fact from elsewhere keeps its times.
func TestTimes(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	now := k.now.Load()
	old := k.add("Lives in Bonn", func(n *facts.New) { n.CreatedMS, n.SeenMS = now-5000, now-3000 })
	if old.CreatedUS != 1000*(now-5000) || old.SeenUS != 1000*(now-3000) {
		t.Errorf("%+v", old)
	}
	k.add("Has a dog", func(n *facts.New) { n.CreatedMS = now - 4000 })
	for as, want := range map[int64][]string{now - 6000: {}, now - 4500: {"Lives in Bonn"}, now - 3500: {"Has a dog", "Lives in Bonn"}} {
		got := k.search(facts.Query{AsOfMS: as})
		if slices.Sort(got); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("as of %d: %q", as-now, got)
		}
	}
	for _, n := range []facts.New{{CreatedMS: now + 1e6}, {CreatedMS: 5, SeenMS: now + 1e6}, {SeenMS: 5}, {CreatedMS: 5, SeenMS: 4}} {
		n.Content = "x"
		_, _, err := k.Add(k.ctx, project, anna, n)
		refused(t, err, fault.Invalid, "_at")
	}
}
