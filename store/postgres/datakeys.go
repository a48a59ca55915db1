package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// Values are sealed with data keys, of which every server finds the same in table data_key. A
// caller's key may be destroyed by any server. So a transaction that seals with one locks its row
// until the commit, and one that destroys it takes a lock that excludes that.

// keyLock is the lock of a transaction that seals. A rotation may change the row meanwhile.
const keyLock = " FOR KEY SHARE"

// besideConns is how many connections read data keys in the middle of other reads.
const besideConns = 2

// checkDataKey compares a data key with the database, and returns what wraps data keys and the
// check value, nil if the database has no data keys.
func checkDataKey(ctx context.Context, q pg.Querier, key []byte) (w encryption.Wrapper, mark []byte, err error) {
	if len(key) > 0 {
		if w, err = encryption.Master(key); err != nil {
			return w, nil, fault.Wrap(fault.Invalid, err, "HEARDLOG_DATA_KEY cannot be used")
		}
	}
	rows, err := pg.Collect(ctx, q, pgx.RowTo[[]byte], "SELECT value FROM meta WHERE key = $1", statements.DataMark)
	if err != nil || len(rows) == 0 {
		return w, nil, err
	}
	return w, rows[0], w.Check(rows[0])
}

// openKeys makes the sealer seal with data keys if there is a key.
func (s *Store) openKeys(ctx context.Context, tx pgx.Tx, key []byte) error {
	w, mark, err := checkDataKey(ctx, tx, key)
	if err != nil || len(key) == 0 {
		return err
	}
	if mark == nil {
		mark = w.Mark()
		if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", statements.DataMark, mark); err != nil {
			return err
		}
	}
	s.dataMark, s.sealer = mark, s.sealer.WithKeys(w, s.loadKey)
	return nil
}

// loadKey reads a data key, in the middle of other reads.
func (s *Store) loadKey(no int64) (k encryption.Wrapped, found bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.db.Timeout)
	defer cancel()
	for try := 1; ; try++ {
		k, found, err = statements.DataKey(pg.NewStatements(ctx, s.beside), no)
		if err == nil || !pg.Broken(err) || try == pg.MaxTries {
			return k, found, pg.Classify(err, "read a data key")
		}
	}
}

// key returns the key that seals for an owner in this transaction, and makes one if there is none.
func (s *Store) key(ctx context.Context, tx pgx.Tx, of encryption.Of) (encryption.Key, error) {
	now := time.Now()
	if k, ok := s.sealer.Current(of, now.UnixMilli()); ok && k.No() == 0 {
		return k, nil
	}
	st := pg.NewStatements(ctx, tx)
	stored, found, err := statements.NewestKey(st, of, now.Add(-encryption.MaxAge).UnixMilli(), keyLock)
	if err != nil || found {
		return s.usable(stored, err)
	}
	var mark []byte
	if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1 FOR SHARE", statements.DataMark).Scan(&mark); err != nil {
		return encryption.Key{}, err
	}
	if !bytes.Equal(mark, s.dataMark) {
		return encryption.Key{}, fault.New(fault.Unavailable, "the data keys of this database are wrapped by another HEARDLOG_DATA_KEY: restart the server with that one")
	}
	stored = s.sealer.Fresh(of, now.UnixMilli())
	err = tx.QueryRow(ctx, "INSERT INTO data_key (project, user_id, made_ms, wrapped) VALUES ($1, $2, $3, $4) RETURNING no",
		pg.Stored(of.Project), pg.Stored(of.User), stored.MadeMS, stored.Key).Scan(&stored.No)
	return s.usable(stored, err)
}

func (s *Store) usable(k encryption.Wrapped, err error) (encryption.Key, error) {
	if err != nil {
		return encryption.Key{}, err
	}
	return s.sealer.Key(k)
}

// keyOf returns the key that seals for an owner, outside of a transaction. It may be destroyed
// before it is used, if it has a number: see Key.No.
func (s *Store) keyOf(ctx context.Context, of encryption.Of) (k encryption.Key, err error) {
	if k, ok := s.sealer.Current(of, time.Now().UnixMilli()); ok {
		return k, nil
	}
	err = s.db.Transact(ctx, "make a data key", func(ctx context.Context, tx pgx.Tx) (err error) {
		k, err = s.key(ctx, tx, of)
		return err
	})
	if err == nil {
		s.sealer.Use(k)
	}
	return k, err
}

// destroyKeys destroys the data keys of callers that were erased; see statements.DestroyKeys.
func (s *Store) destroyKeys(ctx context.Context, project, user string) error {
	if !s.sealer.HasKeys() {
		return nil
	}
	var nos []int64
	err := s.db.Transact(ctx, "destroy data keys", func(ctx context.Context, tx pgx.Tx) (err error) {
		nos, err = statements.DestroyKeys(pg.NewStatements(ctx, tx), project, statements.KeyOf(project, user).User, " FOR UPDATE")
		return err
	})
	s.sealer.Forget(project, nos)
	return err
}

// RotateDataKey wraps the data keys of a database by another master key. It is done whole or not at
// all. Servers that run go on with the keys that they have in memory, and refuse what needs others
// until they are restarted with the new one.
func RotateDataKey(ctx context.Context, o Options, to []byte) (n int, err error) {
	s, err := Open(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	from, err := encryption.Master(o.DataKey)
	if err != nil {
		return 0, err
	}
	next, err := encryption.Master(to)
	if err != nil {
		return 0, err
	}
	err = s.db.Begin(ctx, func(tx pgx.Tx) error { // without the time limit of a call
		var mark []byte
		if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1 FOR UPDATE", statements.DataMark).Scan(&mark); err != nil {
			return err
		}
		if err := from.Check(mark); err != nil {
			return fmt.Errorf("it was rotated meanwhile: %w", err)
		}
		n, err = statements.Rewrap(pg.NewStatements(ctx, tx), from, next)
		return err
	})
	return n, pg.Classify(err, "rotate the data key")
}
