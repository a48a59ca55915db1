package compat_test

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// refuses starts a server that must not start, and returns its output.
func refuses(t *testing.T, env ...string) string {
	t.Helper()
	s := launch(t, env...)
	if code := s.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	return s.stderr.String()
}

// TestSettingsMistakes checks that every mistake in the settings is listed at once, and that none
// of the errors has a secret.
func TestSettingsMistakes(t *testing.T) {
	t.Parallel()
	env := []string{
		"HEARDLOG_ADDR=nonsense", "HEARDLOG_STORE=mysql://user:hunter2@host", "HEARDLOG_CREDENTIALS=hunter2", "HEARDLOG_LLM_URL=ftp://hunter2@x/",
		"HEARDLOG_MAX_BODY=1", "HEARDLOG_LOG_LEVEL=loud", "HEARDLOG_RETENTION=forever", "HEARDLOG_OUTBOUND_ALLOW=10.0.0.1/8", "HEARDLOG_SECRET_KEY=hunter2",
		"HEARDLOG_WEBHOOK_SECRET=hunter2", "HEARDLOG_AUTO_JOIN=yes please",
	}
	got := refuses(t, env...)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if n := strings.Count(got, name+":"); n != 1 {
			t.Errorf("%s is named %d times", name, n)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Error("a secret is shown")
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestSettingsMistakesLeaveNothing checks that mistakes that other packages find are listed with
// the rest, and that nothing is created before all settings are right.
func TestSettingsMistakesLeaveNothing(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "data", "heardlog.db")
	env := []string{
		"HEARDLOG_WEBHOOK_SECRET=whsec_hunter2", "HEARDLOG_WEBHOOK_URL=http://169.254.169.254/hunter2", "HEARDLOG_LLM_URL=http://192.168.1.5/hunter2",
		"HEARDLOG_IDLE_TIMEOUT=1500ms", "HEARDLOG_LOG_LEVEL=loud",
	}
	got := refuses(t, append(env, "HEARDLOG_STORE=sqlite:"+store)...)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if n := strings.Count(got, name+":"); n != 1 {
			t.Errorf("%s is named %d times:\n%s", name, n, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("a secret is shown:\n%s", got)
	}
	// This mistake alone.
	refuses(t, env[0], "HEARDLOG_WEBHOOK_URL=https://hooks.example/", "HEARDLOG_STORE=sqlite:"+store)
	if _, err := os.Stat(filepath.Dir(store)); !os.IsNotExist(err) {
		t.Errorf("the store was made for settings that are wrong: %v", err)
	}
}

// TestSettingsOpenServer checks that without credentials only this machine is served.
func TestSettingsOpenServer(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		if got := refuses(t, "HEARDLOG_ADDR="+addr); !strings.Contains(got, "HEARDLOG_CREDENTIALS") || !strings.Contains(got, "loopback") {
			t.Errorf("%s: %s", addr, got)
		}
	}
	s := start(t)
	if !strings.Contains(s.stderr.String(), "any request from this machine is accepted") {
		if _, ok := s.stderr.find(func(l string) bool { return strings.Contains(l, "any request from this machine is accepted") }); !ok {
			t.Errorf("an open server does not say so:\n%s", s.stderr)
		}
	}
	// A page in a browser could use a host name that resolves to this machine.
	req := strings.NewReader(`{"name":"x"}`)
	r, err := s.client.Post(strings.Replace(s.url, "127.0.0.1", "localhost", 1)+"/v1/agents", "application/json", req)
	if err != nil || r.StatusCode != 200 {
		t.Errorf("localhost: %v %v", r, err)
	}
}

// TestSettingsPortZero checks that port 0 takes any free port and that the logged address is the
// real one.
func TestSettingsPortZero(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_ADDR=127.0.0.1:0")
	u, err := url.Parse(s.url)
	if err != nil || u.Port() == "" || u.Port() == "0" {
		t.Fatalf("%q %v", s.url, err)
	}
	s.call(t, 200, "GET", "/healthz", nil, nil)
	if got := refuses(t, "HEARDLOG_ADDR=127.0.0.1:"+u.Port()); !strings.Contains(got, "HEARDLOG_ADDR") || !strings.Contains(got, "in use") {
		t.Errorf("a port that is taken: %s", got)
	}
}

// TestSettingsHelp checks that -h prints every setting that docs/reference/settings.md lists, and
// that unknown arguments are refused.
func TestSettingsHelp(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("(?m)^\\| `(HEARDLOG_[A-Z_]+)`").FindAllSubmatch(page, -1)
	if len(names) < 20 {
		t.Fatalf("the page names %d settings", len(names))
	}
	for _, arg := range []string{"-h", "--help", "help", "help settings"} {
		p := run(t, program(t, "api"), strings.Fields(arg))
		if code := p.wait(t); code != 0 {
			t.Errorf("%s: exit code %d", arg, code)
		}
		for _, n := range names {
			if !strings.Contains(p.stdout.String(), "  "+string(n[1])) {
				t.Errorf("%s does not print %s", arg, n[1])
			}
		}
	}
	p := run(t, program(t, "api"), []string{"serve"})
	if code := p.wait(t); code != 1 || !strings.Contains(p.stderr.String(), `"serve"`) {
		t.Errorf("unknown argument: exit code %d, %s", code, p.stderr)
	}
}

// TestStoreInUse checks that two processes never share a store.
func TestStoreInUse(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join(t, "one", nil)
	got := refuses(t, "HEARDLOG_STORE=sqlite:"+s.store)
	if !strings.Contains(got, "in use by another process") || !strings.Contains(got, s.store) {
		t.Errorf("a second process: %s", got)
	}
	if got := s.statusOf(t, id); got != "RUNNING" {
		t.Errorf("the first process shows %s", got)
	}
	s.kill() // the lock does not outlive its process
	if got := start(t, "HEARDLOG_STORE=sqlite:"+s.store).statusOf(t, id); got != "RUNNING" {
		t.Errorf("after the kill: %s", got)
	}
}

// TestStoreRefused checks that a database of a newer version, or of another program, is refused and
// not changed.
func TestStoreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.join(t, "one", nil)
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	b, err := os.ReadFile(s.store)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(b)
	putHeader(newer, 60, 999) // SQLite's user_version
	foreign := bytes.Clone(b)
	putHeader(foreign, 60, 0)
	putHeader(foreign, 68, 0x12345678) // its application_id
	for _, tt := range []struct {
		name    string
		content []byte
		says    string
	}{
		{"newer", newer, "newer version"},
		{"foreign", foreign, "another program"},
		{"no database", bytes.Repeat([]byte("not a database "), 1000), "no database"},
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, tt.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := refuses(t, "HEARDLOG_STORE=sqlite:"+path); !strings.Contains(got, tt.says) || !strings.Contains(got, path) {
			t.Errorf("%s: %s", tt.name, got)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, tt.content) {
			t.Errorf("%s: the file was changed (%v)", tt.name, err)
		}
	}
}

// putHeader writes a number in the form of SQLite's header.
func putHeader(b []byte, at int, v uint32) { binary.BigEndian.PutUint32(b[at:], v) }

// TestSecrets checks that with a key no secret appears in any file or in the log, at any level, and
// that a server with another key or none does not start.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const key = "the key of the store 4711"
	secrets := []string{"sk-server-8f1c", "sk-agent-77aa", "header-secret-31", "webhook-secret-55", "007token-secret-12", "credential-secret-90", "tts-key-secret-13", "sk-updated-18"}
	env := []string{"HEARDLOG_SECRET_KEY=" + key, "HEARDLOG_LLM_URL=http://127.0.0.1:61999/v1", "HEARDLOG_LLM_API_KEY=" + secrets[0], "HEARDLOG_LOG_LEVEL=debug",
		"HEARDLOG_WEBHOOK_URL=http://127.0.0.1:61999/", "HEARDLOG_WEBHOOK_SECRET=" + secrets[3], "HEARDLOG_CREDENTIALS=p=id:" + secrets[5]}
	s := start(t, env...)
	auth := []string{"Authorization", "Bearer " + secrets[5]}
	id := s.join(t, "secret", object{"channel": "c", "token": secrets[4],
		"llm": object{"url": "http://127.0.0.1:61999/v1/chat/completions", "api_key": secrets[1], "headers": object{"X-Key": secrets[2]}, "greeting_message": "Hello"},
		"tts": object{"vendor": "v", "params": object{"key": secrets[6]}}}, auth...)
	s.call(t, 502, "POST", "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": "Zwiebelkuchenfest"}}}, nil, auth...)
	s.call(t, 200, "POST", "/v1/agents/"+id+"/update", object{"token": secrets[7]}, nil, auth...)
	s.call(t, 401, "GET", "/v1/agents/"+id, nil, nil, "Authorization", "Bearer "+secrets[5]+"x")
	for _, path := range []string{"", "/history", "/messages", "/turns"} {
		_, body, err := s.try(t.Context(), "GET", "/v1/agents/"+id+path, nil, auth...)
		if err != nil {
			t.Fatal(err)
		}
		noSecrets(t, "the answer of "+path, body, secrets)
	}
	// Files while the server runs, after a crash, and after an orderly end.
	look := func() (all []byte) {
		files, err := filepath.Glob(filepath.Dir(s.store) + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			noSecrets(t, f, b, append(secrets, key))
			all = append(all, b...)
		}
		return all
	}
	if !bytes.Contains(look(), []byte("Zwiebelkuchenfest")) {
		t.Error("the files that were searched do not hold the memory")
	}
	s.kill()
	noSecrets(t, "the log", []byte(s.stderr.String()+s.stdout.String()), append(secrets, key))

	for _, wrong := range []string{"", "another key of the store"} {
		got := refuses(t, append(env[1:], "HEARDLOG_STORE=sqlite:"+s.store, "HEARDLOG_SECRET_KEY="+wrong)...)
		if !strings.Contains(got, "key") {
			t.Errorf("key %q: %s", wrong, got)
		}
		noSecrets(t, "the refusal", []byte(got), append(secrets, key))
	}
	again := start(t, append(env, "HEARDLOG_STORE=sqlite:"+s.store)...)
	if got := again.statusOf(t, id, auth...); got != "RUNNING" {
		t.Errorf("with the right key: %s", got)
	}
	again.signal(t, syscall.SIGTERM)
	again.wait(t)
	look()
}

func noSecrets(t *testing.T, where string, b []byte, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if i := bytes.Index(b, []byte(secret)); i >= 0 {
			t.Errorf("%s holds %q: …%q…", where, secret, b[max(0, i-80):min(len(b), i+80)])
		}
	}
}

// TestVersion checks that a binary names its version, commit and Go version.
func TestVersion(t *testing.T) {
	t.Parallel()
	p := run(t, program(t, "api"), []string{"--version"})
	code := p.wait(t)
	want := regexp.MustCompile(`^heardlog \S+ \(commit (unknown|[0-9a-f]{40}(, modified)?); go1\S+ \w+/\w+\)\n$`)
	if got := p.stdout.String(); code != 0 || !want.MatchString(got) {
		t.Errorf("code %d, printed %q", code, got)
	}
}
