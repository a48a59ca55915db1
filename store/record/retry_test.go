package record_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
)

// TestRetryMany: of many writers of one record each gets its turn.
func TestRetryMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const writers = 48
		var mu sync.Mutex
		rev := 0
		read := func() int {
			mu.Lock()
			defer mu.Unlock()
			return rev
		}
		change := func() error {
			was := read()
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if rev != was {
				return record.ErrStale
			}
			rev++
			return nil
		}
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				if err := record.Retry(t.Context(), "the records", change); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if rev != writers {
			t.Errorf("%d changes of %d writers", rev, writers)
		}
	})
}

// TestRetryEnds: a change that is always stale fails in the end, one whose caller leaves at once,
// and another error is not tried again.
func TestRetryEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stale := func() error { return record.ErrStale }
		if err := record.Retry(t.Context(), "the facts", stale); !fault.Is(err, fault.Unavailable) {
			t.Errorf("always stale: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := record.Retry(gone, "the facts", stale); !fault.Is(err, fault.Canceled) {
			t.Errorf("the caller has left: %v", err)
		}
		n, broken := 0, errors.New("broken")
		if err := record.Retry(t.Context(), "the facts", func() error { n++; return broken }); !errors.Is(err, broken) || n != 1 {
			t.Errorf("%v after %d tries", err, n)
		}
	})
}
