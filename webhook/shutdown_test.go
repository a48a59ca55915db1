package webhook_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// TestShutdownLetsAttemptsEnd checks that running attempts may end and nothing new is claimed,
// however much waits.
func TestShutdownLetsAttemptsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 10_000)
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome {
			time.Sleep(3 * time.Second)
			return taken(d)
		}, nil)
		time.Sleep(time.Second)
		if took := stop(); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
		if d, p := q.count(webhook.Delivered, ""), q.count(webhook.Pending, ""); d != webhook.DefaultPerEndpoint || p != 10_000-d {
			t.Errorf("%d delivered, %d pending", d, p)
		}
	})
}

// TestShutdownReleases checks that attempts that take longer than the drain are cut off and
// released: due at once, and not counted.
func TestShutdownReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 2)
		stop := start(t, q, func(ctx context.Context, d webhook.Delivery) webhook.Outcome {
			<-ctx.Done()
			return webhook.Outcome{Attempt: webhook.Attempt{N: d.Attempt, ErrorClass: webhook.ClassCanceled}}
		}, nil)
		synctest.Wait()
		if took := stop(); took != webhook.DefaultDrain {
			t.Errorf("took %s", took)
		}
		for id := range int64(2) {
			if r := q.get(id + 1); r.state != webhook.Pending || r.Attempt != 0 || r.due > time.Now().UnixMilli() || r.claimedUntil != 0 || len(r.tries) != 0 {
				t.Errorf("%+v", r)
			}
		}
		// The next start sends them at once.
		again := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		synctest.Wait()
		again()
		if n := q.count(webhook.Delivered, ""); n != 2 {
			t.Errorf("%d delivered", n)
		}
	})
}

// TestShutdownDuringClaim checks that a claim that was in progress at the end is released unsent.
func TestShutdownDuringClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		q.onClaim = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
				return nil
			}
		}
		sent := 0
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { sent++; return taken(d) }, nil)
		time.Sleep(time.Second)
		if took := stop(); took != time.Second {
			t.Errorf("took %s", took)
		}
		if r := q.get(1); sent != 0 || r.state != webhook.Pending || r.Attempt != 0 || r.claimedUntil != 0 {
			t.Errorf("sent %d, %+v", sent, r)
		}
	})
}

// TestShutdownStoreStuck checks that a stuck store does not delay the shutdown forever.
func TestShutdownStoreStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 1)
		q.onFinish = func(ctx context.Context, _ webhook.Delivery) error { <-ctx.Done(); return ctx.Err() }
		stop := start(t, q, func(_ context.Context, d webhook.Delivery) webhook.Outcome { return taken(d) }, nil)
		synctest.Wait()
		if took := stop(); took > webhook.DefaultDrain+5*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
