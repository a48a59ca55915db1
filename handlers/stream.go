package handlers

import (
	"net/http"
	"time"
)

// streamPart is how many bytes of a stream are collected before they are sent.
const streamPart = 256 << 10

// stream is a JSON answer that may be too long to be in memory as a whole: it is sent part by part.
type stream struct {
	w    http.ResponseWriter
	r    *http.Request
	b    []byte // what was not sent yet
	sent int
}

// size is how many bytes the answer has so far.
func (s *stream) size() int { return s.sent + len(s.b) }

// raw appends JSON.
func (s *stream) raw(b string) { s.b = append(s.b, b...) }

// value appends v as JSON.
func (s *stream) value(v any) (err error) {
	s.b, err = appendJSON(s.b, v)
	return err
}

// flush sends what was appended, if it is a part. A reader that stops is cut.
func (s *stream) flush() error {
	if len(s.b) < streamPart {
		return nil
	}
	if s.sent == 0 {
		s.w.Header().Set("Content-Type", "application/json")
	}
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := s.w.Write(s.b)
	s.sent, s.b = s.sent+n, s.b[:0]
	return err
}

// end sends the rest of the answer, or gives it up because of an error: it returns the error if
// nothing was sent, and else ends the connection, since a reader must not take a part for the
// whole.
func (s *stream) end(err error) error {
	if s.sent > 0 {
		if err == nil {
			_, err = s.w.Write(append(s.b, '\n'))
		}
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Time{})
		if err != nil {
			infoOf(s.r).err = err
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	if err == nil {
		writeJSON(s.w, http.StatusOK, append(s.b, '\n'))
	}
	return err
}
