package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// BenchmarkAppend measures durable appends of one message by concurrent callers, each to an agent
// of its own. docs/guides/scale.md compares it with pgbench.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64, 1000} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s, err := store.OpenPostgres(b.Context(), postgres.Options{URL: postgrestest.URL(b)}, engine.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for n := range callers {
				if _, _, err := s.Create(b.Context(), agent(n), 0, memory.Change{}); err != nil {
					b.Fatal(err)
				}
			}
			text := fmt.Sprintf("%0200d", 1)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var wg sync.WaitGroup
			for n := range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := s.Update(b.Context(), "acme", agent(n).ID, says(text)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkRecent measures reads of 32 messages of agents in the cache. Each read costs one query.
func BenchmarkRecent(b *testing.B) {
	s, err := store.OpenPostgres(b.Context(), postgres.Options{URL: postgrestest.URL(b)}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Create(b.Context(), agent(0), 0, memory.Change{}); err != nil {
		b.Fatal(err)
	}
	for i := range 40 {
		if err := s.Update(b.Context(), "acme", agent(0).ID, says(fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, list, err := s.Recent(b.Context(), "acme", agent(0).ID, 32, true); err != nil || len(list) != 32 {
				b.Error(len(list), err)
			}
		}
	})
}
