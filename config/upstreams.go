package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// Limits of HEARDLOG_LLM_FALLBACKS.
const (
	maxFallbacks     = 8
	maxFallbacksFile = 1 << 20
	maxUpstreamName  = 64
	maxHeaders       = 64
)

// upstreamJSON is the form of an upstream in the settings.
type upstreamJSON struct {
	Name     string            `json:"name"`
	URL      string            `json:"url"`
	APIKey   string            `json:"api_key"`
	Model    string            `json:"model"`
	Vendor   string            `json:"vendor"`
	Headers  map[string]string `json:"headers"`
	Projects []string          `json:"projects"`
	Thoughts string            `json:"thoughts"`
	Shape    string            `json:"shape"`
	Cache    string            `json:"cache"`
}

// parseFallbacks reads a JSON array of upstreams, or a file with one. No error shows a value, since
// it may be a key, or a key in the wrong place.
func parseFallbacks(v string) ([]Upstream, error) {
	raw := []byte(v)
	if !strings.HasPrefix(strings.TrimSpace(v), "[") {
		var err error
		if raw, err = readFile(v, "is neither a JSON array nor the path of a file that can be read", maxFallbacksFile); err != nil {
			return nil, err
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var in []upstreamJSON
	if err := d.Decode(&in); err != nil {
		return nil, fmt.Errorf("must be a JSON array of upstreams: %w", withoutValues(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has text after its array")
	}
	if len(in) > maxFallbacks {
		return nil, fmt.Errorf("has %d upstreams; at most %d are allowed", len(in), maxFallbacks)
	}
	var out []Upstream
	// These have a meaning in headers and metrics.
	seen := map[string]bool{"primary": true, "agent": true}
	for i := range in {
		u, err := in[i].upstream(i)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		if seen[u.Name] {
			return nil, fmt.Errorf("entry %d: its name must be unique, and neither primary nor agent", i+1)
		}
		seen[u.Name] = true
		out = append(out, u)
	}
	return out, nil
}

// withoutValues returns a JSON error without the values that it quotes.
func withoutValues(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return errors.New("it, or an entry of it, has the wrong type")
		}
		return fmt.Errorf("%s has the wrong type at byte %d", e.Field, e.Offset)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("syntax error at byte %d", e.Offset)
	}
	if strings.HasPrefix(err.Error(), "json: unknown field") {
		return errors.New("unknown field; known are name, url, api_key, model, vendor, headers, projects, thoughts, shape and cache")
	}
	return errors.New("it ends too early")
}

// upstream checks the i-th entry, from 0, and returns it as an Upstream.
func (in *upstreamJSON) upstream(i int) (Upstream, error) {
	u := Upstream{Name: in.Name, APIKey: secret.String(in.APIKey), Model: in.Model, Vendor: in.Vendor, Projects: in.Projects, Thoughts: in.Thoughts, Shape: in.Shape, Cache: in.Cache}
	if u.Name == "" {
		u.Name = "fallback-" + strconv.Itoa(i+1)
	}
	if !ValidProject(u.Name) || len(u.Name) > maxUpstreamName {
		return u, fmt.Errorf("its name must consist of letters, digits, dot, dash and underscore, at most %d", maxUpstreamName)
	}
	if in.URL == "" {
		return u, errors.New("url is required")
	}
	if err := checkURL(in.URL); err != nil {
		return u, fmt.Errorf("url: %w", err)
	}
	u.URL = in.URL
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{{"thoughts", in.Thoughts, []string{"calls", "all", "never"}}, {"shape", in.Shape, []string{"as_is", "one_system", "alternate"}}, {"cache", in.Cache, []string{"off", "openai", "anthropic"}}} {
		if f.value != "" && !slices.Contains(f.allowed, f.value) {
			return u, fmt.Errorf("%s: must be one of %s", f.name, strings.Join(f.allowed, ", "))
		}
	}
	for _, f := range []struct{ name, value string }{{"api_key", in.APIKey}, {"model", in.Model}, {"vendor", in.Vendor}} {
		if err := oneLine(f.value); err != nil {
			return u, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if len(in.Headers) > maxHeaders {
		return u, fmt.Errorf("headers: has %d; at most %d are allowed", len(in.Headers), maxHeaders)
	}
	for name, value := range in.Headers {
		if !headerName(name) {
			return u, errors.New("headers: a name is not a valid header name")
		}
		if err := oneLine(value); err != nil {
			return u, fmt.Errorf("headers: a value %w", err)
		}
		if u.Headers == nil {
			u.Headers = map[string]secret.String{}
		}
		u.Headers[name] = secret.String(value)
	}
	for _, p := range in.Projects {
		if !ValidProject(p) {
			return u, errors.New("projects: a name must have 1 to 128 letters, digits, dots, dashes and underscores")
		}
	}
	return u, nil
}

// headerName reports whether s can be the name of a header (a token of RFC 9110).
func headerName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

const maxPassThrough = 100 // paths

// parsePassThrough reads a list of paths.
func parsePassThrough(v string) ([]string, error) {
	var out []string
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		path, ok := strings.CutPrefix(e, "/v1/")
		path = strings.TrimSuffix(path, "/*")
		if e != "*" && (!ok || path == "" || path == "*" || strings.ContainsAny(path, "*%\\?# ") || strings.Contains("/"+path+"/", "//") || strings.Contains("/"+path+"/", "/../")) {
			return nil, fmt.Errorf("must be paths such as /v1/embeddings or /v1/audio/*, or *, not %q", e)
		}
		if len(out) == maxPassThrough {
			return nil, fmt.Errorf("must have at most %d paths", maxPassThrough)
		}
		out = append(out, e)
	}
	return out, nil
}
