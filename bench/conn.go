package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ioTimeout limits each request, so that a server that hangs fails the run.
const ioTimeout = 30 * time.Second

// conn is a keep-alive HTTP/1.1 connection of the load generator. It writes requests that were
// built before, and parses no more of an answer than it needs. net/http's client costs as much as
// the servers measured here, and would blur the ratios on a machine that they share.
type conn struct {
	net.Conn
	r    *bufio.Reader
	body []byte // of the last answer
}

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 4<<10)}, nil
}

// header has the parts of an answer's head that are read.
type header struct {
	status  int
	length  int // -1 means chunked
	closing bool
	agent   string // X-Heardlog-Agent
}

// send writes a request and reads the answer's head.
func (c *conn) send(req []byte) (header, error) {
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return header{}, err
	}
	if _, err := c.Write(req); err != nil {
		return header{}, err
	}
	h := header{}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	if len(line) < 13 {
		return h, fmt.Errorf("status line %q", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, fmt.Errorf("status line %q", line)
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		if line = bytes.TrimSuffix(line, []byte("\r\n")); len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.length = -1
		case bytes.EqualFold(name, []byte("Connection")):
			h.closing = bytes.EqualFold(value, []byte("close"))
		case bytes.EqualFold(name, []byte("X-Heardlog-Agent")):
			h.agent = string(value)
		}
	}
}

// do makes one request and keeps the answer's body.
func (c *conn) do(req []byte) (int, error) {
	h, err := c.send(req)
	if err != nil {
		return 0, err
	}
	c.body = c.body[:0]
	err = c.read(h, func(b []byte) { c.body = append(c.body, b...) })
	if err == nil && h.closing {
		err = errors.New("the server closes the connection")
	}
	return h.status, err
}

// read reads an answer's body and passes each piece to fn.
func (c *conn) read(h header, fn func([]byte)) error {
	if h.length >= 0 {
		return c.piece(h.length, fn)
	}
	for {
		n, err := c.chunk(fn)
		if err != nil || n == 0 {
			return err
		}
	}
}

// chunk reads one chunk and returns its length; 0 is the last.
func (c *conn) chunk(fn func([]byte)) (int, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
	if err != nil {
		return 0, fmt.Errorf("chunk size %q", line)
	}
	if err := c.piece(int(n), fn); err != nil {
		return 0, err
	}
	_, err = c.r.Discard(2)
	return int(n), err
}

func (c *conn) piece(n int, fn func([]byte)) error {
	for n > 0 {
		b, err := c.r.Peek(min(n, c.r.Size()))
		if len(b) == 0 || err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		fn(b)
		if _, err := c.r.Discard(len(b)); err != nil {
			return err
		}
		n -= len(b)
	}
	return nil
}

// request returns the bytes of a request; extra holds whole header lines.
func request(method, path, host string, body []byte, extra string) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, path, host, extra)
	if body != nil {
		b = fmt.Appendf(b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b = append(b, "\r\n"...)
	return append(b, body...)
}
