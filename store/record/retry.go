package record

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

const (
	// retries is how often a change is decided again because others were stored first.
	retries = 32
	// longestPause is how long a change waits at most before it is decided again.
	longestPause = 64 * time.Millisecond
)

// Retry calls change until it does not fail with ErrStale. It pauses for random times in between,
// longer each time, so that of many writers of one record each gets its turn. If that does not
// help, it fails with fault.Unavailable, whose text begins with what: the records as a user calls
// them.
func Retry(ctx context.Context, what string, change func() error) error {
	longest := time.Millisecond
	for range retries {
		err := change()
		if !errors.Is(err, ErrStale) {
			return err
		}
		pause := time.NewTimer(rand.N(longest))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fault.Wrap(fault.Canceled, context.Cause(ctx), "the call was given up")
		}
		longest = min(2*longest, longestPause)
	}
	return fault.New(fault.Unavailable, "%s are being changed by too many calls at once; try again", what)
}
