package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Listener returns ln with connections on which net/http's own errors are JSON. Net/http writes
// them as plain text for requests that it cannot read: 400, 431, 501 and 505. After the first
// request of a connection that it could read they stay plain text, since an answer of a handler,
// which may pass an upstream's bytes on, must never be taken for one. It needs ConnContext.
func Listener(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &clientConn{TCPConn: tcp}, nil
	}
	return c, err
}

type clientConn struct {
	*net.TCPConn
	handled atomic.Bool // a handler has run
}

type connKey struct{}

// ConnContext is the http.Server.ConnContext of a server with a Listener.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// markHandled ends the rewriting of errors on the connection of a request.
func markHandled(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*clientConn); ok {
		c.handled.Store(true)
	}
}

// plainError follows the status line of net/http's own errors. Every other answer has a Date.
const plainError = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// Write writes b, or an error of net/http's as JSON.
func (c *clientConn) Write(b []byte) (int, error) {
	if c.handled.Load() {
		return c.TCPConn.Write(b)
	}
	at := bytes.Index(b[:min(len(b), 512)], []byte("\r\n"))
	if at < 0 || !bytes.HasPrefix(b[at:], []byte(plainError)) {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(unreadable(b[:at], b[at+len(plainError):])); err != nil {
		return 0, err
	}
	return len(b), nil
}

// unreadable returns the answer to a request that net/http cannot read: its status line with its
// text in the form of our other errors.
func unreadable(line, text []byte) []byte {
	var status int
	_, _ = fmt.Sscanf(string(line), "HTTP/1.1 %d", &status) // net/http writes the line
	reason := statuses[fault.BadRequest].reason
	if status == http.StatusNotImplemented {
		reason = statuses[fault.Unsupported].reason
	}
	body, err := json.Marshal(agoraErrorBody{Detail: "the request cannot be read: " + string(text), Reason: reason})
	if err != nil {
		body = []byte(`{"detail":"the request cannot be read","reason":"InvalidRequestBody"}`)
	}
	return fmt.Appendf(nil, "%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n%s\n",
		line, len(body)+1, time.Now().UTC().Format(http.TimeFormat), newRequestID(), body)
}
