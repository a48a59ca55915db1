package turn

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/heardlog/heardlog/internal/fault"
)

// JoinedHeader marks an answer that was made for an earlier, identical request.
const JoinedHeader = "X-Heardlog-Joined"

// maxPiece is how many bytes a follower writes at once.
const maxPiece = 32 << 10

// follower serves a client with the answer of an identical request.
type follower struct {
	share  *share
	client *client
	ctx    context.Context // of the client's request
}

// run passes on the answer from its beginning. Its errors are those of Serve.
func (f *follower) run() error {
	s, c := f.share, f.client
	defer c.done()
	var pos int64
	buf := make([]byte, 0, 4<<10)
	for {
		s.mu.Lock()
		behind := s.base + int64(len(s.log)) - pos
		h := s.header
		switch {
		case s.whole != nil:
			status, body := s.status, s.whole
			s.mu.Unlock()
			f.setHeaders(h)
			c.sendWhole(status, body)
			return nil
		case pos < s.base: // the client reads too slowly
			s.mu.Unlock()
			return f.end(fault.New(fault.Upstream, "the answer went on faster than it was read"))
		case behind > 0:
			buf = append(buf[:0], s.log[pos-s.base:][:min(behind, maxPiece)]...)
			s.mu.Unlock()
			if err := f.send(h, buf); err != nil {
				return fault.Wrap(fault.Canceled, err, "the client went away")
			}
			pos += int64(len(buf))
			s.sentTo(pos)
			continue
		case s.over:
			err := s.err
			s.mu.Unlock()
			return f.end(err)
		}
		changed := s.nextChange()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-f.ctx.Done():
			return errClientLeft()
		}
	}
}

// setHeaders copies the headers of the other request's answer.
func (f *follower) setHeaders(h http.Header) {
	c := f.client
	own := c.w.Header()
	maps.Copy(own, h)
	own.Set(JoinedHeader, "true")
	own.Set(timingHeader, string(appendMS([]byte("joined;dur="), c.now().Sub(c.timing.arrived))))
}

// send writes a piece of the stream.
func (f *follower) send(h http.Header, b []byte) error {
	if !f.client.begun {
		f.setHeaders(h)
	}
	if _, err := f.client.Write(b); err != nil {
		return err
	}
	return f.client.Flush()
}

// end ends the answer as that of the other request ended. An error inside the stream has been
// passed on with it.
func (f *follower) end(err error) error {
	if err != nil && f.client.begun && !errors.Is(err, ErrAborted) {
		return errors.Join(ErrAborted, err)
	}
	return err
}
