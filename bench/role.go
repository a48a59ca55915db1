package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// roleVariable marks a process that was started by startRole.
const roleVariable = "HEARDLOG_BENCH_ROLE"

// serveRole runs one of the other processes until it is ended, with the server settings of
// Heardlog.
func serveRole(ctx context.Context, out io.Writer, role, upstream, dir string) error {
	var h http.Handler
	var err error
	switch role {
	case "bare":
		if h, err = newBare(dir); err != nil {
			return err
		}
	case "upstream":
		h = newUpstream()
	case "reverseproxy":
		if h, err = newReverseProxy(upstream); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is no role %q", role)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, ln.Addr()); err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// raiseFiles lets this process and those it starts open as many files as the system allows: a
// thousand streams through a proxy need four thousand sockets.
func raiseFiles() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	l.Cur = l.Max
	return l.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}
