// Package sqlite keeps agents, messages and the webhook outbox in one SQLite file: the store of a single server.
//
// All writes go through one connection, the committer's, which lets concurrent calls share a transaction and so an
// fdatasync (reference/storage.md section 3); a call is answered when its transaction is on disk (WAL, synchronous=FULL). Reads have
// connections of their own and never wait for it. Heads of agents and the newest messages of hot ones are kept in memory, so that
// the common reads and the checks in front of a write run no SQL. One process owns the file: a second one is refused.
package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/webhook"
)

// Options says where the file is and how much may be used for it. Zero values mean the defaults given.
type Options struct {
	// Path is the database file; SQLite keeps PATH-wal and PATH-shm beside it, and PATH.lock holds the lock. The folder is made
	// (mode 0700) if it is not there; the files are for their owner alone (0600).
	Path string
	// SealKey encrypts secrets at rest: agents' settings and properties, endpoints' signing secrets. Any length; empty stores
	// them plain. A file that was used without a key is sealed when first opened with one; from then on it needs it.
	SealKey []byte
	// CacheBytes bounds what is kept in memory of agents and messages; 64 MiB.
	CacheBytes int64
	// CacheAgents bounds how many agents are kept in memory; 50,000.
	CacheAgents int
	// QueueLen is how many writes may wait; past it they fail with fault.Unavailable. 8192.
	QueueLen int
	// Gather is how long a group may wait for callers that are about to come back, under load only; 300 µs. Negative: never.
	Gather time.Duration
	// MaxGroup is how many calls may share a transaction; 1024. 1 gives each its own.
	MaxGroup int
	// Readers is how many reads may be in the database at once; the number of processors, at least 4.
	Readers int
	// MaxPages bounds the file, in pages of 4 KiB; a write past it fails like a full disk. 0 = no bound.
	MaxPages int
	// Observe is told of every transaction, by the committer: it must be quick. May be nil.
	Observe func(Commit)
}

func (o Options) withDefaults() Options {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.CacheAgents <= 0 {
		o.CacheAgents = 50_000
	}
	if o.QueueLen <= 0 {
		o.QueueLen = 8192
	}
	if o.Gather == 0 {
		o.Gather = 300 * time.Microsecond
	}
	if o.MaxGroup <= 0 {
		o.MaxGroup = 1024
	}
	if o.Readers <= 0 {
		o.Readers = max(4, runtime.GOMAXPROCS(0))
	}
	if o.Observe == nil {
		o.Observe = func(Commit) {}
	}
	return o
}

// Store is an open database. It is a memory.Ledger and a webhook.Store; an agent's change and the deliveries of its events
// commit together.
type Store struct {
	lock    *os.File
	sealer  seal.Sealer
	cache   *cache
	readers *readers
	helper  *conn // makes checkpoints beside the committer
	observe func(Commit)
	window  time.Duration
	most    int // calls in a group

	replaying replaying
	pending   pendings
	tellers   sync.WaitGroup // what goes on beside the committer for early changes
	closing   sync.RWMutex   // held for reading while something is put into the queue, or committed beside it
	writing   sync.Mutex     // makes its holder the committer
	showing   sync.RWMutex   // held while a commit is made and then shown to readers of memory; a list waits for it, so that what it shows is what others read
	waiting   atomic.Int64   // callers of the queue that are not answered yet, without those for whom company waits
	closed    atomic.Bool
	queue     chan *item
	ended     chan struct{} // closed when the committer has ended
	copy      chan struct{} // asks the helper for a checkpoint
	copyEnded chan struct{}
	copied    atomic.Bool   // the helper has done one since the committer's last
	released  chan struct{} // closed when everything is

	// The committer's own, under writing.
	writer    *conn
	endpoints []*endpoint // replaced under claims.mu, as index is
	index     index
	expect    float64       // size of the next group, as the last ones were, without what deliveries are about
	held      []*item       // the committer's loop's: what was beyond the share of deliveries
	laterTook time.Duration // what one of those took lately
	diskTook  time.Duration // what the disk took for a commit lately
	walPages  int           // estimate of pages in the log

	// Written by the committer, read by all.
	commits   atomic.Int64 // how many there were
	counts    [memory.Statuses]atomic.Int64
	published atomic.Pointer[[]webhook.Endpoint]
	health    atomic.Pointer[map[string]*health] // by endpoint
	urgent    atomic.Bool                        // there may be tests that go before everything
	woken     chan struct{}

	claims claims
}

var (
	_ memory.Ledger = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// Page caches of the writer and of each reader, in SQLite's unit: negative KiB. The writer's holds the index pages of some 1,500 agents
// that are written to by turns; more filled with pages of the log that nobody looks at again. A reader's is emptied by every
// commit, so it serves little more than the inner pages of the trees. The system's own cache stands behind both.
const (
	writerCache = "cache_size(-8000)"
	readerCache = "cache_size(-1500)"
)

// Open opens the file, makes or migrates its schema and starts the committer. Its errors are for the operator: another process has
// the file, the file is of a newer version or of another program, the key is missing or wrong, the disk says no.
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
	s := &Store{
		cache: newCache(o.CacheBytes, int64(o.CacheAgents)), observe: o.Observe, window: o.Gather, most: o.MaxGroup,
		queue: make(chan *item, o.QueueLen), ended: make(chan struct{}), copy: make(chan struct{}, 1), copyEnded: make(chan struct{}),
		woken: make(chan struct{}, 1), released: make(chan struct{}), claims: newClaims(),
	}
	if err := s.open(path, o); err != nil {
		return nil, errors.Join(classify(err, "open "+path), s.release())
	}
	go s.commitLoop()
	go s.copyLoop()
	if err := s.closeDeleted(ctx); err != nil { // what a crash left of a deletion
		return nil, errors.Join(err, s.Close())
	}
	// One that cannot be finished now, on a full disk, is left for the next opening or call of its name: nobody was told that it is done.
	if err := s.resumeReplays(ctx); err != nil && ctx.Err() != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open takes the lock and opens the connections.
func (s *Store) open(path string, o Options) (err error) {
	if s.lock, err = lockFile(path); err != nil {
		return err
	}
	// SQLite gives its own files the mode of the database file, so that is made first.
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

// lockFile takes the lock that makes this process the file's only one. It is a file of its own because SQLite's locks on the
// database file come and go with its connections.
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
	s.writer, err = openConn(path, "busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		"wal_autocheckpoint(0)", "journal_size_limit(67108864)", writerCache, "temp_store(MEMORY)")
	if err != nil {
		return err
	}
	w := s.writer
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
	err = w.each("SELECT status, count(*) FROM agent INDEXED BY agent_state_start GROUP BY status", nil, func(row []driver.Value) error {
		if st := integer(row[0]); st >= 0 && int(st) < memory.Statuses {
			s.counts[st].Store(integer(row[1]))
		}
		return nil
	})
	if err != nil {
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

// Close serves what is in the queue, ends the committer and gives the file back. Later calls fail with fault.Unavailable.
func (s *Store) Close() error {
	s.closing.Lock()
	was := s.closed.Swap(true)
	s.closing.Unlock()
	if was {
		<-s.released
		return nil
	}
	defer close(s.released)
	close(s.queue)
	<-s.ended
	s.tellers.Wait()
	close(s.copy)
	<-s.copyEnded
	return s.release()
}

// release closes what is open; the last connection moves the log into the database file.
func (s *Store) release() error {
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.close())
	}
	if s.helper != nil {
		errs = append(errs, s.helper.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) isClosed() bool { return s.closed.Load() }
