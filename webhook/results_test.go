package webhook_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// TestWorkerStoresNothing checks that while results cannot be stored, for example on a full disk,
// few deliveries are sent, because all of them would be sent again. Everything goes on when the
// store is back.
func TestWorkerStoresNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const endpoints, each = 40, 25
		q := newQueue()
		for e := range endpoints {
			q.add(fmt.Sprint("e", e), each)
		}
		down := time.Now().Add(10 * time.Minute)
		q.onFinish = func(context.Context, webhook.Delivery) error {
			if time.Now().Before(down) {
				return fault.New(fault.Unavailable, "disk full")
			}
			return nil
		}
		var sent atomic.Int32
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			sent.Add(1)
			return taken(d)
		}, nil)
		time.Sleep(5 * time.Minute)
		if n := sent.Load(); n < webhook.DefaultPerEndpoint || n > 5*webhook.DefaultInFlight {
			t.Errorf("%d were sent of which nothing could be noted", n)
		}
		time.Sleep(10 * time.Minute)
		if n := q.count(webhook.Delivered, ""); n != endpoints*each {
			t.Errorf("%d of %d delivered after the store was back", n, endpoints*each)
		}
		stop()
	})
}

// TestWorkerGoesOnWhileResultsAreStored checks that the next attempt starts when one has succeeded,
// before its result is stored. No more than four run at a time, and a slow disk does not slow the
// receiver.
func TestWorkerGoesOnWhileResultsAreStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 100)
		q.onFinish = func(ctx context.Context, _ webhook.Delivery) error {
			time.Sleep(time.Second)
			return nil
		}
		var under, most atomic.Int32
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			most.Store(max(most.Load(), under.Add(1)))
			time.Sleep(10 * time.Millisecond)
			under.Add(-1)
			return taken(d)
		}, nil)
		time.Sleep(6 * time.Second) // four at a time behind their commits they would take 25
		if n := q.count(webhook.Delivered, ""); n != 100 || most.Load() != webhook.DefaultPerEndpoint {
			t.Errorf("%d delivered, at most %d at once", n, most.Load())
		}
		stop()
	})
}
