package handlers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/input"
)

// requestInfo is what handlers add to a request's log line and metrics.
type requestInfo struct {
	id      string
	project string
	caller  access.Client
	agent   string
	target  string // what an administrative act created or erased
	err     error
	// challenge is the WWW-Authenticate header of an answer 401; "" = the usual one.
	challenge string
	note      string // about a call that succeeded in part
	endTurn   func() // of a large request that has its turn
}

type infoKey struct{}

// infoOf returns the request's info. Every request that came through the router has one.
func infoOf(r *http.Request) *requestInfo {
	if info, ok := r.Context().Value(infoKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{}
}

// projectOf returns the project of the request's credentials.
func projectOf(r *http.Request) string { return infoOf(r).project }

// maxRequestID is the maximum length of a client's X-Request-Id.
const maxRequestID = 128

// requestID returns the client's ID if it is short and safe to log, else a new one.
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

// newRequestID returns an ID that sorts by time: a UUID of version 7. It grants nothing, so the
// runtime's own random numbers are good enough and save a system call.
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

// middleware adds an ID, a log line and metrics to each request, and turns a panic into a 500.
func (o observer) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		markHandled(r)
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
					styleOf(r)(ww, r, &fault.Error{Code: fault.Internal, Msg: "internal error; the log has more under this request id"})
				}
			}
			info.leaveTurn()
			o.finish(r, ww, info, time.Since(start), aborted)
			if aborted || (p != nil && begun) {
				// The client must not take a broken answer for a complete one.
				panic(http.ErrAbortHandler)
			}
		}()
		// The routes for GET answer HEAD, too. Net/http drops what they write after the headers.
		chi.RouteContext(r.Context()).RouteMethod = routedMethod(r)
		if ambiguous(r) {
			ww.Header().Set("Connection", "close")
		}
		if r.ContentLength != 0 {
			// Also for paths that do not read it: the server waits for the rest of the body after
			// them.
			// Net/http supports it on every connection.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(o.bodyTimeout))
		}
		next.ServeHTTP(ww, r)
	})
}

// routedMethod returns the method by which a request is routed: GET for a HEAD.
func routedMethod(r *http.Request) string {
	if r.Method == http.MethodHead {
		return http.MethodGet
	}
	return r.Method
}

// ambiguous reports whether a proxy in front may have seen another end of the request's body than
// net/http did. Net/http drops the Content-Length of a chunked request, and the Transfer-Encoding
// of an HTTP/1.0 request, without a trace. Such a request must be the last one of its connection,
// or what follows it could be read as a request that the proxy has never seen.
func ambiguous(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) && r.ContentLength != 0
}

// finish logs and counts the request.
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
	if status >= 500 && !fault.Reported(info.err) {
		ev = o.log.Error()
	}
	if !ev.Enabled() {
		return
	}
	ev = ev.Str("request_id", info.id).Str("method", r.Method).Str("path", shownPath(r)).Int("status", status).
		Int("bytes", ww.BytesWritten()).Dur("duration", took)
	if info.project != "" {
		ev = ev.Str("project", info.project)
	}
	agent := info.agent
	if agent == "" && strings.Contains(r.URL.Path, "/agents/") { // other paths have other IDs
		agent = chi.URLParam(r, "id")
	}
	if agent != "" {
		ev = ev.Str("agent", withoutNumbers(text.Clip(agent, 128)))
	}
	if status == http.StatusUnauthorized { // for tools that block addresses
		ev = ev.Str("address", r.RemoteAddr)
	}
	if info.note != "" {
		ev = ev.Str("note", withoutNumbers(text.Clip(info.note, 1024)))
	}
	if info.err != nil {
		ev = ev.Str("error", withoutNumbers(text.Clip(causeOf(info.err), 1024)))
	}
	ev.Msg("request")
}

// shownPath returns the path of a request for the log: the pattern of its route, since IDs in paths
// may be telephone numbers, keys or permissions. A path without a route shows only what can be a
// word of ours.
func shownPath(r *http.Request) string {
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	if pattern != "" && !strings.HasSuffix(pattern, "*") {
		return pattern
	}
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for i, part := range parts {
		if i > 0 && parts[i-1] == "users" || !pathWord.MatchString(part) {
			parts[i] = "…"
		}
	}
	return text.Clip(strings.Join(parts, "/"), 256)
}

var (
	pathWord  = regexp.MustCompile(`^[A-Za-z_.-]{0,40}$|^v[0-9]$`)
	telephone = regexp.MustCompile(`(\+|%2[Bb])[0-9]{6,15}`)
)

// withoutNumbers returns a text of the log without telephone numbers.
func withoutNumbers(s string) string { return telephone.ReplaceAllString(s, "+…") }

// causeOf returns an error's text with its cause.
func causeOf(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}

// notAnAgent is the error for an ID that cannot be one: see input.AgentID.
func notAnAgent(id string) error {
	return fault.New(fault.NotFound, "there is no agent %q: an ID has 1 to 128 letters (a-z), digits, dots, - and _", text.Clip(id, 40))
}

// agentPath refuses a path whose agent ID cannot be one.
func agentPath(style errorStyle) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := chi.URLParam(r, "id")
			if !input.AgentID(id) {
				if r.Method == http.MethodDelete && !openAIPath(r.URL.Path) { // as deletes answers it
					w.WriteHeader(http.StatusNoContent)
					return
				}
				answerError(w, r, style, notAnAgent(id))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// touching counts the agent as used once a call has found it in the caller's project.
func touching(m *agents.Service, next handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := next(w, r)
		if err == nil {
			m.Messages.Touch(projectOf(r), chi.URLParam(r, "id"))
		}
		return err
	}
}

// rateLimit limits what a project may do in a second, over all bases together.
func rateLimit(k *quota.Keeper, refused prometheus.Counter) func(errorStyle) func(http.Handler) http.Handler {
	rate, _ := k.Limits()
	return func(style errorStyle) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			if rate == (quota.Rate{}) {
				return next
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				project, body := projectOf(r), &countedBody{ReadCloser: r.Body}
				if wait, err := k.Admit(project, r.ContentLength != 0); err != nil {
					refused.Inc()
					w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
					answerError(w, r, style, err)
					return
				}
				r.Body = body
				defer func() { k.Received(project, body.read) }()
				next.ServeHTTP(w, r)
			})
		}
	}
}

// countedBody counts what is read of a body.
type countedBody struct {
	io.ReadCloser
	read int64
}

// Read reads from the body.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

// methodNotAllowed answers 405 with the methods of the path in Allow. flat holds every route.
func methodNotAllowed(flat *chi.Mux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		path := cmp.Or(strings.TrimSuffix(cmp.Or(r.URL.RawPath, r.URL.Path), "/"), "/")
		var methods []string
		for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut} {
			if flat.Match(chi.NewRouteContext(), m, path) {
				if methods = append(methods, m); m == http.MethodGet {
					methods = append(methods, http.MethodHead)
				}
			}
		}
		allowed := strings.Join(methods, ", ")
		w.Header().Set("Allow", allowed)
		e := &fault.Error{Code: fault.Invalid, Msg: "method " + text.Clip(r.Method, 20) + " is not allowed here; allowed are: " + allowed}
		if openAIPath(r.URL.Path) {
			writeBothErrors(w, http.StatusMethodNotAllowed, "InvalidRequest", e)
			return
		}
		writeAgoraError(w, http.StatusMethodNotAllowed, agoraErrorBody{Detail: e.Msg, Reason: "InvalidRequest"}, e.Code)
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
