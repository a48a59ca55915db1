// Package store opens stores with an engine above each. A SQLite, a Postgres and an InMemory are
// memory.Ledger values that have all other methods of their driver.
package store

import (
	"context"
	"sync/atomic"

	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/inmem"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// SQLite is a store in a file.
type SQLite struct {
	*engine.Engine
	sqliteDriver // one level deeper, so that the engine's methods hide the driver's
}

type sqliteDriver struct{ *sqlite.Store }

// OpenSQLite opens a file. See sqlite.Open for its errors.
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

// InMemory is a store in memory. It is lost with the process.
type InMemory struct {
	*engine.Engine
	inMemoryDriver
}

type inMemoryDriver struct{ *inmem.Store }

// NewInMemory returns an empty store.
func NewInMemory(eo engine.Options) *InMemory {
	s := inmem.New()
	return &InMemory{engine.New(s, eo), inMemoryDriver{s}}
}
