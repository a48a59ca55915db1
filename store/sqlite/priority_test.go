package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// noticed is a context that tells when a write waits: it is asked for Done then.
type noticed struct {
	context.Context
	waits func()
}

func (c *noticed) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// TestTurnsGoBeforeDeliveries: a write of an agent shares its commit with few of the results of
// deliveries that wait, however many do, and all of those are stored in the end.
func TestTurnsGoBeforeDeliveries(t *testing.T) {
	t.Parallel()
	const deliveries = 500
	commits, held, release := []int(nil), make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	holds := false
	s := open(t, sqlite.Options{Path: filepath.Join(t.TempDir(), "p.db"), Observe: func(c sqlite.Commit) {
		mu.Lock()
		hold := holds
		holds = false
		commits = append(commits, c.Items)
		mu.Unlock()
		if hold {
			close(held)
			<-release // the turn is held meanwhile
		}
	}})
	ctx := t.Context()
	if err := webhook.CreateEndpoint(ctx, s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://x.example", Events: []string{"agent.message"}}, 0); err != nil {
		t.Fatal(err)
	}
	var c memory.Change
	for i := range deliveries {
		c.Events = append(c.Events, memory.Event{ID: fmt.Sprint("event-", i), Type: event.Message, CreatedMS: 1, Body: []byte("{}")})
	}
	if _, _, err := s.Create(ctx, agent("p", 1), 0, c); err != nil {
		t.Fatal(err)
	}
	claimed, err := webhook.ClaimFrom(ctx, s, webhook.Claim{NowMS: 10, Limit: deliveries, Lease: time.Hour})
	if err != nil || len(claimed) != deliveries {
		t.Fatalf("claimed %d: %v", len(claimed), err)
	}

	var wg, waiting sync.WaitGroup
	join := func(ctx context.Context, n int) {
		wg.Go(func() {
			if _, _, err := s.Create(ctx, agent("p", n), 0, memory.Change{}); err != nil {
				t.Error(err)
			}
		})
	}
	notice := func() context.Context {
		waiting.Add(1)
		return &noticed{ctx, sync.OnceFunc(waiting.Done)}
	}
	mu.Lock()
	holds = true
	mu.Unlock()
	join(ctx, 2)
	<-held
	for _, d := range claimed {
		ctx := notice()
		wg.Go(func() {
			if err := s.Finish(ctx, d, webhook.Result{State: webhook.Delivered, AtMS: 20, Try: webhook.Attempt{N: 1, Status: 200}}); err != nil {
				t.Error(err)
			}
		})
	}
	join(notice(), 3)
	waiting.Wait()
	mu.Lock()
	commits = nil
	mu.Unlock()
	close(release)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	// The agent's with eight results, then the others, 256 at a time.
	if want := []int{1 + 8, 256, deliveries - 8 - 256}; !slices.Equal(commits, want) {
		t.Errorf("commits of %v writes, want %v", commits, want)
	}
	if b, err := s.Backlog(ctx); err != nil || b.Pending != 0 {
		t.Errorf("%d deliveries wait: %v", b.Pending, err)
	}
}
