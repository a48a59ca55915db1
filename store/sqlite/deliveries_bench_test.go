package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// BenchmarkDeliveries claims what waits for eight endpoints, eight at a time, and stores their
// results together.
func BenchmarkDeliveries(b *testing.B) {
	const endpoints, group = 8, 8
	var commits atomic.Int64
	s, err := store.OpenSQLite(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "bench.db"), Observe: func(sqlite.Commit) { commits.Add(1) }}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range endpoints {
		if err := webhook.PutEndpoint(b.Context(), s, webhook.Endpoint{ID: fmt.Sprint("e", i), Project: "p", URL: "https://e.example"}); err != nil {
			b.Fatal(err)
		}
	}
	var c memory.Change
	for i := range b.N/endpoints + 1 {
		c.Events = append(c.Events, memory.Event{ID: fmt.Sprint("n", i), Type: event.Left, CreatedMS: int64(i + 1), Body: make([]byte, 1024)})
	}
	if _, _, err := s.Create(b.Context(), agent("p", 1), 0, c); err != nil {
		b.Fatal(err)
	}
	commits.Store(0)
	spent := cpu(b)
	b.ResetTimer()
	for left := b.N; left > 0; {
		list, err := webhook.ClaimFrom(b.Context(), s, webhook.Claim{NowMS: 1 << 40, Limit: group, PerEndpoint: 4, Lease: time.Minute})
		if err != nil || len(list) == 0 {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, d := range list {
			wg.Go(func() {
				if err := s.Finish(b.Context(), d, webhook.Result{State: webhook.Delivered, AtMS: 1 << 41, Try: webhook.Attempt{N: 1, Status: 200}}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		left -= len(list)
	}
	b.ReportMetric(float64((cpu(b)-spent).Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/float64(commits.Load()), "deliveries/commit")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
