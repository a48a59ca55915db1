// Package store opens stores with an engine above each. A SQLite and a Postgres are memory.Ledger
// values that have all other methods of their driver.
package store

import (
	"context"
	"sync/atomic"

	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// SQLite is a store in a file or in memory.
type SQLite struct {
	*engine.Engine
	sqliteDriver // one level deeper, so that the engine's methods hide the driver's
}

type sqliteDriver struct{ *sqlite.Store }

// OpenSQLite opens a file, or a store in memory. See sqlite.Open for its errors.
func OpenSQLite(ctx context.Context, o sqlite.Options, eo engine.Options) (*SQLite, error) {
	s, err := sqlite.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &SQLite{engine.New(s, eo), sqliteDriver{s}}, nil
}

// Postgres is a store in a database that other servers may use too.
type Postgres struct {
	*engine.Engine
	postgresDriver
}

type postgresDriver struct{ *postgres.Store }

// OpenPostgres opens a database. See postgres.Open for its errors. eo need not set Shared and
// Epoch.
func OpenPostgres(ctx context.Context, o postgres.Options, eo engine.Options) (*Postgres, error) {
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
	e.Store(engine.New(s, eo))
	return &Postgres{e.Load(), postgresDriver{s}}, nil
}
