//go:build linux || darwin || freebsd || netbsd || openbsd

package llmadapter

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// quiet tells whether an idle connection is open and has nothing to say. Anything it does say belongs to no call: an end, a late answer
// to the call before, or the 408 with which some servers close; to read it as the answer of the next call would mix up two callers.
// A session ticket of TLS that came late counts as well, and costs a connection.
func quiet(c net.Conn) bool {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
		return true // never wait
	})
	return err == nil && silent
}
