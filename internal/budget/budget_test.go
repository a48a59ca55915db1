package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/budget"
	"github.com/heardlog/heardlog/internal/fault"
)

// TestTake checks that a project takes at most half, that the rest is there for others, and that
// what is given back is taken by who waits.
func TestTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fake time
		b := budget.New(100)
		take := func(project string, bytes int64) (context.Context, func(), error) {
			ctx, done := budget.Hold(t.Context())
			return ctx, done, b.Take(ctx, project, bytes)
		}
		ctx, done, err := take("shop", 1000) // takes the project's half
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Take(ctx, "shop", 40); err != nil {
			t.Error("a read that has more already waits for less:", err)
		}
		began := time.Now()
		if _, _, err := take("shop", 1); !fault.Is(err, fault.Unavailable) || time.Since(began) != 30*time.Second {
			t.Errorf("a second read of the project: %v after %s", err, time.Since(began))
		}
		_, doneBank, err := take("bank", 50)
		if err != nil {
			t.Error("a read of another project:", err)
		}
		if _, _, err := take("taxi", 1); !fault.Is(err, fault.Unavailable) {
			t.Error("more than all was taken:", err)
		}
		got := make(chan error)
		go func() {
			_, done, err := take("shop", 50)
			defer done()
			got <- err
		}()
		synctest.Wait()
		done()
		done()
		if err := <-got; err != nil {
			t.Error("who waited did not get what was given back:", err)
		}
		if err := b.Take(ctx, "shop", 50); err != nil {
			t.Error("a context that is done waits:", err)
		}
		doneBank()
		if _, done, err := take("bank", 50); err != nil {
			t.Error(err)
		} else {
			done()
		}
	})
}

// TestTakeNothing checks who takes nothing, and the end of a context.
func TestTakeNothing(t *testing.T) {
	t.Parallel()
	b := budget.New(2)
	for range 3 {
		if err := b.Take(t.Context(), "shop", 1); err != nil {
			t.Error("without Hold:", err)
		}
	}
	ctx, done := budget.Hold(t.Context())
	defer done()
	if err := (*budget.Budget)(nil).Take(ctx, "shop", 1); err != nil {
		t.Error("without a budget:", err)
	}
	if err := b.Take(ctx, "shop", 1); err != nil {
		t.Error(err)
	}
	gone := errors.New("the client is gone")
	late, end := context.WithCancelCause(t.Context())
	end(gone)
	late, done = budget.Hold(late)
	defer done()
	if err := b.Take(late, "shop", 1); !fault.Is(err, fault.Canceled) || !errors.Is(err, gone) {
		t.Error("a client that is gone:", err)
	}
}
