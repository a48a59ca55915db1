package aftercall_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/aftercall"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/record"
)

// sealed is a store in which the body of one record cannot be decrypted.
type sealed struct {
	record.Store
	broken string
}

func (s sealed) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	list, state, err := s.Store.Records(ctx, at, q)
	for i := range list {
		if list[i].ID == s.broken && !list[i].Deleted {
			if list[i].Body = nil; !q.Broken {
				return nil, record.State{}, errors.New("cannot be decrypted")
			}
		}
	}
	return list, state, err
}

// TestBrokenJob: a job that cannot be decrypted keeps no other call from being worked on.
func TestBrokenJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done, reports := map[string]bool{}, 0
		w := aftercall.New(aftercall.Config{
			Store: sealed{inmem.New(), "p/broken"}, Work: "test", Now: time.Now,
			Agent: func(_ context.Context, project, id string) (memory.Agent, error) {
				return memory.Agent{Project: project, ID: id, Status: memory.Stopped}, nil
			},
			Wanted: func(*memory.Agent) bool { return true },
			Do: func(_ context.Context, a *memory.Agent) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				done[a.ID] = true
				return true, nil
			},
			RetryAfter: func(error) time.Duration { return 0 },
			OnError:    func(string, error) { mu.Lock(); defer mu.Unlock(); reports++ },
			Count:      func(string) {},
		})
		for _, id := range []string{"broken", "other"} {
			if err := w.Joined(t.Context(), &memory.Agent{Project: "p", ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = w.Run(ctx) }()
		time.Sleep(time.Minute)
		stop()
		<-ended
		if !done["other"] || done["broken"] || reports != 1 {
			t.Errorf("worked on %v, with %d reports", done, reports)
		}
	})
}
