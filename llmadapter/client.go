package llmadapter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
)

// ViaHeader lists the Heardlog instances that a call has passed. A request that lists this server
// has come back to it.
const ViaHeader = "X-Heardlog-Via"

// maxErrorBody limits how much of an upstream's error is read, in bytes.
const maxErrorBody = 64 << 10

// forwarded returns the only headers of a client that are passed to the upstream.
func forwarded() []string { return []string{"Traceparent", "Tracestate", "X-Request-Id"} }

// Limits limits the time of one call. Zero fields mean no limit.
type Limits struct {
	Connect    time.Duration // until the connection is open, TLS included
	FirstToken time.Duration // of a stream: until the first words, tool call or thought
	Idle       time.Duration // of a stream: between two data events; comments do not count
	Total      time.Duration // of everything
}

// Reasons why a call was cancelled by us. Each is the cause of the call's context and in the chain
// of its error.
var (
	ErrConnectTimeout    = errors.New("no connection within the limit")
	ErrFirstTokenTimeout = errors.New("no data within the limit for the first token")
	ErrIdleTimeout       = errors.New("no data within the idle limit")
	ErrTotalTimeout      = errors.New("not finished within the limit for the call")
	// ErrGrace ends a stream that was finished but kept its connection open. It is not a failure.
	ErrGrace = errors.New("the stream was finished but not closed")
)

// Call is one call to an upstream.
type Call struct {
	URL     string
	APIKey  string            // sent as a bearer token; "" sends none
	Azure   bool              // APIKey goes into AzureKeyHeader instead
	Headers map[string]string // llm.headers; our own headers win
	Client  http.Header       // the client's, of which forwarded are passed on; may be nil
	Body    []byte            // must not change after Do: the transport may still send it then
	Method  string            // "" means POST with a Body, GET without
	// ContentType is the type of Body, Accept that of the response. "" means JSON; for Accept with
	// Stream, a stream of events.
	ContentType, Accept string
	Stream              bool
	Connect             time.Duration // see Limits
	Hidden              []string      // secrets in Body; see BodySecrets
	// Redact replaces personal data in what is kept and logged of the upstream's errors, which may
	// quote the request; nil replaces nothing.
	Redact func([]byte) []byte
}

// kept returns an upstream's error as it is kept and logged.
func (c *Call) kept(said []byte) string {
	if c.Redact != nil {
		said = c.Redact(said)
	}
	return text.Clip(string(said), maxErrorText)
}

// maxErrorText is how many bytes of an upstream's error are kept and logged.
const maxErrorText = 1000

// BodySecrets returns the secrets in llm.params and in the client's request; req may be nil.
func BodySecrets(params []byte, req *Request) []string {
	var out []string
	if len(params) > 0 {
		out = secret.InJSON(params)
	}
	if req == nil {
		return out
	}
	for _, m := range req.members {
		switch {
		case m.Name == "tools" || m.Name == "functions": // schemas, whose members may have any name
		case secret.Named(m.Name):
			out = append(out, secret.InJSON(slices.Concat([]byte(`{"key":`), m.Value, []byte(`}`)))...)
		case len(m.Value) > 0 && (m.Value[0] == '{' || m.Value[0] == '[' || m.Value[0] == '"' && bytes.ContainsAny(m.Value, `:\`)):
			// A text has secrets only if it is an address.
			out = append(out, secret.InJSON(m.Value)...)
		}
	}
	return out
}

// Secrets returns the secrets that must be removed from an upstream's error.
func (c *Call) Secrets() secret.Set {
	out := append([]string{c.APIKey}, c.Hidden...)
	for name, v := range c.Headers {
		if secret.Named(name) || len(v) >= 8 {
			out = append(out, v)
		}
	}
	return secret.NewSet(append(out, secret.InLLMURL(c.URL)...)...)
}

// Client calls upstreams. It is safe for concurrent use.
type Client struct {
	Transport http.RoundTripper // usually from NewTransport
	// Instance is this server's ID in ViaHeader; "" sends none.
	Instance string
}

// Looped reports whether a request has passed this server before: an llm.url that points to this
// server would call itself without end.
func (c *Client) Looped(h http.Header) bool {
	if c.Instance == "" {
		return false
	}
	for _, line := range h.Values(ViaHeader) {
		for id := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(id) == c.Instance {
				return true
			}
		}
	}
	return false
}

// UpstreamError is a response other than 2xx. It is passed on to the client.
type UpstreamError struct {
	Status int         // the upstream's; 502 for a redirect, which is not followed
	Header http.Header // Retry-After and the rate limits
	Body   []byte      // JSON, without secrets
	Text   string      // the message for logs and records, without secrets and personal data
}

// Error returns the status and the message.
func (e *UpstreamError) Error() string {
	return "upstream answered " + http.StatusText(e.Status) + ": " + e.Text
}

// Public returns the status alone: the message may quote the request.
func (e *UpstreamError) Public() string { return "upstream answered " + http.StatusText(e.Status) }

// Do makes the call. The response's body must be closed. Cancelling ctx ends the connection, or its
// HTTP/2 stream, at once, also while the body is being read. Do fails with *UpstreamError for a
// status other than 2xx, fault.Upstream if the upstream cannot be reached and fault.UpstreamTimeout
// if it is too slow. If ctx ended first, its cause is in the chain.
func (c *Client) Do(ctx context.Context, call *Call) (*http.Response, error) {
	limited := ctx
	if call.Connect > 0 {
		limited = context.WithValue(ctx, connectLimit{}, call.Connect)
	}
	req, err := c.request(limited, call)
	if err != nil {
		return nil, err
	}
	res, err := c.Transport.RoundTrip(req)
	if err != nil {
		if errors.Is(err, io.EOF) { // no caller may take it for the end of a response
			err = io.ErrUnexpectedEOF
		}
		return nil, callFault(ctx, err, call, req.URL.Host)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		res.Request = nil // it holds the request's body
		return res, nil
	}
	defer res.Body.Close()
	return nil, upstreamError(res, call)
}

// request returns the HTTP request of a call.
func (c *Client) request(ctx context.Context, call *Call) (*http.Request, error) {
	u, err := url.Parse(call.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse quotes the URL, which may contain a key.
		return nil, fault.At(fault.Invalid, "llm.url", "is not an absolute http or https URL")
	}
	h := make(http.Header, 6+len(call.Headers))
	values := make([]string, 0, 6) // of the headers below
	set := func(name, v string) {
		values = append(values, v)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for k, v := range call.Headers {
		if name := http.CanonicalHeaderKey(k); !ownHeader(name) {
			h[name] = []string{v}
		}
	}
	for _, name := range forwarded() {
		if v := call.Client[name]; len(v) > 0 {
			h[name] = v
		}
	}
	switch {
	case call.APIKey == "":
	case call.Azure:
		set(AzureKeyHeader, call.APIKey)
	default:
		set("Authorization", "Bearer "+call.APIKey)
	}
	if _, ok := h["User-Agent"]; !ok {
		set("User-Agent", "heardlog")
	}
	if c.Instance != "" {
		set(ViaHeader, strings.Join(append(slices.Clip(call.Client[ViaHeader]), c.Instance), ", "))
	}
	switch {
	case call.Accept != "":
		set("Accept", call.Accept)
	case call.Stream:
		set("Accept", "text/event-stream")
	default:
		set("Accept", "application/json")
	}
	req := (&http.Request{}).WithContext(ctx) // sets the context without a copy of the rest
	req.Method, req.URL, req.Host, req.Header = http.MethodGet, u, u.Host, h
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	if call.Body != nil {
		set("Content-Type", cmp.Or(call.ContentType, "application/json"))
		req.Method = http.MethodPost
		setBody(req, call.Body)
	}
	if call.Method != "" {
		req.Method = call.Method
	}
	return req, nil
}

// setBody sets a body that can be sent again.
func setBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// ownHeader reports whether a header belongs to the connection or to us, so that llm.headers cannot
// set it.
func ownHeader(name string) bool {
	switch name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive",
		"Proxy-Connection", "Content-Type", "Accept-Encoding", ViaHeader:
		return true
	}
	return false
}

// callFault returns the error for a failed round trip. It names the limit or the host.
func callFault(ctx context.Context, err error, call *Call, host string) error {
	if cause := context.Cause(ctx); cause != nil {
		return CauseFault(cause, err)
	}
	if e, ok := errors.AsType[*fault.Error](err); ok { // the address guard
		return &fault.Error{Code: fault.Upstream, Field: "llm.url", Msg: "llm.url: " + e.Msg, Err: withoutSecrets(err, call)}
	}
	var ne net.Error
	if errors.Is(err, ErrConnectTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return fault.Wrap(fault.UpstreamTimeout, withoutSecrets(err, call), "the LLM at "+host+" did not accept the connection in time")
	}
	return fault.Wrap(fault.Upstream, withoutSecrets(err, call), "the LLM at "+host+" cannot be reached")
}

// withoutSecrets returns err, or an error with its text without secrets.
func withoutSecrets(err error, call *Call) error {
	if text := string(call.Secrets().Hide([]byte(err.Error()))); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// CauseFault returns the error for a call whose context ended with cause: fault.UpstreamTimeout for
// one of our limits, else the cause itself, such as an interruption. It returns err if cause is
// nil.
func CauseFault(cause, err error) error {
	switch {
	case errors.Is(cause, ErrFirstTokenTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM sent nothing within the limit for the first token", Err: cause}
	case errors.Is(cause, ErrIdleTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM stopped sending in the middle of its answer", Err: cause}
	case errors.Is(cause, ErrTotalTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM did not finish within the limit for the whole answer", Err: cause}
	case cause != nil:
		return cause
	}
	return err
}

// ReadFault returns the error for a response whose body broke off.
func ReadFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return CauseFault(cause, err)
	}
	return fault.Wrap(fault.UpstreamTruncated, err, "the LLM broke off its answer")
}

// upstreamError reads a response other than 2xx.
func upstreamError(res *http.Response, call *Call) *UpstreamError {
	e := &UpstreamError{Status: res.StatusCode, Header: http.Header{}}
	for k, v := range res.Header {
		if k == "Retry-After" || k == "Retry-After-Ms" || strings.HasPrefix(k, "X-Ratelimit-") {
			e.Header[k] = v
		}
	}
	secrets := call.Secrets()
	for _, v := range e.Header {
		for i := range v {
			v[i] = string(secrets.Remove([]byte(v[i])))
		}
	}
	if e.Status < 400 { // another host must not see the headers
		e.Status = http.StatusBadGateway
		e.Text = "the LLM answered with a redirect or another unexpected status; llm.url must be the final address"
		e.Body = openAIErrorBody(e.Text)
		return e
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what has been read is passed on
	body = secrets.Hide(body)
	if isJSONObject(body) {
		e.Body, e.Text = body, call.kept(body)
		return e
	}
	said := strings.ToValidUTF8(string(body), "\uFFFD")
	if strings.TrimSpace(said) == "" {
		said = "the LLM answered " + res.Status
	}
	e.Body, e.Text = openAIErrorBody(text.Clip(said, maxErrorText)), call.kept([]byte(said))
	return e
}

// openAIErrorBody returns an error in OpenAI's form.
func openAIErrorBody(message string) []byte {
	b := text.AppendJSON([]byte(`{"error":{"message":`), message)
	return append(b, `,"type":"upstream_error","param":null,"code":null}}`...)
}

// ErrorText returns the message and the code of an error inside an answer: an object, a list of
// them, or a text. The code is "" if it has none.
func ErrorText(obj []byte) (said, code string) {
	if obj[0] == '[' {
		first := obj
		peek.Array(obj, func(v []byte) {
			if &first[0] == &obj[0] {
				first = v
			}
		})
		if first[0] == '[' {
			return string(first), ""
		}
		obj = first
	}
	if obj[0] != '{' {
		return textOf(obj), ""
	}
	for _, name := range []string{"message", "detail", "error", "status_msg", "msg", "error_msg"} {
		v, ok := lookup(obj, name)
		if ok && v[0] == '{' {
			return ErrorText(v)
		}
		if said = textOf(v); said != "" {
			break
		}
	}
	for _, name := range []string{"code", "status", "status_code"} {
		if v, ok := lookup(obj, name); ok && code == "" {
			code = textOf(v)
		}
	}
	return said, code
}

// ErrorObject reads an error inside an answer to the call. It returns the text without secrets and
// personal data, and the HTTP status in the object, 502 by default.
func (c *Call) ErrorObject(obj []byte) (said string, status int) {
	said, code := ErrorText(obj)
	if said == "" {
		said = "the LLM reported an error inside its answer"
	}
	status = http.StatusBadGateway
	if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
		status = n
	}
	return c.kept(c.Secrets().Hide([]byte(said))), status
}

// CopyRateLimits copies an upstream's rate limit headers.
func CopyRateLimits(h, from http.Header) {
	for k, v := range from {
		if strings.HasPrefix(k, "X-Ratelimit-") {
			h[k] = v
		}
	}
}
