package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// Bounds of HEARDLOG_LLM_FALLBACKS.
const (
	maxFallbacks     = 8
	maxFallbacksFile = 1 << 20
	maxUpstreamName  = 64
	maxHeaders       = 64
)

// upstreamJSON is one upstream as it is written in the settings.
type upstreamJSON struct {
	Name     string            `json:"name"`
	URL      string            `json:"url"`
	APIKey   string            `json:"api_key"`
	Model    string            `json:"model"`
	Vendor   string            `json:"vendor"`
	Headers  map[string]string `json:"headers"`
	Projects []string          `json:"projects"`
}

// setFallbacks reads a list of upstreams. No error shows a value: each may hold a key, or be one in the wrong place.
func setFallbacks(c *Config, v string) error {
	if v == "" {
		return nil
	}
	raw := []byte(v)
	if !strings.HasPrefix(strings.TrimSpace(v), "[") {
		var err error
		if raw, err = readFallbacks(v); err != nil {
			return err
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var in []upstreamJSON
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("is not a JSON array of upstreams: %w", plain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("holds something behind its array")
	}
	if len(in) > maxFallbacks {
		return fmt.Errorf("holds %d upstreams; at most %d are allowed", len(in), maxFallbacks)
	}
	seen := map[string]bool{"primary": true, "agent": true} // names that stand for others in headers and metrics
	for i := range in {
		u, err := in[i].upstream(i)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
		if seen[u.Name] {
			return fmt.Errorf("entry %d: its name is taken; primary and agent are, too", i+1)
		}
		seen[u.Name] = true
		c.LLM.Fallbacks = append(c.LLM.Fallbacks, u)
	}
	return nil
}

func readFallbacks(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.New("is neither a JSON array nor the path of a file that can be read")
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFallbacksFile+1))
	switch {
	case err != nil:
		return nil, errors.New("the file cannot be read")
	case len(raw) > maxFallbacksFile:
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFallbacksFile)
	}
	return raw, nil
}

// plain gives what a JSON error says without the values that it quotes.
func plain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return errors.New("it, or an entry of it, is of the wrong type")
		}
		return fmt.Errorf("%s is of the wrong type at byte %d", e.Field, e.Offset)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("mistake at byte %d", e.Offset)
	}
	if strings.HasPrefix(err.Error(), "json: unknown field") {
		return errors.New("a field is not known; name, url, api_key, model, vendor, headers and projects are")
	}
	return errors.New("it ends too early")
}

func (in *upstreamJSON) upstream(i int) (Upstream, error) {
	u := Upstream{Name: in.Name, APIKey: secret.String(in.APIKey), Model: in.Model, Vendor: in.Vendor, Projects: in.Projects}
	if u.Name == "" {
		u.Name = "fallback-" + strconv.Itoa(i+1)
	}
	if !ValidProject(u.Name) || len(u.Name) > maxUpstreamName {
		return u, fmt.Errorf("its name may hold letters, digits, dot, dash and underscore, at most %d", maxUpstreamName)
	}
	if in.URL == "" {
		return u, errors.New("url is required")
	}
	var at Config
	if err := urlInto(func(c *Config) *string { return &c.LLM.URL })(&at, in.URL); err != nil {
		return u, fmt.Errorf("url: %w", err)
	}
	u.URL = at.LLM.URL
	for _, f := range []struct{ name, value string }{{"api_key", in.APIKey}, {"model", in.Model}, {"vendor", in.Vendor}} {
		if err := oneLine(f.value); err != nil {
			return u, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if len(in.Headers) > maxHeaders {
		return u, fmt.Errorf("headers: holds %d; at most %d are allowed", len(in.Headers), maxHeaders)
	}
	for name, value := range in.Headers {
		if !headerName(name) {
			return u, errors.New("headers: a name is none that a header can have")
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
			return u, errors.New("projects: a name may hold letters, digits, dot, dash and underscore, at most 128")
		}
	}
	return u, nil
}

// headerName tells whether s is a header's name (a token of RFC 9110).
func headerName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// maxPassThrough is how many paths may go through.
const maxPassThrough = 100

// setPassThrough reads a list of paths.
func setPassThrough(c *Config, v string) error {
	for e := range strings.SplitSeq(v, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		path, ok := strings.CutPrefix(e, "/v1/")
		path = strings.TrimSuffix(path, "/*")
		if e != "*" && (!ok || path == "" || path == "*" || strings.ContainsAny(path, "*%\\?# ") || strings.Contains("/"+path+"/", "//") || strings.Contains("/"+path+"/", "/../")) {
			return fmt.Errorf("%q is not a path such as /v1/embeddings or /v1/audio/*, nor *", e)
		}
		if len(c.PassThrough) == maxPassThrough {
			return fmt.Errorf("there are more than %d paths", maxPassThrough)
		}
		c.PassThrough = append(c.PassThrough, e)
	}
	return nil
}
