// Package sqlite keeps agents, messages and the webhook outbox in one SQLite file: the store of a
// single server. Store is a memory.Store, below package engine, and a webhook.Store.
//
// All writes go through one connection. Concurrent calls share a transaction and so an fdatasync,
// and each returns when its transaction is on disk (WAL, synchronous=FULL). Reads have connections
// of their own and never wait for a write. One process owns the file; a second one is refused.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/webhook"
)

// Options sets where the file is and how much it may use. Zero values mean the defaults.
type Options struct {
	// Path is the database file. SQLite keeps PATH-wal and PATH-shm beside it, and PATH.lock holds
	// the lock. The folder is created with mode 0700 if it is missing. The files have mode 0600.
	Path string
	// SealKey encrypts secrets at rest: agents' settings and properties, endpoints' signing
	// secrets. It may have any length; without it secrets are stored in clear. A file that was used
	// without a key is encrypted when it is first opened with one, and needs it from then on.
	SealKey []byte
	// Readers is how many reads may run at once. By default the number of processors, at least 4.
	Readers int
	// MaxPages limits the file, in pages of 4 KiB. A write beyond it fails as on a full disk. 0
	// means no limit.
	MaxPages int
	// Observe, if not nil, is called after every transaction, before the next one begins. It must
	// be quick.
	Observe func(Commit)
}

func (o Options) withDefaults() Options {
	if o.Readers <= 0 {
		o.Readers = max(4, runtime.GOMAXPROCS(0))
	}
	if o.Observe == nil {
		o.Observe = func(Commit) {}
	}
	return o
}

// Store is an open database. An agent's change and the deliveries of its events commit together.
type Store struct {
	lock    *os.File
	sealer  seal.Sealer
	observe func(Commit)
	readers *readers
	writer  writer
	helper  *conn // makes checkpoints

	closing          sync.Once
	closeErr         error
	checkpointDue    chan struct{} // asks checkpointLoop for a checkpoint
	checkpointsEnded chan struct{} // closed when checkpointLoop has ended

	// Guarded by the writer's turn.
	logPages  int         // estimate of the pages in the write-ahead log
	endpoints []*endpoint // replaced under claims.mu too, as index is
	index     index

	// Changed with the writer's turn, read by all.
	counts    [memory.Statuses]atomic.Int64
	published atomic.Pointer[[]webhook.Endpoint]
	health    atomic.Pointer[map[string]*health] // by endpoint
	urgent    atomic.Bool                        // there may be tests, which are sent first
	woken     chan struct{}

	claims    claims
	replaying replaying
}

var (
	_ memory.Store  = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// Page caches of the writer and of each reader, in SQLite's unit: negative KiB. The writer's holds
// the index pages of some 1,500 agents that are written to in turn. A reader's is emptied by every
// commit, so it serves little more than the inner pages of the trees. The system's own cache stands
// behind both.
const (
	writerCache = "cache_size(-8000)"
	readerCache = "cache_size(-1500)"
)

// Open opens the file and creates or migrates its schema. Its errors are for the operator: another
// process has the file, the file is of a newer version or of another program, the key is missing or
// wrong, or the disk fails.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Path == "" {
		return nil, fault.New(fault.Invalid, "the store needs a path")
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's path cannot be used")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's folder cannot be made")
	}
	s := newStore(o)
	if err := s.open(path, o); err != nil {
		return nil, errors.Join(classify(err, "open "+path), s.release())
	}
	go s.checkpointLoop()
	if err := s.closeDeleted(ctx); err != nil { // what a crash left of a deletion
		return nil, errors.Join(err, s.Close())
	}
	// A replay that cannot be finished now, on a full disk, is left for the next Open or the next
	// call of its name.
	if err := s.resumeReplays(ctx); err != nil && ctx.Err() != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newStore(o Options) *Store {
	return &Store{
		observe: o.Observe, writer: writer{turn: make(chan struct{}, 1)}, claims: newClaims(), woken: make(chan struct{}, 1),
		checkpointDue: make(chan struct{}, 1), checkpointsEnded: make(chan struct{}),
	}
}

// open takes the lock and opens the connections.
func (s *Store) open(path string, o Options) (err error) {
	if s.lock, err = lockFile(path); err != nil {
		return err
	}
	// SQLite creates its own files with the mode of the database file, so that is created first.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database file cannot be opened")
	}
	if err := s.openWriter(path, o); err != nil {
		return err
	}
	if s.helper, err = openConn(path, "busy_timeout(5000)", "synchronous(FULL)"); err != nil {
		return err
	}
	s.readers, err = openReaders(path, o.Readers, "busy_timeout(5000)", "query_only(1)", readerCache)
	return err
}

// lockFile takes the lock that makes this process the only one to use the file. It is a file of its
// own because SQLite's locks on the database file come and go with its connections.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's lock file cannot be made")
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(fault.Wrap(fault.Unavailable, err, fmt.Sprintf("%s is in use by another process; one server at a time can have it", path)), f.Close())
	}
	return f, nil
}

func (s *Store) openWriter(path string, o Options) (err error) {
	s.writer.conn, err = openConn(path, "busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		"wal_autocheckpoint(0)", "journal_size_limit(67108864)", writerCache, "temp_store(MEMORY)")
	if err != nil {
		return err
	}
	w := s.writer.conn
	if mode, err := w.first("PRAGMA journal_mode"); err != nil || text(mode[0]) != "wal" {
		return errors.Join(err, fault.New(fault.Unavailable, "the file system does not allow a write-ahead log"))
	}
	steps, err := migrations()
	if err != nil {
		return err
	}
	if err := migrate(w, steps); err != nil {
		return err
	}
	sealer, converted, err := openSealer(w, o.SealKey)
	if err != nil {
		return err
	}
	s.sealer = sealer
	if converted {
		// Until here the log may still hold the plain text.
		if err := w.script("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			return err
		}
	}
	if o.MaxPages > 0 {
		if err := w.script(fmt.Sprintf("PRAGMA max_page_count = %d", o.MaxPages)); err != nil {
			return err
		}
	}
	if err := s.loadCounts(); err != nil {
		return err
	}
	s.urgent.Store(true)
	if s.endpoints, err = loadEndpoints(w, &s.sealer); err != nil {
		return err
	}
	s.index = newIndex(s.endpoints)
	s.publishEndpoints()
	return nil
}

// Close commits what waits to be written and releases the file. Later calls fail with
// fault.Unavailable.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closeWriter()
		close(s.checkpointDue)
		<-s.checkpointsEnded
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release closes everything. The last connection to close moves the log into the database file.
func (s *Store) release() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.close())
	}
	if s.helper != nil {
		errs = append(errs, s.helper.close())
	}
	if s.writer.conn != nil {
		errs = append(errs, s.writer.conn.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) isClosed() bool { return s.writer.closed.Load() }
