package tests

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// echo is an upstream that answers with the headers that it got, as an error.
type echo struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, r.Header.Clone())
		w.WriteHeader(http.StatusTeapot)
		for name, v := range r.Header {
			_, _ = io.WriteString(w, name+": "+strings.Join(v, ",")+"\n")
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// last returns the headers of the last request.
func (e *echo) last(t *testing.T) http.Header {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) == 0 {
		t.Fatal("no request came")
	}
	return e.seen[len(e.seen)-1]
}

// TestUpstreamHeaders: the server's own upstream gets the headers of the settings with every kind
// of request, another upstream gets none of them, and no answer or log line shows a value.
func TestUpstreamHeaders(t *testing.T) {
	t.Parallel()
	const key, referer = "hunter2-helicone", "https://shop.example/voice"
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("# for the gateway\nHelicone-Auth: Bearer "+key+"\nHTTP-Referer: "+referer+"\nX-Title: Shop, voice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for form, setting := range map[string]string{
		"file": file, "object": `{"Helicone-Auth":"Bearer ` + key + `","http-referer":"` + referer + `","X-Title":"Shop, voice"}`,
	} {
		own, other := newEcho(t), newEcho(t)
		s := start(t, "HEARDLOG_LLM_URL="+own.URL+"/v1", "HEARDLOG_LLM_HEADERS="+setting, "HEARDLOG_PASSTHROUGH=/v1/embeddings", "HEARDLOG_LLM_RETRIES=0",
			`HEARDLOG_LLM_FALLBACKS=[{"name":"spare","url":"`+other.URL+`/v1"}]`)
		mine, theirs := s.join("mine", nil), s.joinAs("theirs", `{"llm":{"url":"`+other.URL+`/v1"}}`)
		titled := s.joinAs("titled", `{"llm":{"headers":{"x-title":"Own"}}}`)
		for _, c := range []struct {
			path, body, title string
			to                *echo
		}{
			{agent(mine, "/chat/completions"), `{"messages":[{"role":"user","content":"Hi"}]}`, "Shop, voice", own},
			{agent(mine, "/responses"), `{"input":"Hi","stream":true}`, "Shop, voice", own},
			{agent(titled, "/chat/completions"), `{"messages":[{"role":"user","content":"Hi"}]}`, "Own", own},
			{v1 + "/embeddings", `{"input":"Hi"}`, "Shop, voice", own},
			{agent(theirs, "/chat/completions"), `{"messages":[{"role":"user","content":"Hi"}]}`, "", other},
		} {
			got := s.post(c.path, c.body)
			h := c.to.last(t)
			if c.to == other {
				if h.Get("Helicone-Auth")+h.Get("HTTP-Referer")+h.Get("X-Title") != "" {
					t.Errorf("%s: another upstream got %v", form, h)
				}
				continue
			}
			if h.Get("Helicone-Auth") != "Bearer "+key || h.Get("HTTP-Referer") != referer || h.Get("X-Title") != c.title || len(h.Values("X-Title")) != 1 {
				t.Errorf("%s: %s: the upstream got %v", form, c.path, h)
			}
			if strings.Contains(string(got.body), key) || strings.Contains(string(got.body), referer) {
				t.Errorf("%s: %s: the answer shows a value: %s", form, c.path, got.body)
			}
		}
		if s.get(v1 + "/models"); own.last(t).Get("Helicone-Auth") == "" {
			t.Errorf("%s: a list of models went without", form)
		}
		for _, path := range []string{"/metrics", agent(mine), agent(mine, "/messages"), agent(mine, "/turns/0/requests"), v1 + "/profiles"} {
			if got := s.get(path); strings.Contains(string(got.body), key) || strings.Contains(string(got.body), "shop.example") {
				t.Errorf("%s: %s shows a value: %s", form, path, got.body)
			}
		}
		s.stop()
		if log := s.log.String(); strings.Contains(log, key) || strings.Contains(log, "shop.example") {
			t.Errorf("%s: the log shows a value: %s", form, log)
		}
	}
}
