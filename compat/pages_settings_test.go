package compat_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
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

var (
	setLine  = regexp.MustCompile(`^(\$ )?(export )?(HEARDLOG|OTEL|AWS)_[A-Z_]+=`)
	setNames = regexp.MustCompile(`\b(?:HEARDLOG|OTEL|AWS)_[A-Z_]+=`)
)

// settingBlocks returns the blocks of a page that set settings, without their other lines.
func settingBlocks(page string) (out []string) {
	for _, kind := range []string{"", "sh", "bash", "shell", "console"} {
		for _, block := range blocks(page, kind) {
			var lines []string
			for _, line := range block {
				if setLine.MatchString(line) {
					lines = append(lines, strings.TrimPrefix(line, "$ "))
				}
			}
			if lines != nil {
				out = append(out, strings.Join(lines, "\n"))
			}
		}
	}
	return out
}

// TestPagesSettingsTakeEffect pastes each block of settings into a shell, in which the programs
// that a page starts print what they were started with. Each setting must have arrived, with a
// value that the server accepts: doctor finds no mistake.
func TestPagesSettingsTakeEffect(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, page := range append(pages, "../README.md", "../deploy/kubernetes/README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range settingBlocks(string(text)) {
			total++
			t.Run(fmt.Sprint(filepath.Base(page), i), func(t *testing.T) {
				t.Parallel()
				pasteSettings(t, block)
			})
		}
	}
	if total < 20 {
		t.Errorf("the pages have %d blocks of settings", total)
	}
}

func pasteSettings(t *testing.T, block string) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("secrets/heardlog", "shop=id:secret\n")
	write("secrets/heardlog-key", "0123456789abcdef0123456789abcdef\n")
	write("secrets/heardlog-data-key", strings.Repeat("0123456789abcdef", 4)+"\n")
	for _, name := range []string{"bin/heardlog", "bin/go", "bin/node"} {
		write(name, "#!/bin/sh\nenv\n")
	}
	// The store and the folders of the page are not there: only the settings are of interest.
	real := "HEARDLOG_STORE=memory: " + program(t, "api") + " doctor --offline 2>&1\n"
	script := strings.NewReplacer("/run/secrets/", dir+"/secrets/", "…", "0123456789abcdef", "APP_ID=CERTIFICATE", strings.Repeat("a", 32)+"="+strings.Repeat("b", 32)).Replace(block)
	script = "cd " + dir + "\nPATH=" + dir + "/bin:$PATH\n" + strings.ReplaceAll(script, " &\n", "\n") + "\n"
	if !strings.Contains(block, " heardlog") && !strings.Contains(block, "bin/heardlog") && !strings.Contains(block, " go run") && !strings.Contains(block, " node ") {
		script += "heardlog\n" // as the reader does next
	}
	sh := func(script string, env ...string) string {
		t.Helper()
		c := exec.CommandContext(within(t, patience), "sh", "-c", script)
		c.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		out, err := c.CombinedOutput()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			t.Fatal(err)
		}
		return string(out)
	}
	seen := sh(script)
	var env []string
	for line := range strings.Lines(seen) {
		if setNames.MatchString(line) {
			env = append(env, strings.TrimSpace(line))
		}
	}
	for _, name := range setNames.FindAllString(block, -1) {
		if setting(env, strings.TrimSuffix(name, "=")) == "" {
			t.Errorf("%s did not reach the program that was started with\n%s", name, block)
		}
	}
	if strings.Contains(block, " node ") {
		return // settings of an example, not of the server
	}
	for line := range strings.Lines(sh(real, env...)) {
		if strings.HasPrefix(line, "FAIL") && strings.Contains(line, "HEARDLOG_") || strings.Contains(line, "is not a setting") {
			t.Errorf("the server refuses a setting of\n%s\n%s", block, line)
		}
	}
}

// TestSettingsFile starts servers with the file of settings that the page shows, and with mistakes.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	file := func(lines ...string) string {
		path := filepath.Join(t.TempDir(), "heardlog.env")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shown := blocks(string(page), "ini")
	if len(shown) != 1 {
		t.Fatalf("the page shows %d files", len(shown))
	}
	own := []string{"HEARDLOG_LOG_FORMAT=json", "HEARDLOG_ADDR=127.0.0.1:0", "HEARDLOG_STORE=memory:"}
	for name, tt := range map[string]struct{ args, env []string }{
		"flag":     {args: []string{"--env-file", file(shown[0]...)}, env: own},
		"joined":   {args: []string{"--env-file=" + file(shown[0]...)}, env: own},
		"variable": {env: append(own, "HEARDLOG_ENV_FILE="+file(shown[0]...))},
		"the environment wins": {
			args: []string{"--env-file", file(append(own, "HEARDLOG_CREDENTIALS=shop=id:another", "HEARDLOG_LLM_URL=nonsense")...)},
			env:  []string{"HEARDLOG_CREDENTIALS=shop=id:secret", "HEARDLOG_LLM_URL=https://llm.example/v1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{client: checkedClient(t), process: run(t, program(t, "api"), tt.args, tt.env...)}
			s.listening(t)
			s.call(t, http.StatusUnauthorized, "GET", "/v1/agents", nil, nil)
			s.call(t, http.StatusOK, "GET", "/v1/agents", nil, nil, "Authorization", "Basic aWQ6c2VjcmV0")
		})
	}
	bad := file("# ours", "HEARDLOG_CREDENTALS=shop=id:hunter2", "HEARDLOG_SECRET_KEY=$(cat hunter2)")
	for _, args := range [][]string{{"--env-file", bad}, {"--env-file", bad, "doctor"}} {
		p := run(t, program(t, "api"), args)
		code := p.wait(t)
		for _, want := range []string{bad + ", line 2: HEARDLOG_CREDENTALS is not a setting; did you mean HEARDLOG_CREDENTIALS?", bad + ", line 3: HEARDLOG_SECRET_KEY: "} {
			if code == 0 || !strings.Contains(p.stderr.String(), want) || strings.Contains(p.stderr.String(), "hunter2") {
				t.Errorf("%q: code %d, want %s in\n%s", args, code, want, p.stderr)
			}
		}
	}
	p := run(t, program(t, "api"), []string{"--env-file"})
	if code := p.wait(t); code != 1 || !strings.Contains(p.stderr.String(), "needs the path of a file") {
		t.Errorf("without a path: code %d\n%s", code, p.stderr)
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
			for name, text := range map[string]string{"heardlog": "shop=id:secret\n", "heardlog-key": "0123456789abcdef0123456789abcdef\n", "heardlog-data-key": strings.Repeat("0f", 32) + "\n"} {
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
			if !strings.HasSuffix(script, "\nheardlog") || strings.Count(script, "/run/secrets/") != 3 || !strings.Contains(script, "127.0.0.1:8080") {
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
			for _, want := range []string{`"secrets_encrypted":true`, `"texts_encrypted":true`} {
				if log := s.stderr.String(); !strings.Contains(log, want) {
					t.Errorf("the server does not log %s:\n%s", want, log)
				}
			}
		})
	}
}
