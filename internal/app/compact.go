package app

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/memory/ossa"
)

// compact compacts the store as the operator's memory model says, at once and then periodically,
// until ctx ends. Servers that share a database may do it at the same time.
func (a *App) compact(ctx context.Context, want *ossa.Compaction) error {
	store, ok := a.store.(interface {
		Compact(ctx context.Context, percent int) (bytes int64, err error)
	})
	if !ok {
		return nil
	}
	tick := time.NewTicker(time.Duration(want.RunIntervalHours) * time.Hour)
	defer tick.Stop()
	for {
		start := time.Now()
		bytes, err := store.Compact(ctx, int(want.ThresholdPercent))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			a.problem("the store was not compacted; it is tried again at the next interval", err)
		case bytes > 0:
			a.log.Info().Int64("bytes", bytes).Dur("took", time.Since(start)).Msg("unused space was returned to the disk")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
