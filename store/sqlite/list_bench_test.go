package sqlite_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// BenchmarkList has 100,000 ended agents in 30 days: how long a page takes for filters of each
// kind, at its start and far behind, and how long the tallies of all take. It is one run, whatever
// b.N; -benchtime 1x.
func BenchmarkList(b *testing.B) {
	const agents = 100_000
	s, err := store.OpenSQLite(b.Context(), sqlite.Options{Path: b.TempDir() + "/list.db"}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	start := func(n int) int64 { return 1780000000000 + int64(n)*25_920 }
	parallelN(b, 64, agents, func(n int) error {
		a := memory.Agent{Project: "p", ID: fmt.Sprintf("a-%06d", n), Name: "desk", Status: memory.Stopped, StartMS: start(n), StopMS: start(n) + 60_000, Rev: 1}
		a.Settings.Labels = map[string]string{"line": []string{"sales", "help"}[n%2], "half": []string{"old", "new"}[n*2/agents]}
		a.Settings.Call.Keys = []string{fmt.Sprintf("vapi.call:%d", n)}
		if n%1000 == 0 {
			a.Status = memory.Failed
		}
		m := memory.Message{Seq: 1, Rev: 2, Role: memory.Assistant, Content: "Hello there", Interrupted: n%3 == 0, Timings: &memory.Timings{StartMS: 1, FirstTokenMS: int64(100 + n%900)}}
		if n%500 == 1 {
			m.State = memory.Superseded
		}
		_, _, err := s.Create(b.Context(), a, 0, memory.Change{Append: []memory.Message{m}})
		return err
	})
	b.ResetTimer()
	for name, q := range map[string]memory.AgentQuery{
		"all": {}, "failed-status": {Statuses: []memory.Status{memory.Failed}}, "name": {Name: "desk"}, "interrupted": {Interrupted: true}, "failed": {Failed: true},
		"ghosts": {Ghosts: true}, "platform": {Platform: "vapi"}, "label": {Labels: map[string]string{"line": "sales"}},
		"label+failed-status": {Labels: map[string]string{"line": "help"}, Statuses: []memory.Status{memory.Failed}},
		"label+ghosts":        {Labels: map[string]string{"line": "sales"}, Ghosts: true},
		"platform+old":        {Platform: "vapi", Labels: map[string]string{"half": "old"}},
		"interrupted+old":     {Interrupted: true, Labels: map[string]string{"half": "old"}},
		"unheard_min":         {UnheardMin: 0.5}, "sort-unheard": {Order: memory.ByUnheard}, "sort-first_word+label": {Order: memory.ByFirstWord, Labels: map[string]string{"line": "sales"}},
	} {
		worst := time.Duration(0)
		for _, at := range []memory.AgentPlace{{}, {StartMS: start(agents / 2), No: math.MaxInt64}, {StartMS: start(10), No: math.MaxInt64}} {
			for _, q.OldestFirst = range []bool{false, true} {
				q.Project, q.Limit, q.NoTotal, q.After = "p", 50, true, at
				var took []time.Duration
				for range 3 {
					t := time.Now()
					if _, err := s.Agents(b.Context(), q); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(t))
				}
				worst = max(worst, slices.Min(took))
			}
		}
		b.ReportMetric(float64(worst.Microseconds())/1000, strings.ReplaceAll(name, " ", "-")+"-ms")
	}
	t := time.Now()
	var all memory.Tally
	if err := s.Tallies(b.Context(), "p", 0, math.MaxInt64, func(_ int64, tally []byte) error { return all.MergeEncoded(tally) }); err != nil || all.Answers == 0 {
		b.Fatal(all, err)
	}
	b.ReportMetric(float64(time.Since(t).Microseconds())/1000, "tallies-ms")
}
