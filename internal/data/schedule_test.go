package data_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/postgres/postgrestest"
	"github.com/heardlog/heardlog/memory/sqlite"
)

// TestSchedule: a backup is made when one is due and not before, the newest are kept, one that
// fails removes nothing, and what restore makes of it with the secret key has the same bytes.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for _, url := range []string{sqliteURL(t), postgrestest.URL(t)} {
		filled(t, url, 3)
		folder, now, failed := t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0
		s := backup.Schedule{
			Place: folder, Getenv: os.Getenv, Every: 24 * time.Hour, Keep: 2, Encrypt: true, Key: sealKey,
			Alone: func(_ context.Context, f func() error) error { return f() }, Now: func() time.Time { return now },
			Open: func(ctx context.Context) (backup.Source, error) {
				if url[:6] == "sqlite" {
					return sqlite.OpenReader(sqlite.Options{Path: url[7:], SealKey: []byte(sealKey)})
				}
				return postgres.OpenReader(ctx, postgres.Options{URL: url, SealKey: []byte(sealKey)})
			},
			Done: func(_ string, _ int64, err error) {
				if err != nil {
					failed++
				}
			},
		}
		look := func(after time.Duration, want, errors int) {
			t.Helper()
			now = now.Add(after)
			s.Look(t.Context())
			if list := must(os.ReadDir(folder)); len(list) != want || failed != errors {
				t.Errorf("%d backups and %d errors, want %d and %d", len(list), failed, want, errors)
			}
		}
		look(0, 1, 0)
		look(23*time.Hour, 1, 0)
		look(time.Hour, 2, 0)
		s.Key = ""
		look(24*time.Hour, 2, 1)
		s.Key = sealKey
		look(0, 2, 1)
		to := sqliteURL(t)
		if _, errs, err := run(t, settingsOf(to), "", "restore", folder); err != nil {
			t.Fatalf("restore: %v\n%s", err, errs)
		}
		if exported(t, to) != exported(t, url) {
			t.Error("what was restored has other bytes")
		}
	}
}
