package compat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulate plays every platform's calls against a running server with exit code 0. An
// unexpected record, a missing server and an unknown platform end with 1 and an error.
func TestSimulate(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=red=red-id:red-secret")
	addr := "HEARDLOG_ADDR=" + strings.TrimPrefix(s.url, "http://")
	wrong := filepath.Join(t.TempDir(), "wrong.jsonl")
	if err := os.WriteFile(wrong, []byte(`{"platform":"openai"}`+"\n"+`{"ask":"One?","answer":"One.","want":{"heard":"Two."}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		args     []string
		env      []string
		code     int
		out, err string // parts of what is written
	}{
		{"the settings' server", []string{"all"}, []string{addr, "HEARDLOG_CREDENTIALS=red=red-id:red-secret"}, 0, "the record is as expected", ""},
		{"a named server", []string{"-server", s.url, "-key", "red-secret", "-json", "livekit-speculation"}, nil, 0, `"match":true`, ""},
		{"a wrong record", []string{"-server", s.url, "-key", "red-secret", wrong}, nil, 1, "differs: heard (line 2)", "the record is not as expected"},
		{"no key", []string{"-server", s.url, "livekit"}, nil, 1, "", "401"},
		{"no server", []string{"-server", "http://127.0.0.1:1", "livekit"}, nil, 1, "", "start one, or name it with --server"},
		{"no platform", []string{"pager"}, nil, 1, "", "livekit"},
		{"help", []string{"-h"}, nil, 0, "--server=URL", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := run(t, program(t, "api"), append([]string{"simulate"}, tt.args...), tt.env...)
			if code := p.wait(t); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			out, errs := p.stdout.String(), p.stderr.String()
			if !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) || strings.Contains(out+errs, "red-secret") {
				t.Errorf("it wrote\n%s\n%s", out, errs)
			}
			if tt.name == "a named server" {
				var r struct {
					Rows []struct{ Expected, Recorded struct{ Ghosts int } }
				}
				if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Rows) < 2 || r.Rows[1].Recorded.Ghosts != 3 {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
}
