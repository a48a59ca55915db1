package app

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/drivers"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/engine"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// store is all that the server needs of a driver.
type store interface {
	memory.Ledger
	memory.ItemStore
	kv.Store
	webhook.Store
	// Published returns all endpoints. The pointer stays the same until an endpoint changes.
	Published() *[]webhook.Endpoint
}

var (
	_ store = (*drivers.SQLite)(nil)
	_ store = (*drivers.Postgres)(nil)
)

// openStore opens the store of the settings, and gives the clock that decides what is due: a shared store's own, where there is one. log is told of what an operator has
// to look after.
func openStore(ctx context.Context, c config.Config, m *metrics, log zerolog.Logger) (store, func() time.Time, error) {
	report := func(what string, err error) { log.Error().Err(err).Msg(what) }
	key := []byte(c.SecretKey.Reveal())
	if c.StoreURL != "" {
		s, err := drivers.OpenPostgres(ctx, postgres.Options{URL: c.StoreURL.Reveal(), SealKey: key, Report: report},
			engine.Options{Observe: func(c engine.Commit) { m.commit(c.Items, c.Took, c.Err) }})
		if err != nil {
			return nil, nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
		}
		return s, s.Now, nil
	}
	file := sqlite.Options{Path: c.StorePath, SealKey: key, Observe: func(c sqlite.Commit) { m.commit(c.Items, c.Took, c.Err) }}
	s, err := drivers.OpenSQLite(ctx, file, engine.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, time.Now, nil
}

// tellUnfinished warns where an import into the store was not finished. The server serves what is there all the same: only the operator knows whether the rest
// is to come.
func (a *App) tellUnfinished(ctx context.Context) {
	s, ok := a.store.(interface {
		Unfinished(ctx context.Context) (bool, error)
	})
	if !ok {
		return
	}
	switch unfinished, err := s.Unfinished(ctx); {
	case err != nil:
		a.log.Warn().Err(err).Msg("whether an import was not finished cannot be told")
	case unfinished:
		a.log.Warn().Msg("an import, restore or migration into this store was not finished, or goes on just now: agents may lack messages, and webhooks deliveries. Run the same again, or leave it as it is with 'import --forget'")
	}
}

// storeName says where the data is, without what is nobody's business.
func storeName(c config.Config) string {
	if c.StoreURL != "" {
		return postgres.Redact(c.StoreURL.Reveal())
	}
	path, err := filepath.Abs(c.StorePath)
	if err != nil {
		return c.StorePath
	}
	return path
}

// peersOf gives the store's side of working with other servers, nil for a store that one server has for itself.
func peersOf(s store) memory.Peers {
	p, ok := s.(memory.Peers)
	if !ok {
		return nil
	}
	return p
}
