// Package dbfile opens a SQLite database file for one process. A DB has one connection that writes,
// several that read, and a lock that keeps other processes out. It knows nothing of what the tables
// hold.
//
// Concurrent calls of Write share a transaction and so an fdatasync, and each returns when its
// transaction is on disk (WAL, synchronous=FULL). Reads never wait for a write. A DB notices when
// its files are deleted, replaced or damaged, and then stores nothing.
//
// A database in memory has one connection, which reads and writes take in turn. So a function that
// reads must not write, or read in a second call.
package dbfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/heardlog/heardlog/internal/fault"
)

// Options sets where the file is and how it is used. All fields but MaxPages must be set.
type Options struct {
	// Path is the database file. SQLite keeps PATH-wal and PATH-shm beside it, and PATH.lock holds
	// a lock. The folder is created with mode 0700 if it is missing. The files have mode 0600.
	// Symbolic links are followed. A file with more than one hard link is refused. InMemory means
	// no file.
	Path string
	// Schema holds the steps of the schema, which run once each, in their order.
	Schema []string
	// MaxPages limits the file, in pages of 4 KiB. 0 means no limit.
	MaxPages int
	// Observe is called after every transaction, before the next one begins.
	Observe func(Commit)
	// Report is called for each problem that an operator should look after, and with a nil error
	// when it is over.
	Report func(what string, err error)
	// Inspect looks for damage and calls each with its signs, and rest after each step. It runs
	// once, in the background.
	Inspect func(ctx context.Context, c *Conn, rest Rest, each func(what string)) error
}

// InMemory is the path of a database that never touches the disk and is lost with the process.
const InMemory = ":memory:"

// DB is an open database.
type DB struct {
	o       Options
	path    string
	vfs     string // of all connections
	lock    *lock
	watch   watch
	damage  damage
	readers *readers // nil in memory
	writer  writer
	helper  *Conn // makes checkpoints; nil in memory
	hold    *Conn // keeps the log from being begun again meanwhile; nil in memory
	remains remains

	stopInspect context.CancelFunc
	inspected   chan struct{} // closed when inspect has ended

	closing          sync.Once
	closeErr         error
	checkpointDue    chan struct{} // asks checkpointLoop for a checkpoint
	checkpointsEnded chan struct{} // closed when checkpointLoop has ended
	checkpointAt     int           // pages of the log that ask for one; guarded by the writer's turn
	unchecked        int           // rows changed since the log was checked; guarded by the writer's turn

	purgeDue           chan struct{} // asks checkpointLoop to empty the log
	purgeAsked, purged atomic.Int64  // how often that was asked, and up to which of these it is done
}

// Page caches of the writer and of each reader, in SQLite's unit: negative KiB. The writer's holds
// the index pages of some 1,500 agents that are written to in turn. A reader's is emptied by every
// commit, so it serves little more than the inner pages of the trees. The system's own cache stands
// behind both.
const (
	writerCache = "cache_size(-8000)"
	readerCache = "cache_size(-1500)"
)

// Open takes the lock, opens the connection that writes, and creates or migrates the schema. Only
// Writer and Release may be called before Start.
func Open(o Options) (*DB, error) {
	d := &DB{
		o: o, damage: damage{report: o.Report}, inspected: make(chan struct{}), writer: writer{turn: make(chan struct{}, 1)},
		checkpointDue: make(chan struct{}, 1), checkpointsEnded: make(chan struct{}), purgeDue: make(chan struct{}, 1), checkpointAt: checkpointPages,
	}
	if err := d.openWriter(); err != nil {
		return nil, errors.Join(Classify(err, "open "+o.Path), d.Release())
	}
	return d, nil
}

func (d *DB) openWriter() (err error) {
	if d.o.Path == InMemory {
		d.writer.Conn, err = openConn(InMemory, "", append([]string{newFile}, contentPragmas...)...)
	} else {
		err = d.openFile()
	}
	if err != nil {
		return err
	}
	if err := migrate(d.writer.Conn, d.o.Schema); err != nil {
		return err
	}
	if d.o.MaxPages > 0 {
		return d.writer.Script(fmt.Sprintf("PRAGMA max_page_count = %d", d.o.MaxPages))
	}
	return nil
}

func (d *DB) openFile() (err error) {
	// SQLite creates its own files with the mode of the database file, so that is created first.
	if d.lock, d.path, err = lockPath(d.o.Path, os.O_CREATE); err != nil {
		return err
	}
	if err := d.connectWriter(); err != nil {
		if !noIndex(err) {
			return err
		}
		d.vfs = privateIndex
		if again := d.connectWriter(); again != nil {
			return errors.Join(err, again)
		}
		d.o.Report("the database file: the disk is full, so other processes cannot read it until the server is restarted", err)
	}
	if mode, err := d.writer.Only("PRAGMA journal_mode"); err != nil || mode.Text(0) != "wal" {
		return errors.Join(err, fault.New(fault.Unavailable, "the file system does not allow a write-ahead log"))
	}
	return nil
}

// newFile is set before the first page is written, so that Compact can shrink the file.
const newFile = "auto_vacuum(INCREMENTAL)"

// contentPragmas are set for every connection that writes. It overwrites what it deletes with
// zeros, so that erased texts do not stay in the file. Large sorts stay in memory.
var contentPragmas = []string{"foreign_keys(1)", "temp_store(MEMORY)", "secure_delete(1)"}

// connectWriter opens the connection that writes the file.
func (d *DB) connectWriter() error {
	pragmas := append([]string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)",
		fmt.Sprintf("journal_size_limit(%d)", logLimit), writerCache,
	}, contentPragmas...)
	st, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if st.Size() == 0 {
		pragmas = append([]string{newFile}, pragmas...)
	}
	d.writer.Conn, err = openConn(d.path, d.vfs, pragmas...)
	return err
}

// Writer returns the connection that writes, for use before Start.
func (d *DB) Writer() *Conn { return d.writer.Conn }

// OpenBeside opens one more connection that only reads, for reads in the middle of others. It sees
// what is committed. The caller closes it before the DB.
func (d *DB) OpenBeside() (*Conn, error) { return openReader(d.path, d.vfs) }

// Start opens the other connections and begins to look after the file. In memory nothing runs in
// the background.
func (d *DB) Start(ctx context.Context) (err error) {
	if d.o.Path == InMemory {
		d.stopInspect = func() {}
		close(d.inspected)
		close(d.checkpointsEnded)
		return nil
	}
	if d.helper, err = openConn(d.path, d.vfs, "busy_timeout(5000)", "synchronous(FULL)"); err != nil {
		return err
	}
	if d.hold, err = openReader(d.path, d.vfs); err != nil {
		return err
	}
	if d.readers, err = openReaders(d.path, d.vfs); err != nil {
		return err
	}
	for _, c := range append(d.readers.all, d.helper, d.hold, d.writer.Conn) {
		c.damage = &d.damage
	}
	if IsDamage(CheckFirstPage(d.path)) { // after a power failure it may be half written
		if _, err := checkpoint(d.helper, "PASSIVE"); err != nil {
			return err
		}
		d.damage.note(CheckFirstPage(d.path))
	}
	if err := d.watch.begin(d.path, d.lock.file); err != nil {
		return err
	}
	go d.checkpointLoop()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stopInspect = stop
	go d.inspect(background)
	return nil
}

// Close commits what waits to be written and releases the file. Later calls fail with
// fault.Unavailable.
func (d *DB) Close() error {
	d.closing.Do(func() {
		d.stopInspect()
		<-d.inspected
		d.closeWriter()
		close(d.checkpointDue)
		<-d.checkpointsEnded
		d.closeErr = d.Release()
	})
	return d.closeErr
}

// Release closes a DB that was not started. The last connection to close moves the log into the
// database file and deletes the log. If another database is there now, that would damage it, so the
// writer's connection stays open until the process ends: SQLite then leaves both files as they are.
func (d *DB) Release() error {
	var errs []error
	if d.readers != nil {
		errs = append(errs, d.readers.close())
	}
	for _, c := range []*Conn{d.helper, d.hold} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if d.writer.Conn != nil && (d.watch.first == nil || d.watch.checkInside() == nil) {
		errs = append(errs, d.wipe(), d.writer.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.release())
	}
	return errors.Join(errs...)
}

// OpenReadOnly opens a connection to an existing file that only reads, also beside the process that
// owns the file. It takes no lock and returns the path without symbolic links.
func OpenReadOnly(path string) (*Conn, string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, "", fault.Wrap(fault.Unavailable, err, "there is no database file")
	}
	path, err := resolve(path)
	if err == nil {
		err = onlyName(path)
	}
	if err != nil {
		return nil, "", err
	}
	c, err := openReader(path, "")
	return c, path, Classify(err, "open "+path)
}

// openReader opens a connection that only reads.
func openReader(path, vfs string) (*Conn, error) {
	return openConn(path, vfs, "busy_timeout(5000)", "query_only(1)", readerCache)
}

// CheckFile returns an error if the files are no longer those that were opened or were overwritten.
func (d *DB) CheckFile() error {
	if d.o.Path == InMemory {
		return nil
	}
	return d.watch.checkInside()
}

// Closed reports whether Close was called.
func (d *DB) Closed() bool { return d.writer.closed.Load() }
