package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxDepth is how deep a JSON body may nest.
const MaxDepth = 64

// DefaultBodyTimeout is the time a client has to send its body.
const DefaultBodyTimeout = 30 * time.Second

// writeTimeout is the time a client has to receive an answer that is not a stream.
const writeTimeout = 60 * time.Second

// handlerFunc handles a request. If it returns an error it has written nothing.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// errorStyle writes an error in the form that the clients of a path expect.
type errorStyle func(w http.ResponseWriter, e *fault.Error)

// handle answers and logs the error of a handler. Nothing else does.
func handle(style errorStyle, h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		answerError(w, r, style, err)
	}
}

func answerError(w http.ResponseWriter, r *http.Request, style errorStyle, err error) {
	info := infoOf(r)
	info.err = err
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case r.Context().Err() != nil && (!ok || e.Code == fault.Unavailable || e.Code == fault.Internal):
		e = &fault.Error{Code: fault.Canceled, Msg: "the client went away"}
	case !ok || e.Code == fault.Internal:
		e = &fault.Error{Code: fault.Internal, Msg: "internal error; the log has more under this request id"}
	}
	if taken := nameTaken(err); taken != nil {
		agoraConflict(w, taken)
		return
	}
	style(w, e)
}

// encode answers with v as JSON. It writes nothing if v cannot be encoded.
func encode(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	writeJSON(w, status, b.Bytes())
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	writeBody(w, body)
}

// writeBody writes an answer's body. A long one waits for its reader, but not forever.
func writeBody(w http.ResponseWriter, body []byte) {
	if len(body) > 64<<10 {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection without deadlines is still correct
		defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	}
	_, _ = w.Write(body) // the client may be gone
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
