package data

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/sqlite"
)

const eraseUsage = `usage: erase -project PROJECT -agent ID

Erases an agent, live or ended, with all that belongs to it: messages, summary, items, working memory, events and deliveries, those still pending too.
What was erased is written to stdout as one JSON object, which holds numbers and no content. It cannot be undone. An SQLite file must not be in use by a
server: ask that for DELETE /v1/agents/{id}, which also cuts what is being answered.

`

// receipt is what erase writes.
type receipt struct {
	Project  string        `json:"project"`
	Agent    string        `json:"agent"`
	ErasedAt string        `json:"erased_at"` // RFC 3339, UTC
	Erased   export.Counts `json:"erased"`
}

// eraser is a store of which agents are erased.
type eraser interface {
	memory.Store
	export.Source
}

// sqliteEraser reads through a connection of its own, beside the store that erases.
type sqliteEraser struct {
	*sqlite.Store
	reader *sqlite.Reader
}

// Export gives what the file holds.
func (s sqliteEraser) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return s.reader.Export(ctx, sc, each)
}

// LastDelivery gives the highest id of a delivery.
func (s sqliteEraser) LastDelivery(ctx context.Context, sc export.Scope) (int64, error) {
	return s.reader.LastDelivery(ctx, sc)
}

// Close closes both.
func (s sqliteEraser) Close() error { return errors.Join(s.reader.Close(), s.Store.Close()) }

// openEraser opens a store that must be there.
func openEraser(ctx context.Context, c config.Config) (eraser, error) {
	there, err := openSource(ctx, c) // refuses what is not there, or is of another version
	if err != nil {
		return nil, err
	}
	if s, ok := there.(*postgres.Store); ok {
		return s, nil
	}
	r, ok := there.(*sqlite.Reader)
	if !ok {
		return nil, errors.Join(errors.New("the store cannot erase"), there.Close())
	}
	s, err := sqlite.Open(ctx, sqlite.Options{Path: c.StorePath, SealKey: []byte(c.SecretKey.Reveal())})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return sqliteEraser{s, r}, nil
}

// erase erases an agent.
func erase(ctx context.Context, e Env, flags *flag.FlagSet, args []string) (err error) {
	url, scope := storeFlag(flags), scopeFlags(flags)
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	s, err := scope()
	if err != nil {
		return err
	}
	if s.Agent == "" {
		return errors.New("-project and -agent are wanted, both")
	}
	c, err := place(e, *url)
	if err != nil {
		return err
	}
	from, err := openEraser(ctx, c)
	if err != nil {
		return fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	out := receipt{Project: s.Project, Agent: s.Agent}
	s.Bad = func(string, error) {} // what cannot be read is erased, too
	if err := from.Export(ctx, s, func(r export.Record) error { out.Erased.Add(r); return nil }); err != nil {
		return err
	}
	out.Erased.Endpoints = 0 // they stay
	if err := from.Erase(ctx, s.Project, s.Agent); err != nil {
		return err
	}
	if _, err := from.Head(ctx, s.Project, s.Agent); !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("the agent is still found after it was erased: %v", err)
	}
	out.ErasedAt = time.Now().UTC().Format(time.RFC3339)
	return json.NewEncoder(e.Stdout).Encode(out)
}
