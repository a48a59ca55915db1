package dbfile

import (
	"errors"
	"fmt"
	"slices"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/heardlog/heardlog/internal/fault"
)

// Classify returns an error of SQLite with its code and a hint for the operator; what names the
// action. It is the only code that knows SQLite's error numbers. Errors that have a code already
// are returned unchanged, and so are those of others.
func Classify(err error, what string) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || err == nil {
		return err
	}
	e, ok := errors.AsType[*modernc.Error](err)
	if !ok {
		return err
	}
	hint := ""
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT:
		return fault.Wrap(fault.Conflict, fmt.Errorf("%s: %w", what, err), "the store holds something of that identity already")
	case sqlite3.SQLITE_FULL:
		hint = "the disk is full or the file has reached its largest size: make room, the store goes on by itself"
	case sqlite3.SQLITE_IOERR:
		hint = "reading or writing the disk failed: look for disk errors and for free space, of the quota and the file system too"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		hint = "another program holds the database file, perhaps a shell or a backup tool that writes"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		hint = "the database file, its -wal file or its folder cannot be written: check owner and permissions"
	case sqlite3.SQLITE_CANTOPEN:
		hint = "the database file cannot be opened: check path, owner and permissions"
	case sqlite3.SQLITE_CORRUPT:
		return Damaged(fmt.Errorf("%s: %w", what, err))
	case sqlite3.SQLITE_NOTADB:
		hint = "the file is damaged or no database: restore a backup, or move it away to start with an empty one"
	case sqlite3.SQLITE_NOMEM:
		hint = "out of memory"
	default:
		return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("%s: %w (%s)", what, err, hint), "the store cannot do this now")
}

// noIndex reports whether the file PATH-shm could not be made or enlarged.
func noIndex(err error) bool {
	e, ok := errors.AsType[*modernc.Error](err)
	return ok && slices.Contains([]int{sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}, e.Code())
}

// ErrClosed is the error of calls after Close.
func ErrClosed() error { return fault.New(fault.Unavailable, "the store is closed") }
