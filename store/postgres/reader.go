package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// Reader reads a database while servers use it, and changes nothing. Its sessions are read-only, so
// a standby or a user with read rights is enough. It creates no tables and seals nothing.
type Reader struct {
	s      *Store
	sealed bool
}

var (
	_ export.Source = (*Reader)(nil)
	_ export.Prober = (*Reader)(nil)
)

// OpenReader connects to a database. The schema must be that of this program. The key in o is not
// used if the database is not encrypted.
func OpenReader(ctx context.Context, o Options) (*Reader, error) {
	o = o.withDefaults()
	c, err := pg.Config(o.URL, o.Timeout)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 2
	s := &Store{woken: make(chan struct{}, 1), stop: func() {}}
	if s.db, err = pg.Open(ctx, c, pg.Options{Timeout: o.Timeout, ReadOnly: true}); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, max(o.Timeout, time.Minute))
	defer cancel()
	sealed, err := s.openReader(bounded, o)
	if err != nil {
		s.db.Pool.Close()
		return nil, pg.Classify(err, "open the database")
	}
	return &Reader{s, sealed}, nil
}

// Sealed reports whether the secrets in the database are encrypted.
func (r *Reader) Sealed() bool { return r.sealed }

func (s *Store) openReader(ctx context.Context, o Options) (sealed bool, err error) {
	steps, err := migrations()
	if err != nil {
		return false, err
	}
	have, err := pg.SchemaVersion(ctx, s.db.Pool)
	if err != nil {
		return false, err
	}
	if have != len(steps) {
		return false, fault.New(fault.Invalid, "the database has schema %d and this program reads %d: serve it once with this version, or use the version that wrote it", have, len(steps))
	}
	var check []byte
	err = s.db.Pool.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'seal'").Scan(&check)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	if err == nil {
		if s.sealer, err = encryption.Check(o.SealKey, check); err != nil {
			return false, fault.Wrap(fault.Invalid, err, fmt.Sprint("the secrets in this database cannot be read: ", err))
		}
	}
	w, mark, err := checkDataKey(ctx, s.db.Pool, o.DataKey)
	if err == nil && mark != nil {
		s.sealer = s.sealer.WithKeys(w, nil) // each export has a load of its own
	}
	return s.sealer.Seals(), err
}

// Export implements export.Source.
func (r *Reader) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return r.s.Export(ctx, sc, each)
}

// Probe implements export.Prober.
func (r *Reader) Probe(ctx context.Context, each func(export.Finding) error) error {
	return r.s.Probe(ctx, each)
}

// Unfinished reports whether the database holds an unfinished import.
func (r *Reader) Unfinished(ctx context.Context) (bool, error) { return r.s.Unfinished(ctx) }

// RecordIDs is statements.RecordIDs.
func (r *Reader) RecordIDs(ctx context.Context, project, name, after string, limit int) (ids []string, err error) {
	err = r.s.db.Read(ctx, "read records", func(ctx context.Context) error {
		ids, err = statements.RecordIDs(pg.NewStatements(ctx, r.s.db.Pool), project, name, after, limit)
		return err
	})
	return ids, err
}

// Close closes the connections.
func (r *Reader) Close() error {
	r.s.db.Pool.Close()
	return nil
}
