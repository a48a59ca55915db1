package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// BenchmarkScale has 10,000 running agents with 100 messages each: how long a start takes, what it
// holds in memory, and how long reads and appends take then. It is one run, whatever b.N;
// -benchtime 1x.
func BenchmarkScale(b *testing.B) {
	const agents, messages = 10_000, 100
	path := b.TempDir() + "/scale.db"
	ctx := context.Background()
	func() {
		s, err := store.OpenSQLite(ctx, sqlite.Options{Path: path}, engine.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		parallelN(b, 64, agents, func(n int) error {
			_, _, err := s.Create(ctx, agent("p", n), 0, memory.Change{})
			return err
		})
		// Spread over the file as they would be in life: not one agent's after another's.
		parallelN(b, 64, agents*messages/10, func(n int) error {
			return s.Update(ctx, "p", agent("p", n%agents).ID, func(tx memory.AgentView) (memory.Change, error) {
				h := tx.Head()
				var c memory.Change
				for i := range int64(10) {
					c.Append = append(c.Append, memory.Message{
						Seq: h.NextSeq + i, Rev: h.Rev + 1, Role: memory.User, Content: sentence, TurnID: h.LastTurn + 1 + i, Timestamp: 1780000000000, Source: memory.SourceASR,
					})
				}
				return c, nil
			})
		})
	}()
	runtime.GC()
	before := rss(b)
	b.ResetTimer()
	start := time.Now()
	s, err := store.OpenSQLite(ctx, sqlite.Options{Path: path}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	n := 0
	if err := s.Live(ctx, func(memory.Head) error { n++; return nil }); err != nil || n != agents {
		b.Fatal(n, err)
	}
	b.ReportMetric(time.Since(start).Seconds(), "start-s")
	for _, span := range []struct {
		name   string
		agents int
	}{{"hot", 100}, {"all", agents}} {
		var took []time.Duration
		for i := range 40_000 {
			id := agent("p", (i*7919)%span.agents).ID
			t := time.Now()
			if _, list, err := s.Recent(ctx, "p", id, 32, true); err != nil || len(list) != 32 {
				b.Fatal(len(list), err)
			}
			took = append(took, time.Since(t))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, span.name+"-read-p50-us")
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, span.name+"-read-p99-us")
	}
	t := time.Now()
	parallelN(b, 64, 50_000, func(n int) error {
		return s.Update(ctx, "p", agent("p", (n*7919)%agents).ID, appendOne(sentence))
	})
	b.ReportMetric(50_000/time.Since(t).Seconds(), "appends/s")
	runtime.GC()
	b.ReportMetric(float64(rss(b)-before)/(1<<20), "RSS-MiB")
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(path + suffix); err == nil {
			b.ReportMetric(float64(info.Size())/(1<<20), "file"+suffix+"-MiB")
		}
	}
}

func parallelN(b *testing.B, workers, calls int, call func(int) error) {
	b.Helper()
	next := make(chan int)
	done := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for n := range next {
				if err == nil {
					err = call(n)
				}
			}
			done <- err
		}()
	}
	for n := range calls {
		next <- n
	}
	close(next)
	for range workers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// rss gives the process's resident memory in bytes; 0 where /proc does not tell.
func rss(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		b.Fatal(fmt.Errorf("statm: %w", err))
	}
	return pages * int64(os.Getpagesize())
}
