package app

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/webhook"
)

// OpenArchive returns the archive of the settings, which reads nothing if they name none.
func OpenArchive(c config.Config) (*archive.Archive, error) {
	if c.Archive == "" {
		return archive.New(nil), nil
	}
	place, err := blob.Open(c.Archive, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_ARCHIVE: %w", err)
	}
	return archive.New(place), nil
}

// newArchive makes the jobs move calls into the archive, and delete what no call needs there.
func (a *App) newArchive(reg prometheus.Registerer) {
	if a.cfg.Archive == "" {
		return
	}
	k := &archive.Keeper{Rows: a.store.Rows(), Archive: a.archive, After: a.cfg.ArchiveAfter, Now: a.now, Metrics: reg}
	k.Handle(a.jobs)
}

// archivedBody returns the body of an event that is in the archive.
func (a *App) archivedBody(ctx context.Context, d webhook.Delivery) ([]byte, error) {
	e, err := a.store.Event(ctx, d.Project, d.EventID)
	return e.Body, err
}
