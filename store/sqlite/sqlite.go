// Package sqlite keeps agents, messages and the webhook outbox in one SQLite file, or in memory:
// the store of a single server. Store is a memory.Store, below package engine, and a webhook.Store.
//
// Package dbfile owns the file and runs its transactions; this package knows what the tables hold.
package sqlite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Commit describes one transaction, for metrics.
type Commit = dbfile.Commit

// InMemory is the path of a store that never touches the disk and is lost with the process.
const InMemory = dbfile.InMemory

// ErrInUse is in the error of a file that another process has.
var ErrInUse = dbfile.ErrInUse

// Options sets where the file is and how much it may use. Zero values mean the defaults.
type Options struct {
	// Path is the database file. SQLite keeps PATH-wal and PATH-shm beside it, and PATH.lock holds
	// a lock. The folder is created with mode 0700 if it is missing. The files have mode 0600.
	// Symbolic links are followed. A file with more than one hard link is refused. InMemory means
	// no file.
	Path string
	// SealKey encrypts secrets at rest: agents' settings and properties, endpoints' signing
	// secrets. It may have any length; without it secrets are stored in clear. A file that was used
	// without a key is encrypted when it is first opened with one, and needs it from then on.
	SealKey []byte
	// DataKey wraps the data keys that encrypt everything else too: messages, events, records,
	// values. It has encryption.KeyLen bytes, or none. A file that had one needs it from then on.
	DataKey []byte
	// Terms, if not nil, returns the words by which FindRecords finds a record.
	Terms record.Terms
	// MaxPages limits the file, in pages of 4 KiB. A write beyond it fails as on a full disk. 0
	// means no limit.
	MaxPages int
	// Observe, if not nil, is called after every transaction, before the next one begins. It must
	// be quick.
	Observe func(Commit)
	// Report, if not nil, is called for each problem that an operator should look after although
	// the store goes on, and with a nil error when it is over.
	Report func(what string, err error)
}

func (o Options) withDefaults() Options {
	if o.Observe == nil {
		o.Observe = func(Commit) {}
	}
	if o.Report == nil {
		o.Report = func(string, error) {}
	}
	return o
}

// Store is an open database. An agent's change and the deliveries of its events commit together.
type Store struct {
	db      *dbfile.DB
	sealer  encryption.Sealer
	keys    keyReader
	lastKey int64 // the highest number of a data key; used with the writer's turn
	words   statements.Words
	large   chan struct{} // holds a value while a large change of records waits or is written
	lists   *cache.Cache[user, *agentList]
	changed changes

	// Changed with the writer's turn, under mu too. mu guards some fields of each endpoint as well.
	mu        sync.Mutex
	endpoints []*endpoint
	index     index

	// Changed with the writer's turn, read by all.
	counts    [memory.Statuses]atomic.Int64
	published atomic.Pointer[[]webhook.Endpoint]
	woken     chan struct{}

	claims map[int64]claim // by delivery; guarded by mu
	fence  int64           // of the last claim; it starts from the time, so that no earlier process had it
}

var (
	_ memory.Store  = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// Open opens the file and creates or migrates its schema. Its errors are for the operator: another
// process has the file, the file is of a newer version or of another program, the key is missing or
// wrong, or the disk fails.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if ctx.Err() != nil {
		return nil, fault.Ended(ctx)
	}
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	err = s.load()
	if err == nil {
		err = s.db.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+o.Path), s.keys.close(), s.db.Release())
	}
	// What a crash left half done. What cannot be finished now, on a full disk, waits for the next
	// Open, or the next call of its kind.
	for _, finish := range []func(context.Context) error{s.closeDeleted, s.resumeReplays} {
		if err := finish(ctx); err != nil && ctx.Err() != nil {
			return nil, errors.Join(err, s.Close())
		} else if err != nil {
			o.Report("deletions and replays that a crash interrupted wait for the next start", err)
		}
	}
	return s, nil
}

// openStore returns a store of which only the writer is open, and nothing is loaded.
func openStore(o Options) (*Store, error) {
	if o.Path == "" {
		return nil, fault.New(fault.Invalid, "the store needs a path")
	}
	steps, err := migrations()
	if err != nil {
		return nil, err
	}
	db, err := dbfile.Open(dbfile.Options{
		Path: o.Path, Schema: steps, MaxPages: o.MaxPages, Observe: o.Observe, Report: o.Report, Inspect: quickCheck,
	})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, large: make(chan struct{}, 1), lists: newLists(), claims: map[int64]claim{}, fence: time.Now().UnixMicro(), woken: make(chan struct{}, 1)}
	wrapper, has, err := checkDataKey(db.Writer(), o.DataKey)
	if err == nil {
		s.sealer, err = openSealer(db.Writer(), o.SealKey)
	}
	if err == nil {
		err = s.openKeys(o, wrapper, has)
	}
	if err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+o.Path), db.Release())
	}
	s.words = statements.Words{Terms: o.Terms, Sealer: s.sealer}
	return s, nil
}

// load reads what the store keeps in memory.
func (s *Store) load() (err error) {
	w := s.db.Writer()
	if err := s.loadCounts(w); err != nil {
		return err
	}
	if s.endpoints, err = loadEndpoints(w, &s.sealer); err != nil {
		return err
	}
	s.index = newIndex(s.endpoints)
	s.publishEndpoints()
	return nil
}

// Close commits what waits to be written and releases the file. Later calls fail with
// fault.Unavailable.
func (s *Store) Close() error { return errors.Join(s.keys.close(), s.db.Close()) }

// Purge removes what was erased from the write-ahead log; see dbfile.DB.Purge.
func (s *Store) Purge(ctx context.Context) error { return s.db.Purge(ctx) }

// tx is a transaction of a store.
type tx struct {
	*dbfile.Tx
	s *Store
}

// in returns a function of package dbfile that runs fn.
func (s *Store) in(fn func(*tx) error) func(*dbfile.Tx) error {
	return func(t *dbfile.Tx) error { return fn(&tx{t, s}) }
}

// write runs fn in a transaction; see dbfile.DB.Write.
func (s *Store) write(ctx context.Context, what string, fn func(*tx) error) error {
	return s.db.Write(ctx, what, s.in(fn))
}

// writeSlices runs fn in one transaction after the other, between those of others, until it reports
// that no more is left. It returns the sum of what fn counts.
func (s *Store) writeSlices(ctx context.Context, what string, fn func(*tx) (n int, more bool, err error)) (sum int, err error) {
	for more := true; more; {
		n := 0
		err := s.write(ctx, what, func(t *tx) (err error) {
			n, more, err = fn(t)
			return err
		})
		if err != nil {
			return sum, err
		}
		sum += n
	}
	return sum, nil
}

// ServerKey implements webhook.Log.
func (s *Store) ServerKey(ctx context.Context, name string) (out []byte, err error) {
	err = s.write(ctx, "read key", func(t *tx) (err error) {
		key, err := t.key(encryption.Of{})
		if err == nil {
			out, err = statements.ServerKey(t.writing(), s.sealer, key, name)
		}
		return err
	})
	return out, err
}
