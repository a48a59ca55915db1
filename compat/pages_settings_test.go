package compat_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unexported is a line that only sets settings: a shell that runs it keeps them to itself.
var unexported = regexp.MustCompile(`^(\$ )?((HEARDLOG_[A-Z_]+|GOMEMLIMIT)=('[^']*'|"[^"]*"|[^\s'"])*\s*)+(#.*|)$`)

// TestPagesSettingsAreExported checks that no page shows settings that are lost if its lines are
// pasted into a shell.
func TestPagesSettingsAreExported(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"HEARDLOG_ADDR=:80": true, "$ HEARDLOG_ADDR=:80 HEARDLOG_UI=off # both": true, `HEARDLOG_SECRET_KEY="$(cat /x y)"`: true, "HEARDLOG_PROFILES='[{\"a\": 1}]'": true,
		"export HEARDLOG_ADDR=:80": false, "HEARDLOG_ADDR=:80 heardlog": false, "HEARDLOG_PROFILES='[1, 2]' heardlog": false, `HEARDLOG_ADDR=:80 \`: false,
	} {
		if unexported.MatchString(line) != want {
			t.Errorf("%q is taken for the wrong kind of line", line)
		}
	}
	pages := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages++
		for _, kind := range []string{"", "sh", "bash", "shell", "console"} {
			for _, block := range blocks(string(text), kind) {
				for _, line := range block {
					if unexported.MatchString(line) {
						t.Errorf("%s: a shell does not pass this setting on to the server; write export in front: %s", path, line)
					}
				}
			}
		}
		return nil
	})
	if err != nil || pages < 60 {
		t.Fatalf("%d pages, %v", pages, err)
	}
}

// TestHardenedServer pastes the first block of the page on hardening into shells, with paths and
// port of the test. The server that it starts lets in only who has the credentials.
func TestHardenedServer(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/harden.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"sh", "bash"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"heardlog": "shop=id:secret\n", "heardlog-key": "0123456789abcdef0123456789abcdef\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			bin := filepath.Join(dir, "bin")
			if err := os.Mkdir(bin, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program(t, "api"), filepath.Join(bin, "heardlog")); err != nil {
				t.Fatal(err)
			}
			script := strings.Join(blocks(string(page), "sh")[0], "\n")
			if !strings.HasSuffix(script, "\nheardlog") || strings.Count(script, "/run/secrets/") != 2 || !strings.Contains(script, "127.0.0.1:8080") {
				t.Fatalf("the block is not what the test knows:\n%s", script)
			}
			script = strings.NewReplacer("/run/secrets/", dir+"/", "127.0.0.1:8080", "127.0.0.1:0").Replace(script)
			// exec, so that the end of the test ends the server and not the shell alone.
			script = "cd " + dir + "\nPATH=" + bin + ":$PATH\n" + strings.TrimSuffix(script, "heardlog") + "exec heardlog"
			s := &server{client: checkedClient(t), process: run(t, shell, []string{"-c", script}, "HEARDLOG_LOG_FORMAT=json")}
			s.listening(t)
			for _, path := range []string{"/v1/agents", "/v1/users", "/v1/webhooks/endpoints"} {
				s.call(t, http.StatusUnauthorized, "GET", path, nil, nil)
			}
			s.call(t, http.StatusOK, "GET", "/v1/agents", nil, nil, "Authorization", "Basic aWQ6c2VjcmV0")
			if log := s.stderr.String(); !strings.Contains(log, `"secrets_encrypted":true`) {
				t.Errorf("the server logs\n%s", log)
			}
		})
	}
}
