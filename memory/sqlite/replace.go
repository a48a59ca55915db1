package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heardlog/heardlog/internal/fault"
)

// Replacement is a new database file, PATH.new, that replaces PATH when it is complete. It holds
// the lock of PATH all the time, so that no server starts on a file that is about to be replaced.
type Replacement struct {
	path string
	o    Options // of the file in the making
	lock *os.File
}

// newMark is the suffix of a new file that is not complete.
const newMark = ".new"

// OpenReplacement takes the lock of the path. Without overwrite it fails with fault.Conflict if the
// file exists.
func OpenReplacement(o Options, overwrite bool) (*Replacement, error) {
	path, err := filepath.Abs(o.Path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the store's folder cannot be made")
	}
	r := &Replacement{path: path, o: o}
	r.o.Path = path + newMark
	if r.lock, err = lockFile(path); err != nil {
		return nil, err
	}
	there, err := exists(path)
	if st, _ := os.Lstat(path); there && st != nil && !st.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "%s is no file, but a link or something else: name the file itself", path)
	}
	if err == nil && there && !overwrite {
		err = fault.New(fault.Conflict, "%s is there already", path)
	}
	if err == nil && !there {
		var log bool
		if log, err = exists(path + "-wal"); log {
			err = fault.New(fault.Conflict, "there is no %s, but its log %s-wal: put the file back, or move the log away", path, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Options returns those of the new file, which is filled and read under this name until Commit.
func (r *Replacement) Options() Options { return r.o }

// Discard removes the new file.
func (r *Replacement) Discard() error {
	for _, end := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(r.o.Path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Commit replaces the old file with the new one, which must not be open, in one step. At
// any moment one of them is there, complete.
func (r *Replacement) Commit() error {
	if log, err := exists(r.o.Path + "-wal"); err != nil || log {
		return errors.Join(err, fault.New(fault.Unavailable, "the new file's log was not moved into it"))
	}
	if err := syncFile(r.o.Path); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the new file cannot be put on disk")
	}
	if err := r.settle(); err != nil {
		return err
	}
	if err := os.Rename(r.o.Path, r.path); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the new file cannot take its place")
	}
	_ = syncFile(filepath.Dir(r.path)) // not every file system can
	return r.Discard()                 // its lock
}

// settle moves the write-ahead log of the old file into it and removes the log. Otherwise SQLite
// would apply the log to the new file.
func (r *Replacement) settle() error {
	there, err := exists(r.path)
	if err != nil || !there {
		return err
	}
	busy := int64(0)
	c, err := openConn(r.path, "busy_timeout(5000)", "synchronous(FULL)")
	if err == nil {
		busy, err = c.number("PRAGMA wal_checkpoint(TRUNCATE)")
		err = errors.Join(err, c.close())
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, classify(err, "open"), fmt.Sprintf("the old file cannot be read: move %s and what stands beside it (-wal, -shm) away, then do it again", r.path))
	}
	if busy != 0 {
		return fault.New(fault.Unavailable, "somebody reads the old file, %s: do it again when that has ended", r.path)
	}
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(r.path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(fault.Unavailable, err, "the old file's log cannot be taken away")
		}
	}
	return nil
}

// Close releases the lock. A new file that is not complete stays, for the next try.
func (r *Replacement) Close() error { return r.lock.Close() }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Compact shrinks a file that no server uses to the size of what it holds: it copies the content to
// a new file, which replaces the old one. It returns the sizes before and after in bytes. It first
// calls enough with the bytes that it needs; an error ends it.
func Compact(o Options, enough func(need int64) error) (before, after int64, err error) {
	there, err := exists(o.Path)
	if err == nil && !there {
		err = fault.New(fault.Unavailable, "there is no %s", o.Path)
	}
	if err != nil {
		return 0, 0, err
	}
	r, err := OpenReplacement(o, true)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Discard(); err != nil { // what another one has left
		return 0, 0, err
	}
	before, err = r.compact(enough)
	if err == nil {
		err = r.Commit()
	}
	if err != nil {
		return 0, 0, errors.Join(err, r.Discard())
	}
	st, err := os.Stat(r.path)
	if err != nil {
		return 0, 0, err
	}
	return before, st.Size(), nil
}

// compact writes the new file.
func (r *Replacement) compact(enough func(int64) error) (before int64, err error) {
	o := r.o
	o.Path = r.path
	from, err := OpenReader(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	for _, end := range []string{"", "-wal"} {
		if st, err := os.Stat(r.path + end); err == nil {
			before += st.Size()
		}
	}
	used, err := from.c.number("SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
	if err != nil {
		return 0, classify(err, "look at the file")
	}
	if err := enough(used); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(r.o.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // for its mode
	if err != nil {
		return 0, fault.Wrap(fault.Unavailable, err, "the new file cannot be made")
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	// A connection that only reads may not write another file either.
	if err := from.c.script("PRAGMA query_only(0)"); err != nil {
		return 0, classify(err, "copy the database")
	}
	if _, err := from.c.run("VACUUM INTO ?", r.o.Path); err != nil {
		return 0, classify(err, "copy the database")
	}
	made, err := OpenImporter(r.o) // which looks at it as a server does, and gives it a log again
	if err != nil {
		return 0, err
	}
	return before, made.Close()
}
