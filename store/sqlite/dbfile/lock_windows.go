package dbfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock takes the whole file for this process; the system gives it back when the process ends,
// however it ends.
func tryLock(f *os.File) error { return lockAt(f, 0) }

// tryLockByte takes lockedByte for this process.
func tryLockByte(f *os.File) error { return lockAt(f, lockedByte) }

// Child processes do not get these handles, so closing them unlocks.
func unlock(*os.File) error     { return nil }
func unlockByte(*os.File) error { return nil }

func lockAt(f *os.File, offset int64) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0,
		&windows.Overlapped{Offset: uint32(offset), OffsetHigh: uint32(offset >> 32)})
}

// links returns how many names a file has.
func links(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	var info windows.ByHandleFileInformation
	err = windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info)
	return uint64(info.NumberOfLinks), errors.Join(err, f.Close())
}
