//go:build unix

package dbfile

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// tryLock takes the whole file for this process; the system gives it back when the process ends,
// however it ends.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// ofdLock is fcntl's command F_OFD_SETLK. Its locks belong to an open file and not, like POSIX
// locks, to a process: they last until this descriptor is closed. A lock by flock would not do: on
// macOS it conflicts with SQLite's locks.
var ofdLock = map[string]int{"linux": 37, "darwin": 90}[runtime.GOOS]

// tryLockByte takes lockedByte for this process. It takes nothing on systems and file systems that
// have no such locks.
func tryLockByte(f *os.File) error { return setLockByte(f, unix.F_WRLCK) }

func unlockByte(f *os.File) error { return setLockByte(f, unix.F_UNLCK) }

func setLockByte(f *os.File, kind int16) error {
	if ofdLock == 0 {
		return nil
	}
	err := unix.FcntlFlock(f.Fd(), ofdLock, &unix.Flock_t{Type: kind, Start: lockedByte, Len: 1})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		return nil
	}
	return err
}

// links returns how many names a file has.
func links(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return uint64(st.Nlink), err
}
