// Package spectest checks the server's answers against openapi.yaml. Only tests import it.
//
// Load reads and validates the description. Transport checks every answer that a client receives
// through it, Event checks the requests that a webhook receiver gets, and Routes compares the
// description with the router.
package spectest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Spec is a validated description. It is safe for concurrent use.
type Spec struct {
	doc    *openapi3.T
	router routers.Router
	// headers holds the names of all headers of answers.
	headers map[string]struct{}

	compiled sync.Map // *openapi3.Schema to *jsonschema.Schema

	mu   sync.Mutex
	seen map[Seen]int
}

// Seen is an operation and a status that it answered.
type Seen struct {
	Method string
	Path   string // as in the description: /v1/agents/{id}
	Status int
}

// String returns method, path and status in one line.
func (s Seen) String() string { return fmt.Sprintf("%s %s %d", s.Method, s.Path, s.Status) }

// Load reads a description and validates it, including its examples and defaults.
func Load(ctx context.Context, data []byte) (*Spec, error) {
	loader := openapi3.NewLoader()
	loader.Context = ctx
	doc, err := loader.LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("load the description: %w", err)
	}
	if !doc.IsOpenAPI31OrLater() {
		return nil, fmt.Errorf("the description is OpenAPI %s; only 3.1 has webhooks", doc.OpenAPI)
	}
	err = doc.Validate(ctx, openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableSchemaPatternValidation(), openapi3.EnableMultiError())
	if err != nil {
		return nil, fmt.Errorf("validate the description: %w", err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("make a router of the description: %w", err)
	}
	return &Spec{doc: doc, router: router, headers: headersOf(doc), seen: map[Seen]int{}}, nil
}

// Seen returns the operations and statuses that any transport has checked so far, in order.
func (s *Spec) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Seen
	for k := range s.seen {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Seen) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (s *Spec) note(k Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[k]++
}

// route returns the operation of a request, or nil if the description has none. That of a HEAD is
// the GET. As for the server, a slash too many makes no difference unless the description has such
// a path.
func (s *Spec) route(req *http.Request) *routers.Route {
	plain := &http.Request{Method: req.Method, URL: req.URL, Header: req.Header, Host: req.Host}
	if plain.Method == http.MethodHead {
		plain.Method = http.MethodGet
	}
	route, _, err := s.router.FindRoute(plain)
	if err != nil && (strings.HasSuffix(req.URL.Path, "/") || strings.Contains(req.URL.Path, "//")) {
		u := *req.URL
		u.Path, u.RawPath = path.Clean(u.Path), strings.TrimSuffix(u.RawPath, "/")
		plain.URL = &u
		route, _, err = s.router.FindRoute(plain)
	}
	if err != nil {
		return nil
	}
	return route
}

// check checks an answer. If body is nil, as for a stream, or that of a HEAD, only status, headers
// and content type are checked.
func (s *Spec) check(req *http.Request, resp *http.Response, body []byte) error {
	route := s.route(req)
	if route == nil {
		return s.checkUnknown(req, resp, body)
	}
	s.note(Seen{Method: req.Method, Path: route.Path, Status: resp.StatusCode})
	if resp.StatusCode == http.StatusMethodNotAllowed {
		return fmt.Errorf("the description has the operation, but the server answers that the path has no such method")
	}
	doc := route.Operation.Responses.Status(resp.StatusCode)
	if doc == nil {
		doc = route.Operation.Responses.Default()
	}
	if doc == nil || doc.Value == nil {
		return fmt.Errorf("status %d is not documented", resp.StatusCode)
	}
	if req.Method == http.MethodHead {
		if len(body) > 0 {
			return fmt.Errorf("a HEAD got a body of %d bytes", len(body))
		}
		body = nil
	}
	return errors.Join(s.checkHeaders(doc.Value, resp.Header), s.checkBody(doc.Value, resp.Header.Get("Content-Type"), body))
}

func (s *Spec) checkHeaders(doc *openapi3.Response, header http.Header) error {
	for name := range header {
		if _, ok := s.headers[name]; !ok && !plumbing(name) {
			return fmt.Errorf("header %s is not documented", name)
		}
	}
	for name, ref := range doc.Headers {
		value := header.Get(name)
		if value == "" {
			if ref.Value.Required {
				return fmt.Errorf("header %s is missing", name)
			}
			continue
		}
		schema, text := ref.Value.Schema.Value, []byte(value)
		if !schema.Type.Is(openapi3.TypeInteger) {
			text, _ = json.Marshal(value) // a string can always be encoded
		}
		if err := s.visit(schema, text); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return nil
}

// plumbing reports whether a header is about the connection, the body or the browser, so that the
// description need not name it.
func plumbing(name string) bool {
	switch name {
	case "Accept-Ranges", "Allow", "Cache-Control", "Connection", "Date", "Last-Modified", "Referrer-Policy", "Set-Cookie", "Sec-Websocket-Accept", "Transfer-Encoding", "Upgrade", "Vary", "X-Accel-Buffering", "X-Content-Type-Options":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Access-Control-") || strings.HasPrefix(name, "X-Ratelimit-")
}

// Headers returns the names of the headers that any answer is described with, in canonical form and
// in order.
func (s *Spec) Headers() []string { return slices.Sorted(maps.Keys(s.headers)) }

// headersOf returns the names of all described headers of answers.
func headersOf(doc *openapi3.T) map[string]struct{} {
	out := map[string]struct{}{}
	add := func(headers openapi3.Headers) {
		for name := range headers {
			out[http.CanonicalHeaderKey(name)] = struct{}{}
		}
	}
	add(doc.Components.Headers)
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, res := range op.Responses.Map() {
				add(res.Value.Headers)
			}
		}
	}
	return out
}

// checkBody checks that an answer has a body only if the description says so, that its content type
// is documented, and what JSON holds.
func (s *Spec) checkBody(doc *openapi3.Response, contentType string, body []byte) error {
	media := doc.Content.Get(contentType)
	switch {
	case len(doc.Content) == 0 && len(body) > 0:
		return fmt.Errorf("a body of %d bytes came, and none is documented", len(body))
	case len(doc.Content) > 0 && media == nil:
		return fmt.Errorf("content type %q is not documented", contentType)
	case body == nil || media == nil || media.Schema == nil:
		return nil
	}
	if kind, _, _ := mime.ParseMediaType(contentType); kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil
	}
	return s.visit(media.Schema.Value, body)
}

// checkUnknown checks the answer to a request that the description does not have. It must be a 404,
// a 405, or a refusal of access, in the form of the other errors.
func (s *Spec) checkUnknown(req *http.Request, resp *http.Response, body []byte) error {
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnauthorized, http.StatusForbidden:
	default:
		return fmt.Errorf("the description has no such operation, and the server answers %d", resp.StatusCode)
	}
	if req.Method == http.MethodHead {
		return nil
	}
	if resp.Header.Get("X-Request-Id") == "" {
		return fmt.Errorf("X-Request-Id is missing")
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		return fmt.Errorf("content type %q is not documented", ct)
	}
	return s.Schema("Error", body)
}

// Schema checks a JSON value against one of the description's components/schemas.
func (s *Spec) Schema(name string, data []byte) error {
	ref := s.doc.Components.Schemas[name]
	if ref == nil || ref.Value == nil {
		return fmt.Errorf("the description has no components/schemas/%s", name)
	}
	if err := s.visit(ref.Value, data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// visit checks a JSON value against a schema. It caches the compiled schema, which the library
// would compile for each value.
func (s *Spec) visit(schema *openapi3.Schema, data []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	compiled, err := s.compile(schema)
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}

func (s *Spec) compile(schema *openapi3.Schema) (*jsonschema.Schema, error) {
	if c, ok := s.compiled.Load(schema); ok {
		return c.(*jsonschema.Schema), nil
	}
	root := map[string]any{}
	// For references.
	for name, from := range map[string]any{"schema": schema, "components": map[string]any{"schemas": s.doc.Components.Schemas}} {
		text, err := json.Marshal(from)
		if err != nil {
			return nil, err
		}
		if root[name], err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
			return nil, err
		}
	}
	const name = "https://heardlog.example/openapi.json"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(name, root); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(name + "#/schema")
	if err != nil {
		return nil, fmt.Errorf("compile a schema of the description: %w", err)
	}
	s.compiled.Store(schema, compiled)
	return compiled, nil
}

// Unseen returns every documented answer that Seen lacks. An operation under several base paths
// counts as one.
func (s *Spec) Unseen(bases ...string) []Seen {
	fold := func(k Seen) Seen {
		for _, b := range bases {
			if rest, ok := strings.CutPrefix(k.Path, b+"/"); ok {
				k.Path = "…/" + strings.TrimSuffix(rest, "/")
				return k
			}
		}
		return k
	}
	seen := map[Seen]bool{}
	for _, k := range s.Seen() {
		seen[fold(k)] = true
	}
	missing := map[Seen]bool{}
	for path, item := range s.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status := range op.Responses.Map() {
				n, err := strconv.Atoi(status)
				if err != nil { // default and ranges name no status
					continue
				}
				if k := fold(Seen{Method: method, Path: path, Status: n}); !seen[k] {
					missing[k] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(missing), func(a, b Seen) int { return strings.Compare(a.String(), b.String()) })
}
