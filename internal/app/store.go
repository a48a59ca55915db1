package app

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// backend is what the server needs of a store.
type backend interface {
	memory.Ledger
	memories.Store
	kv.Store
	record.Store
	memory.DueCalls
	webhook.Store
	// Usage returns what each project has stored.
	Usage(ctx context.Context) ([]memory.Usage, error)
	// Published returns all endpoints. The pointer stays the same until an endpoint changes.
	Published() *[]webhook.Endpoint
	// Known returns what is in the engine's memory of an agent, without asking the store.
	Known(project, id string) (memory.Head, []memory.Message, bool)
	// Compact returns unused space to the disk if it is at least so many percent of the store. It
	// returns the number of bytes.
	Compact(ctx context.Context, percent int) (bytes int64, err error)
	// Rows returns the store without the archive above it.
	Rows() archive.Rows
	// Unfinished reports whether an import into the store was not finished.
	Unfinished(ctx context.Context) (bool, error)
}

var (
	_ backend = (*store.SQLite)(nil)
	_ backend = (*store.Postgres)(nil)
)

// openStore opens the store of the settings and returns it with the clock of deadlines, which is
// the store's own if servers share it. It logs what an operator must know.
func openStore(ctx context.Context, c config.Config, archived *archive.Archive, m *metrics, log zerolog.Logger) (backend, func() time.Time, error) {
	report := func(what string, err error) {
		if err == nil {
			log.Info().Msg(what + ": back to normal")
			return
		}
		log.Error().Err(err).Msg(what)
	}
	key, dataKey := []byte(c.SecretKey.Reveal()), []byte(c.TextKey.Reveal())
	if c.StoreURL != "" {
		s, err := store.OpenArchivedPostgres(ctx, postgres.Options{URL: c.StoreURL.Reveal(), SealKey: key, DataKey: dataKey, Report: report, Terms: knowledge.Terms},
			engine.Options{Observe: func(c engine.Commit) { m.commit(c.Items, c.Took, c.Err) }, Remember: c.OnStoreFailure == config.PassTurns}, archived)
		if err != nil {
			return nil, nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
		}
		return s, s.Now, nil
	}
	if c.InMemory() {
		log.Warn().Msg("HEARDLOG_STORE is memory: agents, messages and webhooks are lost when the server stops")
	}
	file := sqlite.Options{Path: c.StorePath, SealKey: key, DataKey: dataKey, Report: report, Terms: knowledge.Terms, Observe: func(c sqlite.Commit) { m.commit(c.Items, c.Took, c.Err) }}
	s, err := store.OpenArchivedSQLite(ctx, file, engine.Options{Remember: c.OnStoreFailure == config.PassTurns}, archived)
	if err != nil {
		return nil, nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, time.Now, nil
}

// durable returns how a store proves that what was read from it is safe; nil if it always is.
func durable(s backend) func(ctx context.Context) (prove func() error) {
	if s, ok := s.(interface {
		Durable(ctx context.Context) (prove func() error)
	}); ok {
		return s.Durable
	}
	return nil
}

// warnUnfinished logs a warning if an import into the store was not finished. The server starts all
// the same: only the operator knows whether the rest will follow.
func (a *App) warnUnfinished(ctx context.Context) {
	switch unfinished, err := a.store.Unfinished(ctx); {
	case err != nil:
		a.log.Warn().Err(err).Msg("cannot determine whether the last import finished")
	case unfinished:
		a.log.Warn().Msg("an import, restore or migration into this store was not finished or is still running: messages and deliveries may be missing. Run it again, or accept the store as it is with 'import --forget'")
	}
}

// storeName returns the location of the store, without a password.
func storeName(c config.Config) string {
	if c.InMemory() {
		return "memory:"
	}
	if c.StoreURL != "" {
		return postgres.Redact(c.StoreURL.Reveal())
	}
	path, err := filepath.Abs(c.StorePath)
	if err != nil {
		return c.StorePath
	}
	return path
}

// peersOf returns how the store coordinates several servers, or nil for a store of one server.
func peersOf(s backend) memory.Peers {
	p, ok := s.(memory.Peers)
	if !ok {
		return nil
	}
	return p
}
