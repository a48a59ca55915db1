package spectest

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"testing"
)

// maxShown limits the bytes of a body that a failure shows.
const maxShown = 2000

// Transport returns a RoundTripper that checks each answer of base (nil: http.DefaultTransport) and
// fails the test with the operation and the reason. It reads and checks whole bodies. Of streams of
// server-sent events and of WebSockets, which it passes on unread, it checks status, headers and
// content type.
func (s *Spec) Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{t: t, spec: s, base: base}
}

type transport struct {
	t    testing.TB
	spec *Spec
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" || resp.StatusCode == http.StatusSwitchingProtocols {
		c.report(req, resp, nil, c.spec.check(req, resp, nil))
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil { // the caller sees the same error, and an incomplete body cannot be checked
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		return resp, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if body == nil {
		body = []byte{}
	}
	c.report(req, resp, body, c.spec.check(req, resp, body))
	return resp, nil
}

func (c *transport) report(req *http.Request, resp *http.Response, body []byte, err error) {
	if err == nil {
		return
	}
	c.t.Helper()
	shown := string(body)
	if len(shown) > maxShown {
		shown = shown[:maxShown] + fmt.Sprintf("… (%d bytes)", len(body))
	}
	c.t.Errorf("the answer to %s %s (%d, %s) is not as openapi.yaml has it: %v\nbody: %s",
		req.Method, req.URL.Path, resp.StatusCode, resp.Header.Get("Content-Type"), err, shown)
}

// failing is the end of a body that ended with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
