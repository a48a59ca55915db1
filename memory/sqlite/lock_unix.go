//go:build unix

package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the whole file for this process; the system gives it back when the process ends,
// however it ends.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
