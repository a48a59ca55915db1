package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// writeTimeout is the time a client has to receive an answer that is not a stream.
const writeTimeout = 60 * time.Second

// handlerFunc handles a request. If it returns an error it has written nothing.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// errorStyle writes an error in the form that the clients of a path expect.
type errorStyle func(w http.ResponseWriter, r *http.Request, e *fault.Error)

// encode answers with v as JSON. It writes nothing if v cannot be encoded.
func encode(w http.ResponseWriter, status int, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	writeJSON(w, status, append(b, '\n'))
	return nil
}

// noContent answers 204 if err is nil, and returns err.
func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// marshal returns v as JSON without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// appendJSON appends v as JSON.
func appendJSON(b []byte, v any) ([]byte, error) {
	raw, err := marshal(v)
	return append(b, raw...), err
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_ = writeBody(w, body) // the client may be gone
}

// writeBody writes an answer's body. A long one waits for its reader, but not forever.
func writeBody(w http.ResponseWriter, body []byte) error {
	if len(body) > 64<<10 {
		rc := http.NewResponseController(w)
		// A connection without deadlines is still correct.
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	}
	_, err := w.Write(body)
	return err
}
