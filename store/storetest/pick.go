package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// testListPicks checks lists by what the agents' tallies say against all agents.
func testListPicks(t *testing.T, ctx context.Context, s memory.Ledger) {
	r := rand.New(rand.NewPCG(7, 7))
	for n := range 60 {
		a := newAgent(n)
		a.StartMS = int64(1000 + n/3) // three of each start
		a.Settings.Labels = map[string]string{"line": []string{"sales", "help"}[n%2]}
		create(t, ctx, s, a)
		update(t, ctx, s, a, func(view memory.AgentView) (c memory.Change, err error) {
			for i := range r.IntN(4) {
				m := memory.Message{Seq: int64(i + 1), Rev: view.Head().Rev + 1, TurnID: int64(i)}
				randomAnswer(r, &m)
				c.Append = append(c.Append, m)
			}
			return c, nil
		})
		if n%4 == 0 {
			update(t, ctx, s, a, end([]memory.Status{memory.Stopped, memory.Failed}[n/4%2], a.StartMS+9))
		}
	}
	all, err := s.Agents(ctx, memory.AgentQuery{Project: project, Limit: 100})
	if err != nil || len(all.Heads) != 60 {
		t.Fatal(len(all.Heads), err)
	}
	for _, tt := range []struct {
		q   memory.AgentQuery
		is  func(h *memory.Head) bool
		key func(h *memory.Head) float64
	}{
		{q: memory.AgentQuery{UnheardMin: 0.5}, is: func(h *memory.Head) bool { share, known := h.Tally.UnheardShare(); return known && share >= 0.5 }},
		{q: memory.AgentQuery{FirstWordMS: 1000}, is: func(h *memory.Head) bool { return h.Tally != nil && h.Tally.Slowest() >= 1000 }},
		{q: memory.AgentQuery{ToolOpen: true}, is: func(h *memory.Head) bool { return h.Tally != nil && h.Tally.ToolsOpen() > 0 }},
		{
			q: memory.AgentQuery{Order: memory.ByUnheard}, is: func(h *memory.Head) bool { _, known := h.Tally.UnheardShare(); return known },
			key: func(h *memory.Head) float64 { share, _ := h.Tally.UnheardShare(); return share },
		},
		{
			q: memory.AgentQuery{Order: memory.ByFirstWord, ToolOpen: true}, is: func(h *memory.Head) bool { return h.Tally != nil && h.Tally.Slowest() > 0 && h.Tally.ToolsOpen() > 0 },
			key: func(h *memory.Head) float64 { return float64(h.Tally.Slowest()) },
		},
	} {
		for _, more := range []memory.AgentQuery{
			{}, {OldestFirst: true}, {Labels: map[string]string{"line": "sales"}}, {Statuses: []memory.Status{memory.Stopped, memory.Failed}, OldestFirst: true}, {FromMS: 1005, ToMS: 1010},
		} {
			q := tt.q
			q.Project, q.Labels, q.Statuses, q.OldestFirst, q.FromMS, q.ToMS = project, more.Labels, more.Statuses, more.OldestFirst, more.FromMS, more.ToMS
			var want []int // of all
			for i := range all.Heads {
				h := &all.Heads[i]
				a := h.Agent
				if tt.is(h) && (q.Labels == nil || a.Settings.Labels["line"] == "sales") && (q.Statuses == nil || slices.Contains(q.Statuses, a.Status)) &&
					(q.FromMS == 0 || a.StartMS >= q.FromMS && a.StartMS <= q.ToMS) {
					want = append(want, i)
				}
			}
			slices.SortStableFunc(want, func(i, j int) int {
				c := 0
				if tt.key != nil {
					c = cmp.Compare(tt.key(&all.Heads[j]), tt.key(&all.Heads[i]))
				}
				c = cmp.Or(c, i-j)
				if q.OldestFirst {
					c = -c
				}
				return c
			})
			names := []string{}
			for _, i := range want {
				names = append(names, all.Heads[i].Agent.Name)
			}
			for _, q.Limit = range []int{1, 7, 100} {
				what := fmt.Sprintf("%s unheard %v first word %d tool %v, pages of %d, %v %v, oldest first %v", q.Order, q.UnheardMin, q.FirstWordMS, q.ToolOpen, q.Limit, q.Labels, q.Statuses, q.OldestFirst)
				got := []string{}
				q.After = memory.AgentPlace{}
				for {
					page, err := s.Agents(ctx, q)
					if err != nil {
						t.Fatal(err)
					}
					if q.After == (memory.AgentPlace{}) && (page.Total != len(want) || page.Truncated) {
						t.Errorf("%s: total %d, want %d", what, page.Total, len(want))
					}
					if (q.Order != memory.ByStart) != page.ComparedAll {
						t.Errorf("%s: compared all: %v", what, page.ComparedAll)
					}
					got = append(got, ids(page)...)
					if page.Next == (memory.AgentPlace{}) {
						break
					}
					if q.After, err = memory.ParsePlace(page.Next.String()); err != nil {
						t.Fatal(err)
					}
				}
				wantSame(t, what, got, names)
			}
		}
	}
}
