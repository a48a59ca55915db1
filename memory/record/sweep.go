package record

import (
	"context"
	"time"
)

// KeepDeletions is how long a deletion is listed. A reader by revision that was away for longer
// reads the whole space again.
const KeepDeletions = time.Hour

// sweepEvery is how often old deletions are looked for.
const sweepEvery = 10 * time.Minute

// Sweeper forgets deletions that are older than KeepDeletions.
type Sweeper struct {
	Store Store
	Now   func() time.Time
	// Also is called before each sweep, to delete records that are no longer needed; nil = none.
	Also func(context.Context) error
	// OnError is called after a sweep that failed. The next one does its work.
	OnError func(error)
}

// Run sweeps at once and then periodically until ctx is done, and returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if s.Also != nil {
			if err := s.Also(ctx); err != nil && ctx.Err() == nil {
				s.OnError(err)
			}
		}
		if err := s.Store.SweepRecords(ctx, s.Now().Add(-KeepDeletions).UnixMilli()); err != nil && ctx.Err() == nil {
			s.OnError(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
