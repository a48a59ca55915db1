package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the library that Heardlog uses
)

// disk is a file that is synced: writing 4 KiB in place and syncing is the least that a durable
// append can cost.
type disk struct {
	f    *os.File
	page []byte
	n    int
}

func openDisk(dir string) (*disk, error) {
	f, err := os.CreateTemp(dir, "fdatasync-")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, 4<<20))
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &disk{f: f, page: make([]byte, 4096)}, nil
}

func (d *disk) sync() error {
	d.page[0]++
	d.n++
	if _, err := d.f.WriteAt(d.page, int64(d.n%1024)*4096); err != nil {
		return err
	}
	return syscall.Fdatasync(int(d.f.Fd()))
}

// fdatasync measures the disk alone.
func (b *bench) fdatasync() (samples, error) {
	d, err := openDisk(b.dir)
	if err != nil {
		return nil, err
	}
	defer d.f.Close()
	var out samples
	for range 500 {
		start := time.Now()
		if err := d.sync(); err != nil {
			return nil, err
		}
		out = append(out, time.Since(start))
	}
	return out, os.Remove(d.f.Name())
}

// single is a store without group commit: the same library, settings, table and indexes, but one
// INSERT a transaction, as many goroutines as there are clients, and no HTTP.
type single struct{ db *sql.DB }

func openSingle(ctx context.Context, path string) (*single, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"+
		"&_pragma=cache_size(-32000)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // more would only wait for each other inside SQLite
	_, err = db.ExecContext(ctx, `
		CREATE TABLE message (id INTEGER PRIMARY KEY, agent_no INTEGER NOT NULL, seq INTEGER NOT NULL, rev INTEGER NOT NULL,
			turn INTEGER NOT NULL, shown INTEGER NOT NULL, client_id TEXT, body TEXT NOT NULL);
		CREATE UNIQUE INDEX message_seq ON message (agent_no, seq);
		CREATE UNIQUE INDEX message_client_id ON message (agent_no, client_id) WHERE client_id IS NOT NULL;`)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &single{db}, nil
}

// run appends total messages from a number of goroutines and returns the rate. round keeps the
// sequence numbers of rounds apart.
func (s *single) run(ctx context.Context, round, writers, total int, body string) (float64, error) {
	insert, err := s.db.PrepareContext(ctx, "INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, body) VALUES (?, ?, ?, ?, 1, NULL, ?)")
	if err != nil {
		return 0, err
	}
	defer insert.Close()
	var left atomic.Int64
	left.Store(int64(total))
	errs := make(chan error, writers)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for seq := round * total; left.Add(-1) >= 0; seq++ {
				if _, err := insert.ExecContext(context.Background(), w, seq, seq, seq, body); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(total) / took.Seconds(), ctx.Err()
	}
}
