package summary_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/memory"
)

// TestLease: of two processes that find the same summary due one asks for it, and the other takes
// the agent up again when the first has died.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, func(ctx context.Context, n int, _ question) (summary.Answer, error) {
			<-ctx.Done() // this process never gets an answer
			return summary.Answer{}, ctx.Err()
		})
		w.stop() // the memory alone
		id := w.join("p", window)
		w.say("p", id, 0, 10)
		var mu sync.Mutex
		until, holder := time.Time{}, 0
		worker := func(n int, ask func(ctx context.Context) (summary.Answer, error)) *summary.Worker {
			return summary.New(summary.Config{
				Memory: w, Log: zerolog.Nop(),
				Lease: func(_ context.Context, _, _ string, lease time.Duration) (func(), bool, error) {
					mu.Lock()
					defer mu.Unlock()
					if time.Now().Before(until) {
						return nil, false, nil
					}
					until, holder = time.Now().Add(lease), n
					return func() {
						mu.Lock()
						defer mu.Unlock()
						if holder == n {
							until = time.Time{}
						}
					}, true, nil
				},
				Ask: func(ctx context.Context, _ memory.Agent, _ string, _ summary.Prompt) (summary.Answer, error) {
					return ask(ctx)
				},
			})
		}
		var asked atomic.Int64
		hung := make(chan struct{})
		first := worker(1, func(context.Context) (summary.Answer, error) { <-hung; return summary.Answer{}, context.Canceled })
		second := worker(2, func(context.Context) (summary.Answer, error) {
			asked.Add(1)
			return summary.Answer{Text: "facts", Finish: "stop"}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		defer close(hung)
		for _, s := range []*summary.Worker{first, second} {
			s.Changed("p", id)
			group.Go(func() { _ = s.Run(ctx) })
			synctest.Wait()
		}
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if text, _ := w.holds("p", id); asked.Load() != 0 || text != "" {
			t.Errorf("%d calls of the second while the first has the lease, summary %q", asked.Load(), text)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if text, _ := w.holds("p", id); asked.Load() != 1 || text != "facts" {
			t.Errorf("%d calls of the second after the lease of the first has ended, summary %q", asked.Load(), text)
		}
	})
}
