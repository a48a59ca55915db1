package compat_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// server is a running Heardlog.
type server struct {
	*process
	url    string // without a slash at its end
	store  string // path of its database
	client *http.Client
}

// start runs Heardlog on any free port. The settings are NAME=value; the store is a new one unless
// they name one.
func start(t testing.TB, env ...string) *server {
	t.Helper()
	s := launch(t, env...)
	s.listening(t)
	return s
}

// launch runs Heardlog and does not wait for anything.
func launch(t testing.TB, env ...string) *server {
	t.Helper()
	s := &server{client: checkedClient(t)}
	settings := []string{"HEARDLOG_ADDR=127.0.0.1:0", "HEARDLOG_LOG_FORMAT=json"}
	if s.store = setting(env, "HEARDLOG_STORE"); s.store == "" {
		s.store = filepath.Join(t.TempDir(), "heardlog.db")
		settings = append(settings, "HEARDLOG_STORE=sqlite:"+s.store)
	}
	s.store = strings.TrimPrefix(s.store, "sqlite:")
	s.process = run(t, program(t, "api"), nil, append(settings, env...)...)
	return s
}

// setting returns the value of name in a list of NAME=value.
func setting(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// listening waits for the log line with the address.
func (s *server) listening(t testing.TB) {
	t.Helper()
	line, ok := s.stderr.find(func(l string) bool { return strings.Contains(l, `"message":"serving"`) })
	if !ok {
		t.Fatalf("the server does not say where it listens:\n%s", s.stderr)
	}
	var entry struct{ Address string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	s.url = entry.Address
}

// fakeLLM runs the fake LLM and returns its base URL without /v1.
func fakeLLM(t testing.TB, args ...string) string {
	t.Helper()
	p := run(t, program(t, "fakellm"), append([]string{"-addr", "127.0.0.1:0"}, args...))
	const says = "fakellm listens on "
	line, ok := p.stderr.find(func(l string) bool { return strings.HasPrefix(l, says) })
	if !ok {
		t.Fatalf("fakellm does not say where it listens:\n%s", p.stderr)
	}
	return strings.TrimSuffix(strings.TrimPrefix(line, says), "/v1")
}

// checkedClient returns an HTTP client that checks every answer against openapi.yaml.
func checkedClient(t testing.TB) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true, ResponseHeaderTimeout: patience}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: &specChecker{t: t, next: tr}, Timeout: 2 * time.Minute}
}

// httpClient returns a client without checks, for other servers.
func httpClient(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}
