package llmadapter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// ViaHeader names the Heardlog instances that a call has passed. A request that names ourselves has come round in a circle.
const ViaHeader = "X-Heardlog-Via"

// maxErrorBody is how much of an upstream's error is read.
const maxErrorBody = 64 << 10

// forwarded are the only headers of a client that go on to the upstream (reference/proxies.md rule 10).
func forwarded() []string { return []string{"Traceparent", "Tracestate", "X-Request-Id"} }

// Limits bounds one call in time. Zero fields have no limit.
type Limits struct {
	Connect    time.Duration // until the connection stands, TLS included
	FirstToken time.Duration // of a stream: until its first data event
	Idle       time.Duration // of a stream: between two data events; comments do not count
	Total      time.Duration // of everything
}

// Why a call was given up by us. They are causes of the call's context and found in the chain of its error.
var (
	ErrConnectTimeout    = errors.New("no connection within its limit")
	ErrFirstTokenTimeout = errors.New("no data event within the limit for the first")
	ErrIdleTimeout       = errors.New("no data event within the limit between two")
	ErrTotalTimeout      = errors.New("not finished within the limit for the whole call")
	// ErrGrace is the end of a stream that said it was finished and then kept its connection open: no failure.
	ErrGrace = errors.New("silent after its last word")
)

// Call is one call to an upstream.
type Call struct {
	URL     string
	APIKey  string            // sent as a bearer token; "" sends none
	Azure   bool              // APIKey goes into AzureKeyHeader instead
	Headers map[string]string // llm.headers; our own headers win
	Client  http.Header       // the client's, of which forwarded() goes on; may be nil
	Body    []byte            // must not change after Do: the transport may still send it then
	Method  string            // "": POST with a Body, GET without
	// ContentType is that of Body and Accept what may come back; "" is JSON, or a stream of events where Stream asks for one.
	ContentType, Accept string
	Stream              bool
	Connect             time.Duration // see Limits
}

// Secrets are the strings that must not come back out of an upstream's error.
func (c *Call) Secrets() []string {
	out := []string{c.APIKey}
	for name, v := range c.Headers {
		if strings.EqualFold(name, "Authorization") || len(v) >= 8 {
			out = append(out, v)
		}
	}
	return out
}

// Client calls upstreams. It is safe for concurrent use.
type Client struct {
	Transport http.RoundTripper // usually from NewTransport
	// Instance is this server's id in ViaHeader; "" sends none.
	Instance string
}

// Looped tells whether a request has passed this server before: an llm.url that points back at us would call itself without end.
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

// UpstreamError is an answer of the upstream that is none: a status other than 2xx. It is passed on.
type UpstreamError struct {
	Status int         // of the upstream; 502 for a redirect, which is not followed
	Header http.Header // Retry-After and the rate limits
	Body   []byte      // JSON, without secrets
	Text   string      // what it says, for logs and records, without secrets
}

// Error gives the status and what the upstream said.
func (e *UpstreamError) Error() string {
	return "upstream answered " + http.StatusText(e.Status) + ": " + e.Text
}

// Do makes the call. The answer (its Request is nil) has a body that must be closed; ending ctx closes the connection at once, also while the body is
// being read. It fails with *UpstreamError for a status other than 2xx, fault.Upstream for a dead upstream and
// fault.UpstreamTimeout for a slow one; where ctx ended first its cause is in the chain.
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
		res.Request = nil // it holds the whole body, for as long as the answer takes
		return res, nil
	}
	defer res.Body.Close()
	return nil, upstreamError(res, call)
}

func (c *Client) request(ctx context.Context, call *Call) (*http.Request, error) {
	u, err := url.Parse(call.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse quotes the URL, which may hold a key.
		return nil, fault.At(fault.Invalid, "llm.url", "is not an absolute http or https URL")
	}
	h := make(http.Header, 6+len(call.Headers))
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
		h[AzureKeyHeader] = []string{call.APIKey}
	default:
		h["Authorization"] = []string{"Bearer " + call.APIKey}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{"heardlog"}
	}
	if c.Instance != "" {
		via := append([]string(nil), call.Client[ViaHeader]...)
		h[ViaHeader] = []string{strings.Join(append(via, c.Instance), ", ")}
	}
	switch {
	case call.Accept != "":
		h["Accept"] = []string{call.Accept}
	case call.Stream:
		h["Accept"] = []string{"text/event-stream"}
	default:
		h["Accept"] = []string{"application/json"}
	}
	req := &http.Request{
		Method: http.MethodGet, URL: u, Host: u.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if call.Body != nil {
		h["Content-Type"] = []string{"application/json"}
		if call.ContentType != "" {
			h["Content-Type"] = []string{call.ContentType}
		}
		req.Method = http.MethodPost
		setBody(req, call.Body)
	}
	if call.Method != "" {
		req.Method = call.Method
	}
	return req.WithContext(ctx), nil
}

func setBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// ownHeader tells whether a header belongs to the connection or to us, and cannot be set by llm.headers.
func ownHeader(name string) bool {
	switch name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive",
		"Proxy-Connection", "Content-Type", "Accept-Encoding", ViaHeader:
		return true
	}
	return false
}

// callFault turns what a transport failed with into an error that says whose limit or which host it was.
func callFault(ctx context.Context, err error, call *Call, host string) error {
	if cause := context.Cause(ctx); cause != nil {
		return CauseFault(cause, err)
	}
	if e, ok := errors.AsType[*fault.Error](err); ok { // the address guard
		return &fault.Error{Code: fault.Upstream, Field: "llm.url", Msg: "llm.url: " + e.Msg, Err: scrubbed(err, call)}
	}
	var ne net.Error
	if errors.Is(err, ErrConnectTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return fault.Wrap(fault.UpstreamTimeout, scrubbed(err, call), "the LLM at "+host+" did not take the connection in time")
	}
	return fault.Wrap(fault.Upstream, scrubbed(err, call), "the LLM at "+host+" cannot be reached")
}

// CauseFault gives the error for a call that ended with its context: fault.UpstreamTimeout for one of our limits, the
// cause itself (an interruption, a client gone) for anything else.
func CauseFault(cause, err error) error {
	switch {
	case errors.Is(cause, ErrFirstTokenTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM sent nothing within the limit for the first token", Err: cause}
	case errors.Is(cause, ErrIdleTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM fell silent within its answer", Err: cause}
	case errors.Is(cause, ErrTotalTimeout):
		return &fault.Error{Code: fault.UpstreamTimeout, Msg: "the LLM did not finish within the limit for the whole answer", Err: cause}
	case cause != nil:
		return cause
	}
	return err
}

// ReadFault gives the error for an answer that broke off while it was read.
func ReadFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return CauseFault(cause, err)
	}
	return fault.Wrap(fault.Upstream, err, "the LLM broke off within its answer")
}

func upstreamError(res *http.Response, call *Call) *UpstreamError {
	e := &UpstreamError{Status: res.StatusCode, Header: http.Header{}}
	for k, v := range res.Header {
		if k == "Retry-After" || k == "Retry-After-Ms" || strings.HasPrefix(k, "X-Ratelimit-") {
			e.Header[k] = v
		}
	}
	if e.Status < 400 { // the target would see headers that were meant for another host
		e.Status = http.StatusBadGateway
		e.Text = "the LLM answered with a redirect or another status that is no answer; llm.url must be the final address"
		e.Body = openAIErrorBody(e.Text)
		return e
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what came is passed on
	body = Scrub(body, call.Secrets())
	if isJSONObject(body) {
		e.Body, e.Text = body, clip(string(body), 1000)
		return e
	}
	e.Text = clip(strings.ToValidUTF8(string(body), "\uFFFD"), 1000)
	if strings.TrimSpace(e.Text) == "" {
		e.Text = "the LLM answered " + res.Status
	}
	e.Body = openAIErrorBody(e.Text)
	return e
}

func openAIErrorBody(text string) []byte {
	b := appendQuote([]byte(`{"error":{"message":`), text)
	return append(b, `,"type":"upstream_error","param":null,"code":null}}`...)
}
