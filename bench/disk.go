package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the library that Heardlog uses
)

// fdatasync measures the disk alone: 4 KiB written in place and synced, which is the least that a durable append can cost.
func (b *bench) fdatasync() (samples, error) {
	f, err := os.Create(filepath.Join(b.dir, "fdatasync"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4<<20)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	page := make([]byte, 4096)
	var out samples
	for i := range 500 {
		page[0]++
		start := time.Now()
		if _, err := f.WriteAt(page, int64(i%1024)*4096); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		out = append(out, time.Since(start))
	}
	return out, os.Remove(f.Name())
}

// single is the store without group commit: the same library, settings, table and indexes, one INSERT a transaction, as
// many goroutines as there are clients, no HTTP.
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

// run appends total messages from a number of goroutines and gives the rate; round keeps the sequence numbers apart.
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
