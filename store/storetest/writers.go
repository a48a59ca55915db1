package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Whole reads a ledger of messages that stand in a turn of their own each, checks its numbers, and
// gives how often each text is there.
func Whole(t *testing.T, s memory.Ledger, a memory.Agent) map[string]int {
	t.Helper()
	list, err := s.Messages(t.Context(), a.Project, a.ID, memory.MessageQuery{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, m := range list {
		if m.Seq != int64(i+1) || m.TurnID != int64(i) {
			t.Fatalf("message %d has seq %d and turn %d", i, m.Seq, m.TurnID)
		}
		seen[m.Content]++
	}
	return seen
}

// Writers write to agents through stores until told to stop, and note what was acknowledged. They
// want no error but fault.Unavailable.
type Writers struct {
	// By writer, whose own it is until Done; writer i writes to agent i modulo their number.
	Acked [][]string
	Lost  atomic.Int64 // answers that were errors

	agents []memory.Agent
	total  atomic.Int64
	stop   chan struct{}
	wg     sync.WaitGroup
}

// Write starts each writers for each of the agents, which are there.
func Write[S memory.Ledger](t *testing.T, stores []S, agents []memory.Agent, each int) *Writers {
	w := &Writers{agents: agents, stop: make(chan struct{}), Acked: make([][]string, len(agents)*each)}
	for i := range w.Acked {
		w.wg.Go(func() {
			a := agents[i%len(agents)]
			for n := 0; ; n++ {
				select {
				case <-w.stop:
					return
				default:
				}
				text := fmt.Sprintf("%d/%d", i, n)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := stores[(i+n)%len(stores)].Update(ctx, a.Project, a.ID, says(text))
				cancel()
				switch {
				case err == nil:
					w.Acked[i] = append(w.Acked[i], text)
					w.total.Add(1)
				case fault.Is(err, fault.Unavailable):
					w.Lost.Add(1)
				default:
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	return w
}

// More waits until so many more were acknowledged.
func (w *Writers) More(t *testing.T, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for want := w.total.Load() + n; w.total.Load() < want; {
		if ctx.Err() != nil {
			t.Fatalf("%d writes were acknowledged, want %d", w.total.Load(), want)
		}
		time.Sleep(time.Millisecond) // between looks at a counter, not in place of a result
	}
}

// Done stops and demands everything that was acknowledged, once.
func (w *Writers) Done(t *testing.T, s memory.Ledger) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	seen := make([]map[string]int, len(w.agents))
	for n, a := range w.agents {
		seen[n] = Whole(t, s, a)
	}
	for i, texts := range w.Acked {
		for _, text := range texts {
			if got := seen[i%len(seen)][text]; got != 1 {
				t.Fatalf("%q was acknowledged and is there %d times", text, got)
			}
		}
	}
	for _, texts := range seen {
		for text, n := range texts {
			if n > 1 {
				t.Errorf("%q is there %d times", text, n)
			}
		}
	}
}
