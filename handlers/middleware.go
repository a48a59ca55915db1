package handlers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/webhook"
)

// requestInfo is what a request's log line and metrics tell beside the request itself.
type requestInfo struct {
	id      string
	project string
	agent   string
	err     error
	note    string // of what went well but not whole
}

type infoKey struct{}

// infoOf gives the request's info; every request that came through the router has one.
func infoOf(r *http.Request) *requestInfo {
	if info, ok := r.Context().Value(infoKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{}
}

// projectOf gives the project that the request speaks for.
func projectOf(r *http.Request) string { return infoOf(r).project }

// maxRequestID is how long a client's X-Request-Id may be to be taken.
const maxRequestID = 128

// requestID takes the client's id if it is short and made of letters, digits and -_.:/+=@, since it goes into logs; else it makes one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= maxRequestID
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == '+' || c == '=' || c == '@'
	}
	if ok {
		return id
	}
	return newRequestID()
}

// newRequestID gives an id that sorts by time: a UUID of version 7. It is in every answer and grants nothing, so that the runtime's own random
// numbers do for it; the system's would cost a call to the kernel each time.
func newRequestID() string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16|rand.Uint64()&0xffff)
	binary.BigEndian.PutUint64(u[8:], rand.Uint64())
	u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80 // version and variant
	return u.String()
}

// observer logs and counts requests.
type observer struct {
	log         zerolog.Logger
	metrics     *Metrics
	bodyTimeout time.Duration
}

// middleware gives each request an ID, a log line and metrics, and turns a panic into a 500.
func (o observer) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		info := &requestInfo{id: requestID(r)}
		r = r.WithContext(context.WithValue(r.Context(), infoKey{}, info))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		ww.Header().Set("X-Request-Id", info.id)
		defer func() {
			p, begun := recover(), ww.Status() != 0
			aborted := p == http.ErrAbortHandler //nolint:errorlint // the value itself is what net/http documents
			if p != nil && !aborted {
				info.err = fmt.Errorf("panic: %v", p)
				o.log.Error().Str("request_id", info.id).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("a handler panicked")
				if !begun {
					styleOf(r)(ww, &fault.Error{Code: fault.Internal, Msg: "internal error; the log has more under this request id"})
				}
			}
			o.finish(r, ww, info, time.Since(start), aborted)
			if aborted || (p != nil && begun) {
				panic(http.ErrAbortHandler) // the client must not take a broken answer for a whole one
			}
		}()
		if r.ContentLength != 0 {
			// Also for the paths that do not read it: after them the server waits for the rest of the body.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(o.bodyTimeout)) // every connection of net/http takes one
		}
		next.ServeHTTP(ww, r)
	})
}

// finish writes the request's log line and counts it.
func (o observer) finish(r *http.Request, ww middleware.WrapResponseWriter, info *requestInfo, took time.Duration, aborted bool) {
	status := ww.Status()
	if status == 0 {
		status = http.StatusOK
	}
	if aborted && r.Context().Err() != nil {
		status = statusClientClosed
	}
	o.metrics.request(r.Method, chi.RouteContext(r.Context()), status, took)
	ev := o.log.Info()
	if status >= 500 {
		ev = o.log.Error()
	}
	if !ev.Enabled() {
		return
	}
	ev = ev.Str("request_id", info.id).Str("method", r.Method).Str("path", shownPath(r.URL.Path)).Int("status", status).
		Int("bytes", ww.BytesWritten()).Dur("duration", took)
	if info.project != "" {
		ev = ev.Str("project", info.project)
	}
	agent := info.agent
	if agent == "" && strings.Contains(r.URL.Path, "/agents/") { // other ids are no agents'
		agent = chi.URLParam(r, "id")
	}
	if agent != "" {
		ev = ev.Str("agent", clip(agent, 128))
	}
	if info.note != "" {
		ev = ev.Str("note", clip(info.note, 1024))
	}
	if info.err != nil {
		ev = ev.Str("error", clip(causeOf(info.err), 1024))
	}
	ev.Msg("request")
}

// shownPath gives a path for the log. The token of a fetch URL is a permission, and a log has more readers than an event.
func shownPath(path string) string {
	if strings.HasPrefix(path, webhook.FetchPath) {
		return webhook.FetchPath + "…"
	}
	return clip(path, 256)
}

// causeOf gives an error with its cause.
func causeOf(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}

// agentPath checks the id in the path and notes that somebody asked for the agent.
func agentPath(style errorStyle) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := chi.URLParam(r, "id")
			if !input.AgentID(id) {
				answerError(w, r, style, fault.New(fault.NotFound, "agent not found"))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// touching counts the agent as used once a call has found it in the caller's project.
func touching(m *memory.Service, next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := next(w, r)
		if err == nil {
			m.Touch(projectOf(r), chi.URLParam(r, "id"))
		}
		return err
	}
}

// rateLimit limits the requests a second of a project, over all bases together. 0 is no limit.
func rateLimit(limit int, refused prometheus.Counter) func(errorStyle) func(http.Handler) http.Handler {
	if limit <= 0 {
		return func(errorStyle) func(http.Handler) http.Handler {
			return func(next http.Handler) http.Handler { return next }
		}
	}
	byProject := func(r *http.Request) (string, error) { return projectOf(r), nil }
	counter := httprate.NewLocalLimitCounter(time.Second)
	return func(style errorStyle) func(http.Handler) http.Handler {
		return httprate.LimitBy(limit, time.Second, byProject, httprate.WithLimitCounter(counter),
			httprate.WithLimitHandler(func(w http.ResponseWriter, r *http.Request) {
				refused.Inc()
				answerError(w, r, style, fault.New(fault.RateLimited, "the project makes more than %d requests a second", limit))
			}))
	}
}

// methodNotAllowed answers 405 with the methods of the path in Allow. flat holds every route.
func methodNotAllowed(flat *chi.Mux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(cmp.Or(r.URL.RawPath, r.URL.Path), "/")
		var methods []string
		for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
			if flat.Match(chi.NewRouteContext(), m, path) {
				methods = append(methods, m)
			}
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeAgoraError(w, http.StatusMethodNotAllowed, agoraErrorBody{
			Detail: "method " + clip(r.Method, 20) + " is not allowed here", Reason: "InvalidRequest",
		}, fault.Invalid)
	}
}

// flatten adds every route of r to flat by its whole pattern. A mounted router would match every
// method where it begins.
func flatten(r chi.Routes, flat *chi.Mux) {
	_ = chi.Walk(r, func(method, pattern string, h http.Handler, _ ...func(http.Handler) http.Handler) error {
		flat.Method(method, cmp.Or(strings.TrimSuffix(pattern, "/"), "/"), h)
		return nil
	})
}
