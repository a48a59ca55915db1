package dbfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
)

// watch notices that the files of an open database are no longer the ones that were opened. SQLite
// does not: it goes on with a file that has been deleted, moved or replaced, and what it writes is
// gone with the process.
type watch struct {
	copying sync.Mutex // held during a checkpoint, which changes the first page

	mu      sync.Mutex
	files   []watched
	file    *os.File // the database as it was opened
	first   []byte   // page of the database, after the last checkpoint
	changed error    // the first page is another one
}

// What to do if a file is gone.
const (
	doRescue  = "put the same file back, or save the data with 'heardlog rescue NEWFILE' before you stop the server"
	doRestart = "restart the server, which makes a new one"
	doRestore = "stop the server and run 'heardlog restore --overwrite' with a backup"
	doVerify  = "stop that program, restart the server and run 'heardlog verify'. If it was no checkpoint, as Litestream makes them, but another database, restore a backup with 'heardlog restore --overwrite'"
)

// watched is one file.
type watched struct {
	path, do string
	was      os.FileInfo
	size     int64 // it must not become smaller, unless it stays at may or above
	may      int64
}

// logLimit is the size in bytes to which SQLite truncates a larger write-ahead log.
const logLimit = 64 << 20

// begin notes the files of the database at path.
func (w *watch) begin(path string, file *os.File) error {
	w.file = file
	for _, f := range []watched{
		{path: path, do: doRescue, may: math.MaxInt64},
		{path: path + "-wal", do: doRescue, may: logLimit},
		{path: path + "-shm", do: doRestart, may: math.MaxInt64},
	} {
		var err error
		if f.was, err = os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return fault.Wrap(fault.Unavailable, err, "the database file cannot be found")
		}
		w.files = append(w.files, f)
	}
	return w.checkpointed()
}

// check returns an error if a file is missing, another one or truncated. It takes a few
// microseconds, so it runs before every transaction.
func (w *watch) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.changed
	for i := 0; i < len(w.files) && err == nil; i++ {
		err = w.files[i].check()
	}
	if err != nil {
		err = fault.Wrap(fault.Unavailable, err, "the database file was deleted, moved or changed under the server, which stores nothing until it is back")
	}
	return err
}

func (f *watched) check() error {
	if size, ok := sizeOf(f.path, f.was); ok && size >= min(f.size, f.may) {
		f.size = size
		return nil
	}
	is, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was deleted or moved: %s", f.path, f.do)
	case err != nil:
		return err
	case !os.SameFile(is, f.was):
		return fmt.Errorf("%s was replaced by another file: %s", f.path, f.do)
	case is.Size() < min(f.size, f.may):
		return fmt.Errorf("%s was truncated from %d to %d bytes: %s", f.path, f.size, is.Size(), doRestore)
	}
	f.size = is.Size()
	return nil
}

// whileTruncated runs truncate, after which files may be smaller.
func (w *watch) whileTruncated(truncate func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	truncate()
	for i := range w.files {
		w.files[i].size = 0 // the next check notes it
	}
}

// mayShrink allows the database to become as small as this at a checkpoint. It stays allowed until
// the file is opened again.
func (w *watch) mayShrink(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &w.files[0]
	f.may = min(f.may, size)
}

// checkpointed notes the first page of the database. It is called after each checkpoint, also a
// failed one, by a caller that holds copying.
func (w *watch) checkpointed() error {
	b, err := readFirstPage(w.file)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = b
	return nil
}

// checkInside is check with a look into the file: another database may have been copied over it,
// or its first page overwritten. Nothing but checkpoints changes that page. During a checkpoint
// checkInside is check.
func (w *watch) checkInside() error {
	if !w.copying.TryLock() {
		return w.check()
	}
	defer w.copying.Unlock()
	return w.checkFirst()
}

// checkFirst is checkInside for a caller that holds copying.
func (w *watch) checkFirst() error {
	b, err := readFirstPage(w.file)
	w.mu.Lock()
	if err == nil && len(b) >= len(w.first) && !bytes.Equal(b, w.first) { // else it was truncated
		err = fmt.Errorf("%s was written by another program: %s", w.file.Name(), doVerify)
	}
	w.changed = err
	w.mu.Unlock()
	return w.check()
}
