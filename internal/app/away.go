package app

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/away"
)

// newAway makes what takes turns while the store is away, if the settings want that.
func (a *App) newAway(reg prometheus.Registerer) error {
	if a.cfg.OnStoreFailure != config.PassTurns || a.cfg.InMemory() {
		return nil
	}
	turns := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_away_turns_total",
		Help: "Turns while the store was away: passed, kept in the local file or not_kept there, and afterwards stored at their place, stored late after something newer, or dropped.",
	}, []string{"event"})
	for _, event := range []string{away.Passed, away.Kept, away.NotKept, away.Stored, away.Late, away.Dropped} {
		turns.WithLabelValues(event)
	}
	reg.MustRegister(turns)
	file, err := away.OpenFile(keptFile(a.cfg))
	if err != nil {
		return errors.Join(errors.New("HEARDLOG_KEPT_FILE: the file for turns that wait for the store cannot be used"), err)
	}
	a.closes(func(context.Context) error { return file.Close() })
	a.away = away.New(away.Config{
		Ledger: a.store, Known: a.store.Known, File: file,
		Store: func(ctx context.Context, project, id string, decide memory.Decision) error {
			return a.service.Messages.Apply(ctx, project, id, decide)
		},
		Join: func(ctx context.Context, project, id string, labels map[string]string) error {
			join := a.autoJoin()
			if join == nil { // the setting has changed
				return fault.New(fault.NotFound, "there is no agent %q, and HEARDLOG_AUTO_JOIN is off", id)
			}
			_, err := join(ctx, project, id, memory.Call{}, labels)
			return err
		},
		Report: func(cause error) {
			if cause != nil {
				a.log.Error().Err(cause).Msg("the store is away: turns go on without it, and are stored when it is back")
			} else {
				a.log.Info().Msg("the store is back, and has the turns that it missed")
			}
		},
		OnError: func(what, project, id string, err error) {
			a.log.Error().Err(err).Str("project", project).Str("agent", id).Msg(what)
		},
		Count: func(event string) { turns.WithLabelValues(event).Inc() },
	})
	a.runs("kept turns", a.away.Run)
	return nil
}

// expect returns handlers.Config.Expect.
func (a *App) expect() func(project, id string, labels map[string]string, err error) bool {
	if a.away == nil || a.autoJoin() == nil {
		return nil
	}
	return func(project, id string, labels map[string]string, err error) bool {
		settings := memory.Settings{Labels: labels}
		settings.LLM.MaxHistory = memory.DefaultMaxHistory
		if a.models.Default != nil {
			a.models.Default.Apply(&settings, "")
		}
		return a.away.Expect(memory.Agent{ID: id, Project: project, Name: id, Status: memory.Running, StartMS: a.now().UnixMilli(), Rev: 1, Settings: settings}, err)
	}
}

// keptFile returns the path of the file for turns that wait for the store.
func keptFile(c config.Config) string {
	switch {
	case c.KeptFile != "":
		return c.KeptFile
	case c.StorePath != "":
		return c.StorePath + ".kept"
	}
	return filepath.Join("data", "heardlog.kept")
}

// awayOf returns what takes turns for a service, nil for nothing.
func (a *App) awayOf() agents.Away {
	if a.away == nil {
		return nil
	}
	return a.away
}
