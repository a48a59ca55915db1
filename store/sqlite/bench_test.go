package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// noise returns a text of n bytes that takes about as many on disk.
func noise(n int) string {
	out, r := make([]byte, n), rand.New(rand.NewPCG(1, 2))
	for i := range out {
		out[i] = byte('#' + r.IntN('\\'-'#'))
	}
	return string(out)
}

// appendOne is what a handler's append does to the store.
func appendOne(text string) memory.Decision {
	return func(tx memory.AgentView) (memory.Change, error) {
		h := tx.Head()
		return memory.Change{Append: []memory.Message{{
			Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1, Timestamp: 1780000000000,
			Source: memory.SourceASR, Metadata: map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)},
		}}}, nil
	}
}

func agent(project string, n int) memory.Agent {
	return memory.Agent{
		ID: fmt.Sprintf("0190-%08d", n), Project: project, Name: fmt.Sprintf("name-%d", n), Status: memory.Running, StartMS: int64(1780000000000 + n), Rev: 1,
		Settings: memory.Settings{IdleTimeoutS: 1800, LLM: memory.LLMSettings{APIKey: "key"}},
	}
}

func openBench(b *testing.B, o engine.Options) *store.SQLite {
	b.Helper()
	s, err := store.OpenSQLite(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "bench.db")}, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

const sentence = "I would like to move my appointment from Tuesday morning to some time on Thursday, if you still have anything free after lunch."

// BenchmarkAppend appends one message a call; writers is how many callers wait at the same time,
// each with an agent of its own.
func BenchmarkAppend(b *testing.B) { benchmarkAppend(b, engine.Options{}) }

// BenchmarkAppendOneTxEach is the same without group commit.
func BenchmarkAppendOneTxEach(b *testing.B) { benchmarkAppend(b, engine.Options{MaxGroup: 1}) }

func benchmarkAppend(b *testing.B, o engine.Options) {
	for _, writers := range []int{1, 64, 1000, 4000} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			var commits atomic.Int64
			o.Observe = func(engine.Commit) { commits.Add(1) }
			s := openBench(b, o)
			for i := range writers {
				if _, _, err := s.Create(b.Context(), agent("p", i), 0, memory.Change{}); err != nil {
					b.Fatal(err)
				}
			}
			commits.Store(0)
			var mu sync.Mutex
			var took []time.Duration
			spent := cpu(b)
			b.ResetTimer()
			parallel(b, writers, func(ctx context.Context, w int) error {
				t := time.Now()
				err := s.Update(ctx, "p", agent("p", w).ID, appendOne(sentence))
				if w%16 == 0 {
					mu.Lock()
					took = append(took, time.Since(t))
					mu.Unlock()
				}
				return err
			})
			b.ReportMetric(float64((cpu(b)-spent).Microseconds())/float64(b.N), "cpu-us/op")
			if len(took) == 0 {
				took = append(took, 0)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(b.N)/float64(commits.Load()), "appends/commit")
		})
	}
}

// cpu gives the process's user and system time so far: what a busy machine tells of a cost where
// the clock does not.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// parallel shares b.N calls among a number of goroutines.
func parallel(b *testing.B, writers int, call func(context.Context, int) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(b.Context(), w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkFdatasync is the disk alone: what one commit costs at least.
func BenchmarkFdatasync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := []byte(strings.Repeat("x", 4096))
	if _, err := f.Write(make([]byte, 4<<20)); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		if _, err := f.WriteAt(page, int64(i%1024)*4096); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecent reads the 32 newest messages of a hot agent, of agents of which little but the
// head is in memory, and of such that are not.
func BenchmarkRecent(b *testing.B) {
	const agents = 100
	for name, bytes := range map[string]int64{"hot": 0, "head": 200 << 10, "cold": 1} {
		b.Run(name, func(b *testing.B) {
			s := openBench(b, engine.Options{CacheBytes: bytes})
			for i := range agents {
				a := agent("p", i)
				var c memory.Change
				for j := range 100 {
					c.Append = append(c.Append, memory.Message{Seq: int64(j + 1), Rev: 2, Role: memory.User, Content: sentence, TurnID: int64(j), Timestamp: 1780000000000})
				}
				if _, _, err := s.Create(b.Context(), a, 0, c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			spent := cpu(b)
			b.ResetTimer()
			defer func() { b.ReportMetric(float64((cpu(b)-spent).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op") }()
			for i := range b.N {
				_, list, err := s.Recent(b.Context(), "p", agent("p", i%agents).ID, 32, true)
				if err != nil || len(list) != 32 {
					b.Fatal(len(list), err)
				}
			}
		})
	}
}
