//go:build linux || darwin

package data

import "golang.org/x/sys/unix"

// freeBytes returns how much a user may still write to the disk of a folder.
func freeBytes(folder string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
