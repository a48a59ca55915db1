package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/webhook"
)

const (
	// erasuresEvery is how often erasures that are not done are tried again.
	erasuresEvery = 10 * time.Minute
	erasuresEnd   = ".erasures"
)

// ErasuresPlace returns the place of the ledger of erasures, "" for none.
func ErasuresPlace(c config.Config) string {
	switch {
	case c.Erasures != "":
		return c.Erasures
	case c.InMemory():
		return ""
	case c.StoreURL == "":
		return c.StorePath + erasuresEnd
	case !blob.IsURL(c.Archive) && c.Archive != "":
		return strings.TrimRight(c.Archive, "/") + erasuresEnd
	}
	at, query, found := strings.Cut(c.Archive, "?")
	if found {
		query = "?" + query
	}
	at = strings.TrimRight(at, "/")
	if strings.Count(at, "/") < 3 { // without a prefix, it would be within the archive
		return ""
	}
	return at + erasuresEnd + query
}

// OpenErasures returns the ledger of erasures of the settings, nil if there is none.
func OpenErasures(c config.Config) (*erasure.Ledger, error) {
	at := ErasuresPlace(c)
	if at == "" {
		return nil, nil
	}
	place, err := blob.Open(at, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("HEARDLOG_ERASURES: %w", err)
	}
	return erasure.NewLedger(place), nil
}

// newErasures creates the service that erases.
func (a *App) newErasures(items memories.Service, hooks *webhook.Service) (s *erasure.Service, err error) {
	s = &erasure.Service{
		Records: a.store, Agents: a.service.Agents, Facts: a.facts, Callers: a.callers, Items: items, Keys: a.store, Values: a.kv.Store, Webhooks: hooks,
		Now: a.now, NewID: a.ids.next,
		Settings: erasure.Settings{Archive: a.cfg.Archive != "", Postgres: a.cfg.StoreURL != "", Provider: externalKV(a.models.Default), Backups: a.backups},
	}
	s.Dropped = func(project, id string) {
		a.log.Warn().Str("project", project).Str("erasure", id).Msg("an erasure that was not done is refused by a legal hold now, and leaves the ledger; ask for it again after the hold")
	}
	if s.Ledger, err = OpenErasures(a.cfg); err != nil {
		return nil, err
	}
	if s.Ledger == nil {
		if !a.cfg.InMemory() {
			a.log.Warn().Msg("HEARDLOG_ERASURES is not set, so there is no ledger of erasures: what is erased comes back with a restore of an earlier backup")
		}
		return s, nil
	}
	a.jobs.Every(job.Erasures, erasuresEvery, func(ctx context.Context) error { return a.applyErasures(ctx, s, erasuresEvery) })
	return s, nil
}

// startErasures applies the ledger before the server serves.
func (a *App) startErasures(ctx context.Context, s *erasure.Service) error {
	if s.Ledger == nil {
		return nil
	}
	err := a.applyErasures(ctx, s, 0)
	if errors.Is(err, erasure.ErrLedger) {
		return fmt.Errorf("the server does not start without its ledger of erasures, since it might serve what was erased: %w", err)
	}
	if err != nil { // such as an archive that is away
		a.log.Error().Err(err).Msg("erasures of the ledger could not be applied, so that the store may serve what was erased; it is tried again every 10 minutes")
	}
	ctx, stop := context.WithTimeout(ctx, 3*time.Second) // it is only a warning
	defer stop()
	if lost, err := s.Lost(ctx, a.store.Usage); err == nil && lost {
		a.log.Warn().Str("ledger", s.Ledger.String()).Msg("the ledger of erasures is empty, but the store has noted erasures: is HEARDLOG_ERASURES where the ledger was? Without its entries, what was erased comes back with a restore")
	}
	return nil
}

// applyErasures erases what the store has although the ledger says that it was erased: the store
// came from a backup, or a server was killed during an erasure. Those that began less than age ago
// are left out.
func (a *App) applyErasures(ctx context.Context, s *erasure.Service, age time.Duration) error {
	imports, err := s.Imports(ctx)
	if err != nil {
		return err
	}
	before, err := a.store.Unfinished(ctx)
	if err != nil {
		return err
	}
	done, err := s.Apply(ctx, len(imports) > 0, age)
	if done.Again > 0 || done.Held > 0 {
		a.log.Warn().Int("erasures", done.Again).Int("held", done.Held).Msg("the store lacked erasures of the ledger, as after a restore or a kill during an erasure; erased again")
	}
	if err != nil || len(imports) == 0 || before {
		return err
	}
	if after, err := a.store.Unfinished(ctx); err != nil || after {
		return err
	}
	return s.SettleImports(ctx, imports)
}
