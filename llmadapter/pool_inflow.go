package llmadapter

import (
	"bufio"
	"io"
	"net"
	"sync"
	"syscall"
)

// inflow is what comes in on a connection. Where the system tells that something has come (see tries), a buffer is at hand only from then until it has
// been read: a thousand streams that wait hold none. Elsewhere, and beneath TLS, which has buffers of its own, it stays.
type inflow struct {
	conn net.Conn
	raw  syscall.RawConn // nil where the system is not asked
	try  func(fd uintptr) bool
	ref  *[]byte // of buffers while there is a rest; with no raw the connection's own
	rest []byte  // of it, not read yet
	n    int     // what try read, or failed with
	err  error
}

func newInflow(conn net.Conn) inflow {
	f := inflow{conn: conn}
	if s, ok := conn.(syscall.Conn); ok && tries {
		if raw, err := s.SyscallConn(); err == nil {
			f.raw = raw
		}
	}
	return f
}

// fill waits until there is a rest. It is called when there is none.
func (f *inflow) fill() error {
	if f.raw == nil {
		if f.ref == nil {
			own := make([]byte, connBuffer)
			f.ref = &own
		}
		n, err := f.conn.Read(*f.ref)
		f.rest = (*f.ref)[:n]
		if n > 0 {
			return nil
		}
		return err
	}
	if f.try == nil {
		f.try = f.receive
	}
	f.n, f.err = 0, nil
	if err := f.raw.Read(f.try); err != nil {
		return err
	}
	switch {
	case f.err != nil:
		return &net.OpError{Op: "read", Net: "tcp", Source: f.conn.LocalAddr(), Addr: f.conn.RemoteAddr(), Err: f.err}
	case f.n == 0:
		return io.EOF
	}
	f.rest = (*f.ref)[:f.n]
	return nil
}

// took drops the first n bytes of the rest.
func (f *inflow) took(n int) {
	if f.rest = f.rest[n:]; len(f.rest) == 0 {
		f.rest = nil
		f.letGo()
	}
}

// letGo gives an empty buffer back.
func (f *inflow) letGo() {
	if f.raw != nil && f.ref != nil {
		buffers.Put(f.ref)
		f.ref = nil
	}
}

// Read implements io.Reader.
func (f *inflow) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(f.rest) == 0 {
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.took(n)
	return n, nil
}

// heads has no state but reusable memory: a head is read through one of them, and a body that is not chunked.
var heads = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, connBuffer) }}
