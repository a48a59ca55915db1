package sqlite

import (
	"errors"
	"io/fs"
	"os"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
)

// Replacement is a new database file that replaces an old one when it is complete.
type Replacement struct {
	*dbfile.Replacement
	o Options // of the new file
}

// OpenReplacement takes the lock of the path. Without overwrite it fails with fault.Conflict if the
// file exists.
func OpenReplacement(o Options, overwrite bool) (*Replacement, error) {
	r, err := dbfile.OpenReplacement(o.Path, overwrite)
	if err != nil {
		return nil, err
	}
	o.Path = r.NewPath()
	return &Replacement{r, o}, nil
}

// Options returns those of the new file, which is filled and read under this name until Commit.
func (r *Replacement) Options() Options { return r.o }

// Rescue writes the database that a server still has open to a new file; see dbfile.Rescue.
func Rescue(path, to string) error { return dbfile.Rescue(path, to) }

// Compact shrinks a file that no server uses to the size of what it holds: it copies the content to
// a new file, which replaces the old one. It returns the sizes before and after in bytes. It first
// calls enough with the bytes that it needs; an error ends it.
func Compact(o Options, enough func(need int64) error) (before, after int64, err error) {
	if _, err := os.Lstat(o.Path); errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fault.New(fault.Unavailable, "there is no %s", o.Path)
	} else if err != nil {
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
	st, err := os.Stat(r.Path())
	if err != nil {
		return 0, 0, err
	}
	return before, st.Size(), nil
}

// compact writes the new file.
func (r *Replacement) compact(enough func(int64) error) (before int64, err error) {
	o := r.o
	o.Path = r.Path()
	from, err := OpenReader(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	for _, end := range []string{"", "-wal"} {
		if st, err := os.Stat(r.Path() + end); err == nil {
			before += st.Size()
		}
	}
	used, err := from.c.Number("SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
	if err != nil {
		return 0, dbfile.Classify(err, "look at the file")
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
	if err := from.c.Script("PRAGMA query_only(0)"); err != nil {
		return 0, dbfile.Classify(err, "copy the database")
	}
	if _, err := from.c.Run("VACUUM INTO ?", r.o.Path); err != nil {
		return 0, dbfile.Classify(err, "copy the database")
	}
	made, err := OpenImporter(r.o) // which looks at it as a server does, and gives it a log again
	if err != nil {
		return 0, err
	}
	return before, made.Close()
}
