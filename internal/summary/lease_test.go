package summary_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
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
		store := storetest.New(t).Store
		worker := func(store record.Store, ask func(ctx context.Context) (summary.Answer, error)) (*summary.Worker, *job.Runner) {
			jobs := job.New(job.Config{Store: store, Now: time.Now})
			return summary.New(jobs, summary.Config{
				Memory: w,
				Ask: func(ctx context.Context, _ memory.Agent, _ string, _ summary.Prompt) (summary.Answer, error) {
					return ask(ctx)
				},
			}), jobs
		}
		var asked atomic.Int64
		dying, buried := &storetest.CutOff{Store: store}, make(chan struct{})
		first, firstJobs := worker(dying, func(context.Context) (summary.Answer, error) {
			dying.Cut(errors.New("killed"))
			<-buried
			return summary.Answer{}, context.Canceled
		})
		second, secondJobs := worker(store, func(context.Context) (summary.Answer, error) {
			asked.Add(1)
			return summary.Answer{Text: "facts", Finish: "stop"}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		defer close(buried)
		first.Changed("p", id)
		group.Go(func() { _ = firstJobs.Run(ctx) })
		synctest.Wait()
		second.Changed("p", id)
		group.Go(func() { _ = secondJobs.Run(ctx) })
		time.Sleep(50 * time.Second) // fake time
		synctest.Wait()
		if text, _ := w.holds("p", id); asked.Load() != 0 || text != "" {
			t.Errorf("%d calls of the second while the first has the job, summary %q", asked.Load(), text)
		}
		time.Sleep(20 * time.Second) // fake time
		synctest.Wait()
		if text, _ := w.holds("p", id); asked.Load() != 1 || text != "facts" {
			t.Errorf("%d calls of the second after the claim of the first has ended, summary %q", asked.Load(), text)
		}
	})
}
