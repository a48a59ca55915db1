package agents

import (
	"context"
	"time"
)

// Sweep erases ended agents past the retention, a few at a time, and returns how many.
func (s *Agents) Sweep(ctx context.Context) (int, error) {
	if s.cfg.Retention <= 0 {
		return 0, nil
	}
	const slice = 100
	total := 0
	for {
		n, err := s.cfg.Ledger.Sweep(ctx, s.cfg.Now().Add(-s.cfg.Retention).UnixMilli(), slice)
		total += n
		if err != nil || n < slice {
			return total, err
		}
	}
}

// sweepEvery is how often Run sweeps.
const sweepEvery = 10 * time.Minute

// sweepUntil erases what is past the retention, now and every sweepEvery, until ctx is done.
func (s *Agents) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if _, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.OnError("erase ended agents", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
