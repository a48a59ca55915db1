package app

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/job"

	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// newUpkeep makes the jobs forget what is old, and compact the store as the operator's memory model
// says.
func (a *App) newUpkeep() {
	a.jobs.Every(job.ExpiredKeys, time.Minute, a.kv.Sweep)
	a.jobs.Every(job.OldDeletions, 10*time.Minute, func(ctx context.Context) error {
		return a.store.SweepRecords(ctx, a.now().Add(-record.KeepDeletions).UnixMilli())
	})
	a.jobs.Every(job.OldErasures, 10*time.Minute, a.sweepMarks)
	old := webhook.Sweeper{Log: a.store, Now: a.now, Keep: a.cfg.WebhookRetention, KeepAgentless: a.cfg.Retention}
	a.jobs.Every(job.OldDeliveries, 10*time.Minute, old.Sweep)
	if m := a.models.Default; m != nil && m.Report.Compaction != nil {
		want := m.Report.Compaction
		a.jobs.Every(job.Compaction, time.Duration(want.RunIntervalHours)*time.Hour, func(ctx context.Context) error {
			start := time.Now()
			bytes, err := a.store.Compact(ctx, int(want.ThresholdPercent))
			if err == nil && bytes > 0 {
				a.log.Info().Int64("bytes", bytes).Dur("took", time.Since(start)).Msg("unused space was returned to the disk")
			}
			return err
		})
	}
}

// sweepMarks forgets erasures of callers of long ago.
func (a *App) sweepMarks(ctx context.Context) error {
	projects, err := a.store.Usage(ctx)
	for _, p := range projects {
		err = errors.Join(err, a.callers.SweepMarks(ctx, p.Project))
	}
	return err
}
