//go:build linux || darwin || freebsd || netbsd || openbsd

package llmadapter

import (
	"errors"
	"syscall"
)

// tries tells that receive works here.
const tries = true

// receive reads what has come into a buffer from the pool; false, without one, if nothing has.
func (f *inflow) receive(fd uintptr) bool {
	if f.ref == nil {
		f.ref = buffers.Get().(*[]byte)
	}
	for {
		f.n, f.err = syscall.Read(int(fd), *f.ref)
		switch {
		case errors.Is(f.err, syscall.EINTR):
			continue
		case errors.Is(f.err, syscall.EAGAIN):
			f.letGo()
			return false
		case f.n <= 0:
			f.n = 0
			f.letGo()
		}
		return true
	}
}
