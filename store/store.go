// Package store opens stores with an engine above each. A SQLite and a Postgres are memory.Ledger
// values that have all other methods of their driver.
package store

import (
	"context"
	"sync/atomic"

	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// SQLite is a store in a file or in memory.
type SQLite struct {
	*engine.Engine
	archive.Reads
	sqliteDriver // one level deeper, so that the engine's methods hide the driver's
}

type sqliteDriver struct{ *sqlite.Store }

// OpenSQLite opens a file, or a store in memory, none of whose calls is in an archive. See
// sqlite.Open for its errors.
func OpenSQLite(ctx context.Context, o sqlite.Options, eo engine.Options) (*SQLite, error) {
	return OpenArchivedSQLite(ctx, o, eo, archive.New(nil))
}

// OpenArchivedSQLite is OpenSQLite for a store some of whose calls may be in an archive.
func OpenArchivedSQLite(ctx context.Context, o sqlite.Options, eo engine.Options, a *archive.Archive) (*SQLite, error) {
	s, err := sqlite.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	all := archive.NewStore(s, a)
	return &SQLite{engine.New(all, eo), all.Reads(), sqliteDriver{s}}, nil
}

// Rows returns the store without its archive.
func (s *SQLite) Rows() archive.Rows { return s.Store }

// Postgres is a store in a database that other servers may use too.
type Postgres struct {
	*engine.Engine
	archive.Reads
	postgresDriver
}

type postgresDriver struct{ *postgres.Store }

// OpenPostgres opens a database, none of whose calls is in an archive. See postgres.Open for its
// errors. eo need not set Shared and Epoch.
func OpenPostgres(ctx context.Context, o postgres.Options, eo engine.Options) (*Postgres, error) {
	return OpenArchivedPostgres(ctx, o, eo, archive.New(nil))
}

// OpenArchivedPostgres is OpenPostgres for a database some of whose calls may be in an archive.
func OpenArchivedPostgres(ctx context.Context, o postgres.Options, eo engine.Options, a *archive.Archive) (*Postgres, error) {
	var e atomic.Pointer[engine.Engine]
	o.OnLoss = func() {
		if e := e.Load(); e != nil {
			e.Forget()
		}
	}
	s, err := postgres.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if eo.Committers == 0 {
		eo.Committers = 2
	}
	if eo.Timeout == 0 {
		eo.Timeout = o.Timeout
	}
	eo.Shared, eo.Epoch = true, s.Epoch
	all := archive.NewStore(s, a)
	e.Store(engine.New(all, eo))
	return &Postgres{e.Load(), all.Reads(), postgresDriver{s}}, nil
}

// Rows returns the store without its archive.
func (s *Postgres) Rows() archive.Rows { return s.Store }
