package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/heardlog/heardlog/job"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// uploadSecret is the variable that the operator must allow the memory model to use before backups
// go to a bucket: a document that was copied from elsewhere must not send data away.
const uploadSecret = "AWS_SECRET_ACCESS_KEY"

// newBackups makes the jobs make the backups of the operator's memory model, if it wants any.
func (a *App) newBackups(reg prometheus.Registerer) error {
	if a.models.Default == nil || a.cfg.InMemory() {
		return nil
	}
	var want struct {
		Enabled       bool   `json:"enabled"`
		IntervalHours int    `json:"interval_hours"`
		Retention     int    `json:"retention_count"`
		Destination   string `json:"destination"`
		Encryption    bool   `json:"encryption"`
	}
	lifecycle, _ := a.models.Default.Report.Effective["lifecycle"].(map[string]any)
	b, err := json.Marshal(lifecycle["backup"])
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil || !want.Enabled || want.Destination == "" {
		return err
	}
	if blob.IsURL(want.Destination) && want.Destination[:5] != "s3://" {
		return fmt.Errorf("HEARDLOG_MEMORY_MODEL: lifecycle.backup.destination: must be a folder or s3://bucket/prefix")
	}
	if blob.IsURL(want.Destination) && !allows(a.cfg, uploadSecret) {
		return nil // the report of the model says so
	}
	count := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_backups_total", Help: "Backups of the schedule in HEARDLOG_MEMORY_MODEL, by result: ok or error.",
	}, []string{"result"})
	a.backups = &backup.Schedule{
		Place: want.Destination, Getenv: os.Getenv, Every: time.Duration(want.IntervalHours) * time.Hour, Keep: want.Retention,
		Encrypt: want.Encryption || a.cfg.TextKey != "", Key: a.cfg.FileKey(), Now: a.now, Open: a.openReader,
		Alone: alone(a.store),
		Done: func(name string, size int64) {
			count.WithLabelValues("ok").Inc()
			a.log.Info().Str("name", name).Int64("bytes", size).Msg("backed up")
		},
	}
	a.jobs.Every(job.Backup, 10*time.Minute, func(ctx context.Context) error {
		err := a.backups.Look(ctx)
		if err != nil && ctx.Err() == nil {
			count.WithLabelValues("error").Inc()
		}
		return err
	})
	return nil
}

// openReader opens the store for a backup, beside this server.
func (a *App) openReader(ctx context.Context) (backup.Source, error) {
	var from archive.Reader
	var err error
	key, dataKey := []byte(a.cfg.SecretKey.Reveal()), []byte(a.cfg.TextKey.Reveal())
	if a.cfg.StoreURL != "" {
		from, err = postgres.OpenReader(ctx, postgres.Options{URL: a.cfg.StoreURL.Reveal(), SealKey: key, DataKey: dataKey})
	} else {
		from, err = sqlite.OpenReader(sqlite.Options{Path: a.cfg.StorePath, SealKey: key, DataKey: dataKey})
	}
	if err != nil {
		return nil, err
	}
	return archive.Source{Reader: from, Archive: a.archive}, nil
}
