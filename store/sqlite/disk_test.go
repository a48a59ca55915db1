package sqlite_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// diskFault is a way in which a disk fails.
type diskFault int

const (
	noFault    diskFault = iota
	failWrite            // a write fails, nothing is written
	shortWrite           // a write fails, its beginning is written
	full                 // there is no room for a write
	shortFull            // there is room for the beginning of a write
	failSync             // what was not on disk stays in memory, until the file is read anew
	dropSync             // as on Linux: the next sync succeeds, but what this one has lost stays lost
	slowSync             // others have their turns before it ends, and the machine may stop meanwhile
	failRead
	failResize // a file cannot be truncated or extended
	faults
)

// disk is a folder below which SQLite's files keep two states: the one that processes see, which is
// in the files, and the one that survives a power failure, which is in memory. It fails as the test
// wants.
type disk struct {
	dir string

	mu     sync.Mutex
	random *rand.Rand
	files  map[string]*diskFile // by name in dir
	calls  int                  // writes, syncs and truncations so far
	fails  func(call int, is diskFault) bool
	kind   diskFault
	stopAt int // the call at which the machine stops; 0 is never
	after  map[string][]byte
	power  bool // a stop is a power failure, not the end of the process
}

// diskFile is one file.
type diskFile struct {
	durable []byte
	pending []diskWrite
	removed bool
}

// diskWrite is data that was written, or, without data, the length to which the file was truncated.
type diskWrite struct {
	at   int64
	data []byte
}

func (f *diskFile) apply(b []byte, w diskWrite) []byte {
	if w.data == nil {
		return slices.Grow(b, max(0, int(w.at)-len(b)))[:w.at]
	}
	if end := int(w.at) + len(w.data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[w.at:], w.data)
	return b
}

// sector is what a disk writes as a whole.
const sector = 512

// settle makes some of what is pending durable and forgets the rest.
func (d *disk) settle(f *diskFile) {
	some := d.random.IntN(3) // none, all, or each by chance
	for _, w := range f.pending {
		if w.data == nil {
			if some == 1 || some == 2 && d.random.IntN(2) == 0 {
				f.durable = f.apply(f.durable, w)
			}
			continue
		}
		for at := 0; at < len(w.data); at += sector {
			if some == 1 || some == 2 && d.random.IntN(2) == 0 {
				f.durable = f.apply(f.durable, diskWrite{w.at + int64(at), w.data[at:min(at+sector, len(w.data))]})
			}
		}
	}
	f.pending = nil
}

// call counts a call and returns the fault that it meets. d.mu is held.
func (d *disk) call(may ...diskFault) diskFault {
	if d.after != nil {
		return failWrite
	}
	d.calls++
	if d.calls == d.stopAt {
		d.stop()
		return failWrite
	}
	if d.fails != nil && slices.Contains(may, d.kind) && d.fails(d.calls, d.kind) {
		return d.kind
	}
	return noFault
}

// stop keeps the files as they are after the machine, or the process, has stopped. Nothing is
// written from now on.
func (d *disk) stop() {
	if d.after != nil {
		return
	}
	d.after = map[string][]byte{}
	for name, f := range d.files {
		if d.power {
			d.settle(f)
			if f.removed && d.random.IntN(2) == 0 {
				continue
			}
			d.after[name] = f.durable
		} else if b, err := os.ReadFile(filepath.Join(d.dir, name)); err == nil {
			d.after[name] = b
		}
	}
}

// disks are those that SQLite's calls may meet.
var disks sync.Map // by folder

// handles are SQLite's open files that are on a disk, by their address.
var handles sync.Map

type handle struct {
	d    *disk
	f    *diskFile
	orig *sqlite3.Tsqlite3_io_methods
}

// newDisk returns a disk in a new folder with these files.
func newDisk(t *testing.T, files map[string][]byte, random *rand.Rand) *disk {
	t.Helper()
	installDisks()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{dir: dir, random: random, files: map[string]*diskFile{}}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(d.dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	disks.Store(d.dir, d)
	return d
}

// discard removes the disk. No file of it is open any more.
func (d *disk) discard() {
	disks.Delete(d.dir)
	_ = os.RemoveAll(d.dir) // the test's own folder
}

// in returns the value at an address outside of Go's memory.
func in[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// pointer returns a function as SQLite calls it.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// function returns a function of SQLite.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// Signatures of SQLite's interface to files.
type (
	openFunc     = func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	deleteFunc   = func(*libc.TLS, uintptr, uintptr, int32) int32
	closeFunc    = func(*libc.TLS, uintptr) int32
	bufferFunc   = func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	truncateFunc = func(*libc.TLS, uintptr, int64) int32
	syncFunc     = func(*libc.TLS, uintptr, int32) int32
)

// installDisks makes SQLite's default way to files go through disks. Other files are not affected.
var installDisks = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	was := sqlite3.Xsqlite3_vfs_find(tls, 0)
	if was == 0 {
		panic("SQLite has no default VFS")
	}
	original = *in[sqlite3.Tsqlite3_vfs](was)
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(original)))
	v := in[sqlite3.Tsqlite3_vfs](p)
	*v = original
	v.FxOpen, v.FxDelete = pointer[openFunc](diskOpen), pointer[deleteFunc](diskDelete)
	if sqlite3.Xsqlite3_vfs_register(tls, p, 1) != sqlite3.SQLITE_OK {
		panic("the VFS cannot be registered")
	}
})

var original sqlite3.Tsqlite3_vfs

// methods are those of open files on disks, by the ones that they stand for.
var methods sync.Map

func fileOf(name uintptr) (*disk, string) {
	if name == 0 {
		return nil, ""
	}
	path := libc.GoString(name)
	d, ok := disks.Load(filepath.Dir(path))
	if !ok {
		return nil, ""
	}
	return d.(*disk), filepath.Base(path)
}

func diskOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFunc](original.FxOpen)(tls, vfs, name, file, flags, out)
	d, base := fileOf(name)
	if rc != sqlite3.SQLITE_OK || d == nil {
		return rc
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[base]
	if f == nil || f.removed {
		f = &diskFile{}
		f.durable, _ = os.ReadFile(filepath.Join(d.dir, base))
		d.files[base] = f
	}
	opened := in[sqlite3.Tsqlite3_file](file)
	orig := in[sqlite3.Tsqlite3_io_methods](opened.FpMethods)
	handles.Store(file, &handle{d, f, orig})
	m, ok := methods.Load(opened.FpMethods)
	if !ok {
		p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*orig)))
		own := in[sqlite3.Tsqlite3_io_methods](p)
		*own = *orig
		own.FxClose, own.FxTruncate, own.FxSync = pointer[closeFunc](diskClose), pointer[truncateFunc](diskTruncate), pointer[syncFunc](diskSync)
		own.FxRead, own.FxWrite = pointer[bufferFunc](diskRead), pointer[bufferFunc](diskWriteAt)
		m, _ = methods.LoadOrStore(opened.FpMethods, p)
	}
	opened.FpMethods = m.(uintptr)
	return rc
}

func diskDelete(tls *libc.TLS, vfs, name uintptr, sync int32) int32 {
	d, base := fileOf(name)
	if d == nil {
		return function[deleteFunc](original.FxDelete)(tls, vfs, name, sync)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.call() != noFault {
		return sqlite3.SQLITE_IOERR_DELETE
	}
	rc := function[deleteFunc](original.FxDelete)(tls, vfs, name, sync)
	if f := d.files[base]; f != nil && rc == sqlite3.SQLITE_OK {
		f.removed = true
	}
	return rc
}

func handleOf(file uintptr) *handle {
	h, _ := handles.Load(file)
	return h.(*handle)
}

func diskClose(tls *libc.TLS, file uintptr) int32 {
	h := handleOf(file)
	handles.Delete(file)
	return function[closeFunc](h.orig.FxClose)(tls, file)
}

func diskRead(tls *libc.TLS, file, buf uintptr, n int32, at int64) int32 {
	h := handleOf(file)
	h.d.mu.Lock()
	fails := h.d.after == nil && h.d.fails != nil && h.d.kind == failRead && h.d.fails(h.d.calls, failRead)
	h.d.mu.Unlock()
	if fails {
		return sqlite3.SQLITE_IOERR_READ
	}
	return function[bufferFunc](h.orig.FxRead)(tls, file, buf, n, at)
}

func diskWriteAt(tls *libc.TLS, file, buf uintptr, n int32, at int64) int32 {
	h := handleOf(file)
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	is := h.d.call(failWrite, shortWrite, full, shortFull)
	failed := int32(sqlite3.SQLITE_OK)
	switch is {
	case noFault:
	case failWrite:
		return sqlite3.SQLITE_IOERR_WRITE
	case full:
		return sqlite3.SQLITE_FULL
	default:
		if n = int32(h.d.random.IntN(int(n))); n == 0 {
			return sqlite3.SQLITE_FULL
		}
		if failed = sqlite3.SQLITE_IOERR_WRITE; is == shortFull {
			failed = sqlite3.SQLITE_FULL
		}
	}
	if rc := function[bufferFunc](h.orig.FxWrite)(tls, file, buf, n, at); rc != sqlite3.SQLITE_OK {
		return rc
	}
	h.f.pending = append(h.f.pending, diskWrite{at, slices.Clone(unsafe.Slice(in[byte](buf), n))})
	return failed
}

func diskTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	h := handleOf(file)
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.call(failResize) != noFault {
		return sqlite3.SQLITE_IOERR_TRUNCATE
	}
	rc := function[truncateFunc](h.orig.FxTruncate)(tls, file, size)
	if rc == sqlite3.SQLITE_OK {
		h.f.pending = append(h.f.pending, diskWrite{at: size})
	}
	return rc
}

// diskSync does not use the real disk: a test has nothing to fear from a power failure.
func diskSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	h := handleOf(file)
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	switch h.d.call(failSync, dropSync, slowSync) {
	case noFault:
	case slowSync:
		h.d.mu.Unlock()
		for range 200 {
			runtime.Gosched()
		}
		h.d.mu.Lock()
		if h.d.call() != noFault { // it counts as a call, at which the machine may stop
			return sqlite3.SQLITE_IOERR_FSYNC
		}
	case dropSync:
		h.d.settle(h.f)
		return sqlite3.SQLITE_IOERR_FSYNC
	default:
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	for _, w := range h.f.pending {
		h.f.durable = h.f.apply(h.f.durable, w)
	}
	h.f.pending = nil
	return sqlite3.SQLITE_OK
}
