package dbfile

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sizeOf returns the size of the file at path. It reports false if that is not the file was, or if
// the kernel does not know this call.
//
// Unlike os.Stat it does not read the file's times. Once they were read, Linux gives the next write
// an exact time, so that each fsync of the log would write the log's inode too.
func sizeOf(path string, was os.FileInfo) (int64, bool) {
	var is unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_SIZE, &is); err != nil {
		return 0, false
	}
	st, ok := was.Sys().(*syscall.Stat_t)
	same := ok && st.Ino == is.Ino && st.Dev == unix.Mkdev(is.Dev_major, is.Dev_minor)
	return int64(is.Size), same && is.Mask&unix.STATX_SIZE != 0
}
