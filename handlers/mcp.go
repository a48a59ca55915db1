package handlers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/mcp"
)

// mcpAPI serves the memory of a caller as tools of the Model Context Protocol.
type mcpAPI struct {
	bodies
	handler http.Handler
	pages   *http.CrossOriginProtection // nil lets in pages of every origin
	routes  http.Handler                // the whole URL map, which the tools call
}

func newMCP(b bodies, origins []string) *mcpAPI {
	a := &mcpAPI{bodies: b}
	a.handler = mcp.Handler(a.callsOf)
	if !slices.Contains(origins, "*") {
		a.pages = http.NewCrossOriginProtection()
		for _, o := range origins {
			_ = a.pages.AddTrustedOrigin(o) // package config has checked them
		}
	}
	return a
}

// knowledgeHeader lists the collections that the tools may search.
const knowledgeHeader = "X-Heardlog-Knowledge"

// serve serves POST /mcp. The caller comes from a header or from the URL, which the configuration
// of a client sets and no model.
func (a *mcpAPI) serve(w http.ResponseWriter, r *http.Request) error {
	if a.pages != nil && a.pages.Check(r) != nil {
		return fault.New(fault.Forbidden, "web pages of other sites may not use the tools; HEARDLOG_CORS_ORIGINS lists those that may")
	}
	q := r.URL.Query()
	collections := cmp.Or(r.Header.Get(knowledgeHeader), q.Get("knowledge"))
	user, err := callerName(userHeader, cmp.Or(r.Header.Get(userHeader), q.Get("user")))
	if err != nil {
		return err
	}
	if user == "" {
		return fault.At(fault.Missing, userHeader, "is required: the header, or the parameter user of the URL, names the caller whose memory it is")
	}
	if _, err := mcp.Collections(collections); err != nil {
		return fault.At(fault.Invalid, knowledgeHeader, "%v", err)
	}
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return fault.New(fault.BadRequest, "the body is a list of messages; send each message of the protocol in a request of its own")
	}
	infoOf(r).leaveTurn() // the calls of the tools have their own
	r = r.Clone(r.Context())
	r.Header.Set(userHeader, user)
	r.Header.Set(knowledgeHeader, collections)
	r.Header.Set("Accept", "application/json, text/event-stream") // the answer is always JSON
	r.Header.Set("Content-Type", "application/json")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := &mcpAnswer{ResponseWriter: w}
	a.handler.ServeHTTP(answer, r)
	if answer.refused {
		return fault.New(fault.BadRequest, "%s", text.Clip(strings.TrimSpace(answer.why.String()), maxRefusal))
	}
	return nil
}

// maxRefusal is how much of an error of the protocol is shown, in bytes.
const maxRefusal = 300

// mcpAnswer passes an answer on unless it is an error in plain text, which it keeps.
type mcpAnswer struct {
	http.ResponseWriter
	refused bool
	why     bytes.Buffer
}

// WriteHeader passes on the status of an answer in JSON, and of one without a body.
func (w *mcpAnswer) WriteHeader(status int) {
	w.refused = status >= http.StatusBadRequest && !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json")
	if !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write passes on an answer in JSON.
func (w *mcpAnswer) Write(b []byte) (int, error) {
	if w.refused {
		return w.why.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the connection's writer, for net/http.
func (w *mcpAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// callsOf returns what makes the calls of a request's tools: with its credentials, for its caller.
func (a *mcpAPI) callsOf(r *http.Request) *mcp.API {
	header := http.Header{"X-Request-Id": {infoOf(r).id}, projectHeader: {projectOf(r)}}
	if auth := r.Header.Get("Authorization"); auth != "" {
		header.Set("Authorization", auth)
	}
	knowledge, _ := mcp.Collections(r.Header.Get(knowledgeHeader)) // serve has checked it
	return &mcp.API{Knowledge: knowledge, Client: innerCalls{a.routes, r}, URL: "http://" + r.Host, Header: header, User: r.Header.Get(userHeader)}
}

// innerCalls makes calls of the server to itself on behalf of a request.
type innerCalls struct {
	routes http.Handler
	of     *http.Request
}

// RoundTrip serves a request and returns the answer. It fails if the answer broke off.
func (c innerCalls) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if p := recover(); p != nil { // the routes have logged it
			resp, err = nil, errors.New("the answer broke off")
		}
	}()
	// The routes must not see the route of the outer request.
	r = r.Clone(context.WithValue(r.Context(), chi.RouteCtxKey, (*chi.Context)(nil)))
	r.RemoteAddr, r.TLS = c.of.RemoteAddr, c.of.TLS
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &innerAnswer{header: http.Header{}, status: http.StatusOK}
	c.routes.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
		Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
	}, nil
}

// innerAnswer keeps an answer up to one byte more than tools read, and discards the rest.
type innerAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *innerAnswer) Header() http.Header    { return w.header }
func (w *innerAnswer) WriteHeader(status int) { w.status = status }

// Write keeps what there is room for. It never fails.
func (w *innerAnswer) Write(b []byte) (int, error) {
	_, _ = w.body.Write(b[:min(len(b), mcp.MaxAnswer+1-w.body.Len())])
	return len(b), nil
}
