package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// keyReader reads data keys while rows are read that they have sealed: on a connection of its own,
// which it opens when it is first needed.
type keyReader struct {
	open func() (*dbfile.Conn, error)
	mu   sync.Mutex // guards c
	c    *dbfile.Conn
}

func (r *keyReader) load(no int64) (k encryption.Wrapped, found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == nil {
		if r.c, err = r.open(); err != nil {
			return k, false, err
		}
	}
	k, found, err = statements.DataKey(reading{r.c}, no)
	return k, found, dbfile.Classify(err, "read a data key")
}

func (r *keyReader) close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c != nil {
		err, r.c = r.c.Close(), nil
	}
	return err
}

// checkDataKey compares a data key with the file, and returns what wraps data keys. has is set if
// the file has some. It fails with encryption.ErrNoDataKey or encryption.ErrWrongDataKey.
func checkDataKey(c *dbfile.Conn, key []byte) (w encryption.Wrapper, has bool, err error) {
	if len(key) > 0 {
		if w, err = encryption.Master(key); err != nil {
			return w, false, fault.Wrap(fault.Invalid, err, "HEARDLOG_DATA_KEY cannot be used")
		}
	}
	row, err := c.First("SELECT value FROM meta WHERE key = ?", statements.DataMark)
	if err != nil || row == nil {
		return w, false, err
	}
	return w, true, w.Check(row.Blob(0))
}

// openKeys makes the sealer seal with data keys, if the options have a key. A file in memory has no
// need of them.
func (s *Store) openKeys(o Options, w encryption.Wrapper, has bool) error {
	if len(o.DataKey) == 0 || o.Path == InMemory {
		return nil
	}
	if !has {
		if _, err := s.db.Writer().Run("INSERT INTO meta (key, value) VALUES (?, ?)", statements.DataMark, w.Mark()); err != nil {
			return err
		}
	}
	s.keys.open = s.db.OpenBeside
	s.sealer = s.sealer.WithKeys(w, s.keys.load)
	return nil
}

// key returns the key that seals for an owner, and makes one if there is none.
func (t *tx) key(of encryption.Of) (encryption.Key, error) {
	sealer, now := &t.s.sealer, time.Now()
	if k, ok := sealer.Current(of, now.UnixMilli()); ok {
		return k, nil
	}
	stored, found, err := statements.NewestKey(t.writing(), of, now.Add(-encryption.MaxAge).UnixMilli(), "")
	if err == nil && !found {
		stored = sealer.Fresh(of, now.UnixMilli())
		stored.No, err = t.insertDataKey(stored)
	}
	if err != nil {
		return encryption.Key{}, err
	}
	k, err := sealer.Key(stored)
	if err == nil {
		t.After(func() { sealer.Use(k) })
	}
	return k, err
}

// insertDataKey stores a data key under a number that no other one has had since this process
// began, not even in a transaction that was rolled back: what is in memory goes by the number.
func (t *tx) insertDataKey(k encryption.Wrapped) (int64, error) {
	last, err := t.Conn.Number("SELECT seq FROM sqlite_sequence WHERE name = 'data_key'")
	if err != nil {
		return 0, err
	}
	no := max(last, t.s.lastKey) + 1
	t.s.lastKey = no
	_, err = t.Exec("INSERT INTO data_key (no, project, user_id, made_ms, wrapped) VALUES (?, ?, ?, ?, ?)", no, k.Project, k.User, k.MadeMS, k.Key)
	return no, err
}

// destroyKeys destroys the data keys of callers that were erased; see statements.DestroyKeys.
func (s *Store) destroyKeys(ctx context.Context, project, user string) error {
	if !s.sealer.HasKeys() {
		return nil
	}
	return s.write(ctx, "destroy data keys", func(t *tx) error {
		nos, err := statements.DestroyKeys(t.writing(), project, statements.KeyOf(project, user).User, "")
		forget := func() { s.sealer.Forget(project, nos) }
		forget() // before the next job of this transaction seals
		t.After(forget)
		return err
	})
}

// RotateDataKey wraps the data keys of a file by another master key. It is done whole or not at
// all. It fails if another process has the file, or has another key.
func RotateDataKey(o Options, to []byte) (n int, err error) {
	s, err := openStore(o.withDefaults())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.keys.close(), s.db.Release()) }()
	from, err := encryption.Master(o.DataKey)
	if err != nil {
		return 0, err
	}
	next, err := encryption.Master(to)
	if err != nil {
		return 0, err
	}
	t := &tx{s.db.OpenTx(), s}
	err = t.Conn.Transaction(func() error {
		n, err = statements.Rewrap(t.writing(), from, next)
		return err
	})
	return n, dbfile.Classify(err, "rotate the data key")
}
