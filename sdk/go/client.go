// Package heardlog is the Go client of a Heardlog server. Client makes the calls; Agent is one call
// of a voice agent, from its start to its end. It depends only on the standard library.
//
//	c, err := heardlog.New(heardlog.Config{}) // HEARDLOG_URL and HEARDLOG_SECRET
//	…
//	a, err := c.Start(ctx, "desk-1", heardlog.StartOptions{UserID: "anna"})
//	// An OpenAI client with the base URL a.URL() and the headers c.Header() talks for the agent.
//	err = a.Interrupt(ctx, heardlog.Heard{Text: "The train leaves"})
//	history, err := a.History(ctx)
//	err = a.Leave(ctx)
//
// Package webhook/receive of this module receives the server's webhooks.
package heardlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultURL is the base URL of a server on this machine.
const DefaultURL = "http://127.0.0.1:8080/v1"

// maxAnswer limits the bytes that are read of an answer.
const maxAnswer = 64 << 20

// Config is where the server is. Its zero value takes everything from the environment.
type Config struct {
	URL     string       // base URL; default HEARDLOG_URL, or DefaultURL. Without a path, /v1 is added
	Secret  string       // of a key, or id:secret; default HEARDLOG_SECRET. It may be empty
	HTTP    *http.Client // default: one with a timeout of 30 s
	Retries int          // repeats of a call that failed; default 3, negative for none
}

// Client makes the calls of one server, for one project. Create it with New. It is safe for
// concurrent use.
type Client struct {
	url, secret string
	http        *http.Client
	retries     int
}

// New returns a client. It fails if the URL or the secret cannot be used.
func New(c Config) (*Client, error) {
	base := first(c.URL, os.Getenv("HEARDLOG_URL"), DefaultURL)
	u, err := url.Parse(strings.TrimSpace(base))
	switch {
	case err != nil:
		return nil, errors.New("url: is not a URL")
	case u.User != nil:
		return nil, errors.New("url: must not contain credentials; set the secret")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url: must begin with http:// or https://, not %q", base)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("url: must not have a query or a fragment")
	}
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/v1"
	}
	secret := strings.TrimSpace(first(c.Secret, os.Getenv("HEARDLOG_SECRET")))
	if strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("secret: must be printable ASCII")
	}
	out := &Client{url: u.String(), secret: secret, http: c.HTTP, retries: c.Retries}
	if out.http == nil {
		out.http = &http.Client{Timeout: 30 * time.Second}
	}
	switch {
	case out.retries == 0:
		out.retries = 3
	case out.retries < 0:
		out.retries = 0
	}
	return out, nil
}

// URL returns the base URL for OpenAI clients whose requests name their agent in a header.
func (c *Client) URL() string { return c.url }

// Header returns the headers that each request needs: Authorization, if there is a secret.
func (c *Client) Header() http.Header {
	h := http.Header{}
	switch id, secret, ok := strings.Cut(c.secret, ":"); {
	case c.secret == "":
	case ok:
		r := http.Request{Header: h}
		r.SetBasicAuth(id, secret)
	default:
		h.Set("Authorization", "Bearer "+c.secret)
	}
	return h
}

// Request is a call that has no method here.
type Request struct {
	Method, Path string // such as GET and /agents
	Query        url.Values
	Header       http.Header
	Body         any // encoded as JSON; nil means no body
	// Key is the Idempotency-Key. A POST with one is repeated after a failure.
	Key        string
	Repeatable bool // whether a POST without a key may be repeated, too
}

// Do makes a call and decodes its answer into out, unless out is nil or the answer has no body. It
// repeats calls after network errors and 408, 429, 502, 503 and 504. It fails with an *Error.
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return fmt.Errorf("encode the body: %w", err)
		}
	}
	again := r.Method != http.MethodPost || r.Key != "" || r.Repeatable
	for attempt := 0; ; attempt++ {
		retryAfter, err := c.once(ctx, r, body, out)
		if err == nil || !again || attempt >= c.retries || ctx.Err() != nil || !mendable(err) {
			return err
		}
		if err := wait(ctx, pause(attempt, retryAfter)); err != nil {
			return err
		}
	}
}

// once makes one attempt. It returns what the server says of when to try again.
func (c *Client) once(ctx context.Context, r Request, body []byte, out any) (string, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, c.url+r.Path, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("make the request: %w", err)
	}
	req.URL.RawQuery = r.Query.Encode()
	for _, h := range []http.Header{c.Header(), r.Header} {
		for name, values := range h {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return "", &Error{Detail: "the server could not be reached", Err: err}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", &Error{Detail: "the answer broke off", Err: err}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return res.Header.Get("Retry-After"), errorOf(res, answer)
	}
	if out == nil || len(answer) == 0 {
		return "", nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return "", &Error{Detail: "the answer cannot be read: is the URL that of Heardlog?", Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id"), Err: err}
	}
	return "", nil
}

// mendable reports whether a repeat may succeed.
func mendable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// pause returns how long to wait before a retry: what the server asks for, or 100 ms, 200 ms,
// 400 ms … with some chance, and at most 8 s.
func pause(attempt int, retryAfter string) time.Duration {
	const most = 8 * time.Second
	if s, err := strconv.ParseFloat(retryAfter, 64); err == nil && s >= 0 {
		return min(time.Duration(s*float64(time.Second)), most)
	}
	if at, err := http.ParseTime(retryAfter); err == nil {
		return max(0, min(time.Until(at), most))
	}
	d := min(100*time.Millisecond<<min(attempt, 10), most)
	return time.Duration(float64(d) * (0.75 + mathrand.Float64()/2))
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func newKey() string { return rand.Text() }
