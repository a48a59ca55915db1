package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRescue deletes files of a running server. It acknowledges nothing more, and rescue writes all
// that it had acknowledged to a new file, on which a server starts.
func TestRescue(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string][]string{
		"database": {""}, "log": {"-wal"}, "both": {"", "-wal"}, "all": {"", "-wal", "-shm", ".lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.join(t, "lost", nil)
			var acked []string
			one := func() int {
				name := fmt.Sprintf("m-%d", len(acked))
				status, body, err := s.try(t.Context(), "POST", "/v1/agents/"+id+"/messages", object{"id": name, "role": "user", "content": strings.Repeat("x", 2000)})
				if err != nil {
					t.Fatal(err)
				}
				if status == 200 {
					acked = append(acked, name)
				} else if status != 503 || !strings.Contains(string(body), "deleted") {
					t.Errorf("%d %s", status, body)
				}
				return status
			}
			stored := func(s *server) []string {
				ids := []string{}
				for _, m := range s.ledger(t, id) {
					ids = append(ids, m.ID)
				}
				return ids
			}
			for range 400 { // the log is moved into the file in between
				if one() != 200 {
					t.Fatal("refused")
				}
			}
			if _, errs, code := subcommand(t, s.store, "rescue", filepath.Join(t.TempDir(), "early.db")); code != 1 || !strings.Contains(errs, "heardlog backup") {
				t.Errorf("rescue of a file that is there: %d %s", code, errs)
			}
			for _, end := range ends {
				if err := os.Remove(s.store + end); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if one() != 503 {
					t.Error("a message was acknowledged without a file")
				}
			}
			if _, body, err := s.try(t.Context(), "GET", "/readyz", nil); err != nil || !strings.Contains(string(body), "deleted") {
				t.Errorf("readyz: %s %v", body, err)
			}
			if diff := cmp.Diff(acked, stored(s)); diff != "" {
				t.Errorf("read without the file: %s", diff)
			}
			to := filepath.Join(t.TempDir(), "rescued.db")
			out, errs, code := subcommand(t, s.store, "rescue", to)
			if code != 0 || !strings.Contains(out, "findings: 0") {
				t.Fatalf("rescue: %d %s %s", code, out, errs)
			}
			if _, errs, code := subcommand(t, s.store, "rescue", to); code != 1 || !strings.Contains(errs, "there already") {
				t.Errorf("rescue into a file that is there: %d %s", code, errs)
			}
			s.kill()
			again := start(t, "HEARDLOG_STORE=sqlite:"+to)
			if diff := cmp.Diff(acked, stored(again)); diff != "" {
				t.Errorf("after the rescue: %s", diff)
			}
		})
	}
}
