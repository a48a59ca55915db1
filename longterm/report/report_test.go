package report_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/report"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestSketch: percentiles are within 2 %, also of sketches that were added up in any order, and
// what is taken away leaves nothing.
func TestSketch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var all report.Sketch
	var parts [8]report.Sketch
	var times []float64
	for range 5000 {
		ms := int64(math.Exp(r.NormFloat64()+6)) + 1
		all.Add(ms)
		parts[r.IntN(len(parts))].Add(ms)
		times = append(times, float64(ms))
	}
	var sum report.Sketch
	for i := range parts {
		sum.Merge(parts[i], 1)
	}
	if diff := cmp.Diff(all, sum); diff != "" {
		t.Fatal(diff)
	}
	slices.Sort(times)
	for _, p := range []float64{0.01, 0.5, 0.95, 0.99, 1} {
		want := times[int(math.Ceil(p*float64(len(times))))-1]
		if got := float64(sum.Percentile(p)); math.Abs(got-want) > 0.02*want+1 {
			t.Errorf("p%g is %g, not %g", p*100, got, want)
		}
	}
	for i := range parts {
		sum.Merge(parts[i], -1)
	}
	if len(sum) != 0 || sum.Percentile(0.5) != 0 {
		t.Errorf("%v is left", sum)
	}
}

// failing is a store of records whose changes fail now and then, before or after they are stored.
type failing struct {
	record.Store
	mu sync.Mutex
	r  *rand.Rand
}

func (f *failing) ChangeRecords(ctx context.Context, s record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (record.State, error) {
	f.mu.Lock()
	before, after := f.r.IntN(4) == 0, f.r.IntN(4) == 0
	f.mu.Unlock()
	if before {
		return record.State{}, fault.New(fault.Unavailable, "down")
	}
	state, err := f.Store.ChangeRecords(ctx, s, changes, limit, events, nowMS)
	if err == nil && after {
		err = fault.New(fault.Unavailable, "the answer was lost")
	}
	return state, err
}

// at is when the calls of TestCountedOnce start.
var at = time.Date(2026, 3, 31, 22, 0, 0, 0, time.UTC)

// TestCountedOnce: whatever fails on the way, and with two servers that count the same calls, a
// report has each call once, as it is now; those that were erased as they were.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	r := rand.New(rand.NewPCG(3, 4))
	now := at.Add(48 * time.Hour)
	service := func(seed uint64) *report.Service {
		return &report.Service{
			Records: &failing{Store: store, r: rand.New(rand.NewPCG(seed, 1))}, Calls: store, Ledger: store, Now: func() time.Time { return now },
			SetChecks: func(context.Context, memory.Ref, int64, []string) error { return nil },
		}
	}
	servers := []*report.Service{service(1), service(2)}
	type call struct {
		id            string
		line          string
		answers, cuts int64
		gone          bool
	}
	var calls []*call
	ctx := t.Context()
	add := func() {
		c := &call{id: fmt.Sprint("c", len(calls)), line: fmt.Sprint("line ", r.IntN(3))}
		a := memory.Agent{
			ID: c.id, Project: "p", Name: "desk", Status: memory.Stopped, StartMS: at.Add(time.Duration(r.IntN(240)) * time.Minute).UnixMilli(), Rev: 1,
			Settings: memory.Settings{Labels: map[string]string{"line": c.line, "day": fmt.Sprint(r.IntN(2))}},
		}
		a.StopMS = a.StartMS + 60_000
		var change memory.Change
		for n := range 1 + r.IntN(3) {
			c.answers++
			change.Append = append(change.Append, memory.Message{
				Seq: int64(n + 1), Rev: 1, Role: memory.Assistant, Content: "one two", TurnID: int64(n), Opens: true, Timestamp: a.StartMS,
				Timings: &memory.Timings{StartMS: a.StartMS, FirstTokenMS: 100 + r.Int64N(900)},
				Details: &memory.Details{Made: memory.Made{Model: fmt.Sprint("m", r.IntN(2)), Upstream: "u"}},
			})
		}
		if _, _, err := store.Create(ctx, a, 0, change); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	amend := func(c *call) { // late evidence
		err := store.Update(ctx, "p", c.id, func(v memory.AgentView) (memory.Change, error) {
			m, err := v.Seq(1)
			if m.Interrupted {
				return memory.Change{}, err
			}
			m.Rev, m.Interrupted, m.Generated, m.Content = v.Head().Rev+1, true, "one two", "one"
			c.cuts = 1
			return memory.Change{Replace: []memory.Message{m}}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	settle := func() {
		t.Helper()
		for range 400 {
			left := false
			for _, s := range servers {
				more, err := s.Count(ctx, "p", 1000)
				left = left || more || err != nil
			}
			if !left {
				return
			}
		}
		t.Fatal("it does not come to an end")
	}
	check := func() {
		t.Helper()
		got, err := servers[0].Report(ctx, report.Query{Project: "p", Span: report.Span{FromMS: at.Add(-time.Hour).UnixMilli(), ToMS: now.UnixMilli()}, Interval: time.Hour, GroupBy: "label.line"})
		if err != nil {
			t.Fatal(err)
		}
		n, answers, cuts := map[string]int64{}, int64(0), int64(0)
		for _, c := range calls {
			n[c.line]++
			answers, cuts = answers+c.answers, cuts+c.cuts
		}
		f := got.Total
		if f.Calls != int64(len(calls)) || f.Answers != answers || f.Interruptions != cuts || f.UnheardWords != cuts || f.Words != 2*answers || f.FirstToken.Count() != answers {
			t.Errorf("%d calls, %d answers, %d cut, %d unheard words; want %d, %d, %d", f.Calls, f.Answers, f.Interruptions, f.UnheardWords, len(calls), answers, cuts)
		}
		byLine, sum := map[string]int64{}, report.Figures{}
		for _, g := range got.Groups {
			byLine[g.Value] = g.Total.Calls
			sum.Add(&g.Total, 1)
			for i := range g.Points {
				sum.Add(&g.Points[i].Figures, -1)
			}
		}
		if diff := cmp.Diff(n, byLine); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(report.Figures{}, sum, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("groups without their points (-want +got):\n%s", diff)
		}
		models := report.Query{Project: "p", Span: report.Span{FromMS: at.UnixMilli(), ToMS: now.UnixMilli()}, GroupBy: report.ByModel, Filter: []report.Value{{Dim: "label.day", Value: "1"}}}
		both, err := servers[1].Report(ctx, models)
		models.Filter[0].Value = "0"
		rest, err2 := servers[1].Report(ctx, models)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		made := int64(0)
		for _, g := range append(both.Groups, rest.Groups...) {
			made += g.Total.Answers
		}
		if made != answers {
			t.Errorf("the models made %d answers, want %d", made, answers)
		}
	}
	for range 6 {
		for range 12 {
			add()
		}
		var work sync.WaitGroup
		for _, s := range servers {
			work.Go(func() { _, _ = s.Count(ctx, "p", 30) }) // fails now and then
		}
		for range 10 {
			if c := calls[r.IntN(len(calls))]; !c.gone {
				amend(c)
			}
		}
		work.Wait()
	}
	settle()
	check()
	for range 30 {
		c := calls[r.IntN(len(calls))]
		if c.gone {
			continue
		}
		c.gone = true
		if err := store.Erase(ctx, "p", c.id); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	check()
	list, _, err := store.Records(ctx, record.Space{Project: "p", Name: report.Space}, record.Query{AfterID: "c\x1f", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		for _, c := range calls {
			if c.gone && r.ID == "c\x1f"+c.id {
				t.Errorf("the call %s was erased, and is kept in the reports", c.id)
			}
		}
	}
}
