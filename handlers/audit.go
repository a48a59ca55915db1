package handlers

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// auditAPI records administrative acts and lists them.
type auditAPI struct {
	audit *access.Audit // nil records nothing
	log   zerolog.Logger
}

// recordTimeout is how long an act may take to be recorded. The caller may have left meanwhile.
const recordTimeout = 5 * time.Second

// of records what next does under the name of an act, just before its answer: calls that succeed,
// and those that fail in the server, since they may have done a part. Refused calls change nothing,
// and could push the others out of the log.
func (a auditAPI) of(act string, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&auditedWriter{ResponseWriter: w, record: func(status int) {
			if status < 300 || status >= 500 {
				a.record(r, act, status)
			}
		}}, r)
	}
}

func (a auditAPI) record(r *http.Request, what string, status int) {
	info := infoOf(r)
	act := access.Act{What: what, By: info.caller.ID, Status: status, RequestID: info.id, On: info.target}
	if address, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		act.Address = address
	}
	for _, param := range []string{"id", "user", "project"} {
		act.On = cmp.Or(act.On, pathName(r, param))
	}
	a.log.Info().Str("request_id", act.RequestID).Str("project", info.project).Str("by", act.By).Str("address", act.Address).
		Str("act", what).Str("target", text.Clip(act.On, 256)).Int("status", status).Msg("administrative act")
	if a.audit == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	if err := a.audit.Record(ctx, info.project, act); err != nil {
		level := zerolog.ErrorLevel
		if fault.Reported(err) {
			level = zerolog.DebugLevel
		}
		a.log.WithLevel(level).Err(err).Str("request_id", act.RequestID).Msg("record an administrative act")
	}
}

// actCursor matches the cursors of access.Audit.
var actCursor = regexp.MustCompile(`^[0-9]{19}-[0-9a-f]{16}$`)

// list returns a page of acts, newest first.
func (a auditAPI) list(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := intParam(q, "limit", defaultWebhookPage, 1, access.MaxActsPage)
	if err != nil {
		return nil, err
	}
	cursor := q.Get("cursor")
	if cursor != "" && !actCursor.MatchString(cursor) {
		return nil, fault.At(fault.Invalid, "cursor", "is not a cursor of this list")
	}
	acts, next, err := a.audit.List(r.Context(), projectOf(r), cursor, limit)
	if err != nil {
		return nil, err
	}
	out := struct {
		Acts   []actJSON `json:"acts"`
		Cursor string    `json:"next_cursor,omitempty"`
	}{make([]actJSON, len(acts)), next}
	for i, act := range acts {
		out.Acts[i] = actJSON{timeMS(act.AtMS), act}
	}
	return out, nil
}

// actJSON is an act with its time as answers show it.
type actJSON struct {
	At timeMS `json:"at"`
	access.Act
}

// auditedWriter calls record before the first byte of an answer.
type auditedWriter struct {
	http.ResponseWriter
	record func(status int)
	begun  bool
}

// WriteHeader records the act and writes the header.
func (w *auditedWriter) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.record(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes the header, if that was not done yet, and the data.
func (w *auditedWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *auditedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
