package dbfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heardlog/heardlog/internal/fault"
)

// lock makes this process the only one that uses a database. It holds two locks. The one on
// PATH.lock covers a file that does not exist yet or is about to be replaced. The one on the
// database file itself covers every other way to it: another name or mount, or a removed PATH.lock.
//
// SQLite's own POSIX locks on the database file end when this process closes any descriptor of it,
// so release must come after the connections are closed.
type lock struct {
	beside *os.File
	file   *os.File // the database, nil if there was none
}

// lockedByte is the offset of the byte of the database file that is locked. SQLite locks bytes from
// 1 GiB on, and no database reaches this offset.
const lockedByte = 1 << 62

// resolve returns the absolute path of a database file, without symbolic links. SQLite names the
// write-ahead log after that path too. The folder must exist.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the store's path cannot be used")
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", fault.New(fault.Invalid, "%s is a symbolic link to a file that does not exist: name the file itself", path)
		}
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the store's path cannot be used")
	}
	return real, nil
}

// lockPath makes the folder of a database if it is missing, and takes the lock. The folder above
// must exist: more than one missing folder is a mistake in the path. It opens the database file
// with the flag, and does without it if there is none. It returns the resolved path.
func lockPath(path string, flag int) (_ *lock, _ string, err error) {
	path, err = filepath.Abs(path)
	if err == nil {
		if err = os.Mkdir(filepath.Dir(path), 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.Unavailable, err, "the folder of the store's file cannot be made, and the one above it must exist")
	}
	if path, err = resolve(path); err != nil {
		return nil, "", err
	}
	l := &lock{}
	if err := l.take(path, flag); err != nil {
		return nil, "", errors.Join(err, l.release())
	}
	return l, path, nil
}

func (l *lock) take(path string, flag int) (err error) {
	if l.beside, err = os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the store's lock file cannot be made")
	}
	if err := tryLock(l.beside); err != nil {
		return inUse(err, path)
	}
	if err := onlyName(path); err != nil {
		return err
	}
	l.file, err = os.OpenFile(path, os.O_RDWR|flag, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fault.Wrap(fault.Unavailable, err, "the database file cannot be opened")
	}
	if err := tryLockByte(l.file); err != nil {
		return inUse(err, path)
	}
	return nil
}

// ErrInUse is in the error of a file that another process has.
var ErrInUse = errors.New("another process has the lock")

func inUse(err error, path string) error {
	return fault.Wrap(fault.Unavailable, errors.Join(ErrInUse, err), fmt.Sprintf("%s is in use by another process; one server at a time can have it", path))
}

// onlyName fails if a file has several names (hard links). SQLite names the write-ahead log after
// the path, so under another name it would miss the log of the first.
func onlyName(path string) error {
	n, err := links(path)
	if err == nil && n > 1 {
		err = fault.New(fault.Invalid, "%s has %d names (hard links), and its write-ahead log belongs to one of them: "+
			"remove the other names ('find DIR -samefile %s' lists them), or use a copy under one name", path, n, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// release unlocks before it closes. A child process that is being started has all descriptors until
// it runs its program, and would hold the locks for so long.
func (l *lock) release() error {
	var errs []error
	if l.file != nil {
		errs = append(errs, unlockByte(l.file), l.file.Close())
	}
	if l.beside != nil {
		errs = append(errs, unlock(l.beside), l.beside.Close())
	}
	return errors.Join(errs...)
}
