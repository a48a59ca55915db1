package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// spec is openapi.yaml as a router, read once.
var spec = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.yaml")
	if err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// specChecker is a RoundTripper that checks every answer against openapi.yaml.
type specChecker struct {
	t    testing.TB
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *specChecker) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(req)
	if err != nil {
		return res, err
	}
	if res.Header.Get("X-Request-Id") == "" {
		c.t.Errorf("%s %s: no X-Request-Id", req.Method, req.URL.Path)
	}
	body := []byte(nil)
	typ, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if typ != "text/event-stream" && res.StatusCode != http.StatusSwitchingProtocols { // others are for the test
		if body, err = io.ReadAll(res.Body); err != nil {
			return nil, err // a connection that broke is the test's business
		}
		res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.check(req, res, body, typ)
	return res, nil
}

func (c *specChecker) check(req *http.Request, res *http.Response, body []byte, typ string) {
	router, err := spec()
	if err != nil {
		c.t.Errorf("openapi.yaml: %v", err)
		return
	}
	// The spec names no host.
	found := req.Clone(context.WithoutCancel(req.Context()))
	found.URL = &url.URL{Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	route, params, err := router.FindRoute(found)
	if err != nil {
		if res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusMethodNotAllowed {
			c.t.Errorf("%s %s answered %d and is not in openapi.yaml: %v", req.Method, req.URL.Path, res.StatusCode, err)
		} else if !isAgoraError(body) {
			c.t.Errorf("%s %s: %d without detail and reason: %s", req.Method, req.URL.Path, res.StatusCode, body)
		}
		return
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: found, PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: typ != "application/json"},
	}
	in.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(in.RequestValidationInput.Request.Context(), in); err != nil {
		c.t.Errorf("%s %s answered %d, not as openapi.yaml has it: %v\n%.2000s", req.Method, req.URL.Path, res.StatusCode, err, body)
	}
	if typ == "application/json" || len(body) == 0 && typ != "text/event-stream" || res.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	if r := route.Operation.Responses.Status(res.StatusCode); r == nil || r.Value == nil || r.Value.Content.Get(typ) == nil {
		c.t.Errorf("%s %s: openapi.yaml knows no %s for status %d", req.Method, req.URL.Path, typ, res.StatusCode)
	}
}

func isAgoraError(body []byte) bool {
	var e struct{ Detail, Reason string }
	return json.Unmarshal(body, &e) == nil && e.Detail != "" && e.Reason != ""
}

// TestSpec checks that the description is valid and that the server serves it.
func TestSpec(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	s := start(t)
	for path, typ := range map[string]string{
		"/openapi.yaml": "application/yaml", "/docs": "text/html", "/healthz": "application/json", "/readyz": "application/json", "/metrics": "text/plain",
	} {
		res, err := s.client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode != 200 || got != typ {
			t.Errorf("%s: %s %q", path, res.Status, got)
		}
	}
	for _, path := range []string{"/v1/agents/x/nothing", "/api/conversational-ai-agent/v2/projects/p/nothing", "/nothing"} {
		res, err := s.client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
