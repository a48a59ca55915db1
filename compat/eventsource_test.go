package compat_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// eventSource behaves like a browser's EventSource (HTML Living Standard, 9.2 "Server-sent
// events"): it parses the stream byte by byte, reconnects with Last-Event-ID after the server's
// retry time, and stops when the server says so.
type eventSource struct {
	url    func() string // the server may have moved
	client *http.Client
	events chan sseEvent

	lastID string
	retry  time.Duration
	// cut, if not nil, returns after how many bytes the connection breaks.
	cut func() int64
}

type sseEvent struct{ id, name, data string }

var (
	errEnded  = errors.New("there is nothing more")
	errFailed = errors.New("the connection failed for good")
)

// run reads until the server ends the stream for good (204: nil), a request fails for good, or ctx
// is done.
func (s *eventSource) run(ctx context.Context) error {
	defer close(s.events)
	s.retry = 20 * time.Millisecond
	for ctx.Err() == nil {
		err := s.connect(ctx)
		switch {
		case errors.Is(err, errEnded):
			return nil
		case errors.Is(err, errFailed):
			return err
		}
		select {
		case <-ctx.Done():
		// The server's retry time may be seconds, which is too long for a test.
		case <-time.After(min(s.retry, 50*time.Millisecond)):
		}
	}
	return ctx.Err()
}

func (s *eventSource) connect(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Cache-Control", "no-store")
	if s.lastID != "" {
		req.Header.Set("Last-Event-ID", s.lastID)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err // a network error: it is tried again
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return errEnded
	case resp.StatusCode != http.StatusOK, !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		return errFailed
	}
	var body io.Reader = resp.Body
	if s.cut != nil {
		body = io.LimitReader(body, s.cut())
	}
	s.read(bufio.NewReader(body))
	return nil
}

// read parses a stream until it ends. An event without its empty line is dropped.
func (s *eventSource) read(r *bufio.Reader) {
	if bom, err := r.Peek(3); err == nil && string(bom) == "\ufeff" {
		_, _ = r.Discard(3)
	}
	var name string
	var data strings.Builder
	id := s.lastID
	for {
		line, err := readLine(r)
		if err != nil {
			return
		}
		if line == "" {
			s.lastID = id
			if data.Len() > 0 {
				s.events <- sseEvent{id, name, strings.TrimSuffix(data.String(), "\n")}
			}
			name = ""
			data.Reset()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data.WriteString(value + "\n")
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "retry":
			if n, err := strconv.ParseUint(value, 10, 31); err == nil {
				s.retry = time.Duration(n) * time.Millisecond
			}
		}
	}
}

// readLine returns a line without its end, which is CR LF, LF or CR.
func readLine(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		c, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		switch c {
		case '\n':
			return b.String(), nil
		case '\r':
			if next, err := r.Peek(1); err == nil && next[0] == '\n' {
				_, _ = r.Discard(1)
			}
			return b.String(), nil
		}
		b.WriteByte(c)
	}
}
