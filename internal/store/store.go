// Package store opens the drivers of package memory with an engine above each. A SQLite is a memory.Ledger and has all other
// methods of its driver.
package store

import (
	"context"

	"github.com/heardlog/heardlog/memory/engine"
	"github.com/heardlog/heardlog/memory/sqlite"
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
