package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/provider"
	"github.com/heardlog/heardlog/ossa/model"
)

// migration is what a memory model says about moving keys and values to another provider.
type migration struct {
	Enabled bool   `json:"enabled"`
	Source  string `json:"source_provider"`
	Target  string `json:"target_provider"`
	Batch   int    `json:"batch_size"`
	Verify  bool   `json:"verify_integrity"`
}

// readMigration returns what the server's own model says, with the defaults of the schema. The
// model was judged: one of the two providers is the server's own store.
func readMigration(m *model.Model) (out migration, err error) {
	if m == nil {
		return out, nil
	}
	lifecycle, _ := m.Report.Effective["lifecycle"].(map[string]any)
	b, err := json.Marshal(lifecycle["migration"])
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

// migrateKV moves keys and values as the server's own model says, before the server accepts
// requests. It does nothing if that was done at an earlier start.
func (a *App) migrateKV(ctx context.Context, s *shortTerm, move migration, reg prometheus.Registerer) error {
	m := kv.Migration{
		Name: fmt.Sprintf("%s to %s at %s", move.Source, move.Target, secret.StripURL(s.Connection.Endpoint)),
		From: a.store, To: a.provider, External: true, Progress: a.store, Batch: move.Batch, Verify: move.Verify, Now: a.now,
	}
	if provider.Embedded(move.Target) {
		s.Provider = move.Source
		source, err := a.openProvider(ctx, s, reg)
		if err != nil {
			return err
		}
		defer source.Close()
		m.From, m.To, m.External = source, a.store, false
	}
	var shown time.Time
	m.Show = func(at kv.Moved) {
		if now := time.Now(); now.Sub(shown) > time.Second {
			shown = now
			a.log.Info().Int("keys", at.Keys).Int64("bytes", at.Bytes).Msg("keys and values: migrating")
		}
	}
	return a.migrating(ctx, func() error {
		start := time.Now()
		at, err := m.Run(ctx)
		if err == nil && at.Done {
			a.log.Info().Str("migration", move.Source+" to "+move.Target).Int("keys", at.Keys).Int64("bytes", at.Bytes).Int("left_out", at.Left).
				Dur("took", time.Since(start)).Msg("keys and values: migrated")
		}
		return err
	})
}

// withoutMigration fails if a migration has begun that this server may not go without.
func (a *App) withoutMigration(ctx context.Context, external bool) error {
	unfinished, err := kv.Unfinished(ctx, a.store, a.now())
	if err != nil || !unfinished {
		return err
	}
	return a.migrating(ctx, func() error {
		name, err := kv.GiveUp(ctx, a.store, external, a.now())
		if name != "" {
			a.log.Warn().Str("migration", name).Msg("keys and values: the migration is given up; what it has copied stays at its target")
		}
		return err
	})
}

// migrating runs f, or fails if another server is migrating or making a backup.
func (a *App) migrating(ctx context.Context, f func() error) error {
	ran := false
	err := alone(a.store)(ctx, func() error {
		ran = true
		return f()
	})
	if err == nil && !ran {
		err = errors.New("another server is migrating or making a backup; start this one again after that")
	}
	if err != nil {
		return fmt.Errorf("HEARDLOG_MEMORY_MODEL: lifecycle.migration: %w", err)
	}
	return nil
}

// alone returns what runs a function unless another server of the store is running one.
func alone(store any) func(ctx context.Context, f func() error) error {
	if shared, ok := store.(interface {
		Alone(ctx context.Context, f func() error) error
	}); ok {
		return shared.Alone
	}
	return func(_ context.Context, f func() error) error { return f() }
}
