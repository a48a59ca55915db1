package data_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestSchedule: a backup is made when one is due and not before, the newest are kept, one that
// fails removes nothing, and what restore makes of it with the secret key has the same bytes. It
// goes to a folder or to a bucket.
func TestSchedule(t *testing.T) {
	t.Parallel()
	bucket, keys := bucketAt(t)
	for url, place := range map[string]string{sqliteURL(t): t.TempDir(), postgrestest.URL(t): t.TempDir(), sqliteURL(t): bucket} {
		filled(t, url, 3)
		now, failed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0
		getenv := func(name string) string { return keys[name] }
		s := backup.Schedule{
			Place: place, Getenv: getenv, Every: 24 * time.Hour, Keep: 2, Encrypt: true, Key: sealKey,
			Alone: func(_ context.Context, f func() error) error { return f() }, Now: func() time.Time { return now },
			Open: func(ctx context.Context) (backup.Source, error) {
				if url[:6] == "sqlite" {
					return sqlite.OpenReader(sqlite.Options{Path: url[7:], SealKey: []byte(sealKey)})
				}
				return postgres.OpenReader(ctx, postgres.Options{URL: url, SealKey: []byte(sealKey)})
			},
			Done: func(string, int64) {},
		}
		look := func(after time.Duration, want, errors int) {
			t.Helper()
			now = now.Add(after)
			if s.Look(t.Context()) != nil {
				failed++
			}
			if list := must(backup.List(t.Context(), must(blob.Open(place, getenv)), backup.Label)); len(list) != want || failed != errors {
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
		if _, errs, err := run(t, with(settingsOf(to), keys), "", "restore", place); err != nil {
			t.Fatalf("restore: %v\n%s", err, errs)
		}
		if exported(t, to) != exported(t, url) {
			t.Error("what was restored has other bytes")
		}
	}
}

// TestScheduleOfServers: of two servers on one database, one makes a backup that is due, and the
// other makes none, neither meanwhile nor afterwards.
func TestScheduleOfServers(t *testing.T) {
	t.Parallel()
	url, folder := postgrestest.URL(t), t.TempDir()
	filled(t, url, 1)
	begun, release := make(chan struct{}), make(chan struct{})
	server := func(opened func()) (s *backup.Schedule, done *int) {
		store := must(postgres.Open(t.Context(), postgres.Options{URL: url, SealKey: []byte(sealKey)}))
		t.Cleanup(func() { store.Close() })
		done = new(int)
		return &backup.Schedule{
			Place: folder, Getenv: func(string) string { return "" }, Every: time.Hour, Keep: 2, Alone: store.Alone, Now: time.Now,
			Open: func(ctx context.Context) (backup.Source, error) {
				opened()
				return postgres.OpenReader(ctx, postgres.Options{URL: url, SealKey: []byte(sealKey)})
			},
			Done: func(string, int64) { *done++ },
		}, done
	}
	look := func(s *backup.Schedule) {
		if err := s.Look(t.Context()); err != nil {
			t.Error(err)
		}
	}
	first, firstDone := server(func() { close(begun); <-release })
	second, secondDone := server(func() { t.Error("the second server makes a backup, too") })
	var wg sync.WaitGroup
	wg.Go(func() { look(first) })
	<-begun
	look(second)
	close(release)
	wg.Wait()
	look(second)
	if list := must(os.ReadDir(folder)); len(list) != 1 || *firstDone != 1 || *secondDone != 0 {
		t.Errorf("%d backups; the first server made %d, the second %d", len(list), *firstDone, *secondDone)
	}
}
