package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// An endpoint that wants one try still wants one after a restart, and not as many as the server's
// schedule has.
func TestOneTryIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "e.db")
	s := open(t, sqlite.Options{Path: path})
	for id, retry := range map[string][]time.Duration{"one": {}, "default": nil, "own": {time.Minute}} {
		if err := webhook.CreateEndpoint(t.Context(), s, webhook.Endpoint{ID: id, Project: "p", URL: "https://x.example", Retry: retry}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sqlite.Options{Path: path})
	for id, want := range map[string]int{"one": 0, "default": -1, "own": 1} {
		e, err := webhook.FindEndpoint(t.Context(), s, "p", id)
		if got := len(e.Retry); err != nil || (e.Retry == nil) != (want < 0) || got != max(want, 0) {
			t.Errorf("%s: %v %v", id, e.Retry, err)
		}
	}
}
