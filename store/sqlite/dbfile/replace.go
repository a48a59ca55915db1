package dbfile

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
	path, newPath string
	lock          *lock
}

// newMark is the suffix of a new file that is not complete.
const newMark = ".new"

// OpenReplacement takes the lock of the path. Without overwrite it fails with fault.Conflict if the
// file exists.
func OpenReplacement(path string, overwrite bool) (*Replacement, error) {
	l, path, err := lockPath(path, 0)
	if err != nil {
		return nil, err
	}
	r := &Replacement{path: path, newPath: path + newMark, lock: l}
	there, err := exists(path)
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

// Path returns the path of the old file.
func (r *Replacement) Path() string { return r.path }

// NewPath returns the path under which the new file is filled and read until Commit.
func (r *Replacement) NewPath() string { return r.newPath }

// Discard removes the new file.
func (r *Replacement) Discard() error { return removeDatabase(r.newPath) }

// removeDatabase removes a database file and what stands beside it.
func removeDatabase(path string) error {
	for _, end := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Commit replaces the old file with the new one, which must not be open, in one step. At
// any moment one of them is there, complete.
func (r *Replacement) Commit() error {
	if log, err := exists(r.newPath + "-wal"); err != nil || log {
		return errors.Join(err, fault.New(fault.Unavailable, "the new file's log was not moved into it"))
	}
	if err := syncFile(r.newPath); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the new file cannot be put on disk")
	}
	if err := r.settle(); err != nil {
		return err
	}
	if err := os.Rename(r.newPath, r.path); err != nil {
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
	c, err := openConn(r.path, "", "busy_timeout(5000)", "synchronous(FULL)")
	if err == nil {
		busy, err = c.Number("PRAGMA wal_checkpoint(TRUNCATE)")
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, Classify(err, "open"), fmt.Sprintf("the old file cannot be read: move %s and what stands beside it (-wal, -shm) away, then do it again", r.path))
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
func (r *Replacement) Close() error { return r.lock.release() }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
