package dbfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// The first bytes of the files that Rescue looks for.
var (
	databaseMagic = []byte("SQLite format 3\x00")
	logMagic      = []byte{0x37, 0x7f, 0x06} // of both byte orders
)

// Rescue writes the database that a server still has open to a new file, although the server's own
// file was deleted, moved or replaced. It finds the open files under /proc, so it works on Linux
// only, as the server's user or root. A server that misses its files writes nothing, so they do not
// change meanwhile.
func Rescue(path, to string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	for _, end := range []string{"", "-wal"} {
		if there, err := exists(to + end); err != nil || there {
			return errors.Join(err, fault.New(fault.Conflict, "%s is there already: name a new file", to+end))
		}
	}
	owner, err := ownerOf(path)
	if err != nil {
		return err
	}
	database, err := openFile(owner, databaseMagic)
	if err == nil && database == nil {
		err = fault.New(fault.NotFound, "%s has no database open", owner)
	}
	if err != nil {
		return err
	}
	defer database.Close()
	log, err := openFile(owner, logMagic)
	if err != nil {
		return err
	}
	if log != nil {
		defer log.Close()
	}
	if isAt(database, path) && (log == nil || isAt(log, path+"-wal")) {
		return fault.New(fault.Conflict, "%s is the file that the server has open: use 'heardlog backup', or stop the server", path)
	}
	if err := rescueTo(to, database, log); err != nil {
		return errors.Join(err, removeDatabase(to))
	}
	return syncFile(filepath.Dir(to))
}

// rescueTo copies a database and its log to a new file.
func rescueTo(to string, database, log *os.File) error {
	// The log comes second: it has all that a checkpoint may just be writing into the database.
	for _, f := range []struct {
		from *os.File
		to   string
	}{{database, to}, {log, to + "-wal"}} {
		if f.from == nil {
			continue
		}
		if err := copyNew(f.from, f.to); err != nil {
			return fault.Wrap(fault.Unavailable, err, "the new file cannot be written")
		}
	}
	c, err := openConn(to, "", "synchronous(FULL)")
	if err != nil {
		return Classify(err, "open "+to)
	}
	_, err = SchemaVersion(c)
	if err == nil {
		err = c.Script("PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return Classify(err, "open "+to)
	}
	return syncFile(to)
}

// ownerOf returns the folder /proc/PID/fd of the process that holds the lock file of a path.
func ownerOf(path string) (string, error) {
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "", err
	}
	found := ""
	for _, link := range open {
		is, err := os.Readlink(link)
		if err != nil || strings.TrimSuffix(is, " (deleted)") != path+".lock" || filepath.Dir(link) == found {
			continue
		}
		if found != "" {
			return "", fault.New(fault.Conflict, "several processes use %s: stop all but the one that lost its file", path)
		}
		found = filepath.Dir(link)
	}
	if found == "" {
		return "", fault.New(fault.NotFound, "no running server of this user has %s: run it on the server's machine or in its container, as the same user; this works on Linux only", path)
	}
	return found, nil
}

// openFile opens the file that a process has open and that begins with magic, nil if there is none.
func openFile(folder string, magic []byte) (found *os.File, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		link := filepath.Join(folder, e.Name())
		if st, err := os.Stat(link); err != nil || !st.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(link)
		if err != nil {
			return nil, err
		}
		begin := make([]byte, len(magic))
		if _, err := f.ReadAt(begin, 0); err == nil && bytes.Equal(begin, magic) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, nil
}

// isAt reports whether an open file is the one at path.
func isAt(f *os.File, path string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(path)
	return err == nil && os.SameFile(was, is)
}

// copyNew copies a file to a new one.
func copyNew(from *os.File, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	st, err := from.Stat()
	if err == nil {
		_, err = io.Copy(f, io.NewSectionReader(from, 0, st.Size()))
	}
	return errors.Join(err, f.Close())
}
