package data_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/cli"
	"github.com/heardlog/heardlog/internal/data"
)

// command runs a subcommand.
func command(ctx context.Context, e data.Env, name string, args []string) error {
	return cli.Run(ctx, &data.Commands{}, append([]string{name}, args...), "", e.Stdout, nil, e)
}

// run runs a subcommand with settings and returns its output.
func run(t *testing.T, settings map[string]string, stdin string, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	e, errs := env(settings, stdin)
	var out bytes.Buffer
	e.Stdout = &out
	err = command(t.Context(), e, name, args)
	return out.String(), errs.String(), err
}

// env returns the environment of a subcommand and the buffer of its stderr.
func env(settings map[string]string, stdin string) (data.Env, *bytes.Buffer) {
	errs := &bytes.Buffer{}
	e := data.Env{Getenv: func(name string) string { return settings[name] }, Stdin: strings.NewReader(stdin), Stdout: io.Discard, Stderr: errs}
	for name := range settings {
		e.Environ = append(e.Environ, name+"="+settings[name])
	}
	return e, errs
}

// TestDoctor: everything that a server needs is checked, problems are reported with advice, and no
// secret is shown.
func TestDoctor(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead || r.Header.Get("Authorization") != "" {
			t.Errorf("%s with authorization %q, want a HEAD without any", r.Method, r.Header.Get("Authorization"))
		}
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(receiver.Close)
	const secret = "very-hidden-0123456789"
	for _, tt := range []struct {
		name string
		edit func(map[string]string)
		want []string
		fail bool
	}{
		{"all well", func(map[string]string) {}, []string{"ok   settings all can be read", "is not there yet", "can be written", "free", "warn clock    ours is", "status 401"}, false},
		{"a setting that cannot be read", func(m map[string]string) { m["HEARDLOG_IDLE_TIMEOUT"] = "soon" }, []string{"FAIL settings HEARDLOG_IDLE_TIMEOUT"}, true},
		{"a name that is none", func(m map[string]string) { m["HEARDLOG_STORRE"] = secret }, []string{"warn settings HEARDLOG_STORRE is not a setting"}, false},
		{"nobody there", func(m map[string]string) { m["HEARDLOG_LLM_URL"] = "http://127.0.0.1:1024/" + secret }, []string{"FAIL upstream http://127.0.0.1:1024 cannot be reached"}, true},
		{"an address that is not allowed", func(m map[string]string) { m["HEARDLOG_LLM_URL"] = "http://10.1.2.3/v1" }, []string{"FAIL upstream", "HEARDLOG_OUTBOUND_ALLOW"}, true},
		{"a folder that cannot be", func(m map[string]string) { m["HEARDLOG_STORE"] = "sqlite:/proc/self/none/h.db" }, []string{"FAIL store"}, true},
		{"no database", func(m map[string]string) {
			m["HEARDLOG_STORE"] = "postgres://u:" + secret + "@127.0.0.1:1024/d"
		}, []string{"FAIL store    postgres://127.0.0.1:1024/d: it cannot be reached: nobody listens there"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := map[string]string{
				"HEARDLOG_STORE": "sqlite:" + filepath.Join(t.TempDir(), "h.db"), "HEARDLOG_LLM_URL": receiver.URL + "/" + secret, "HEARDLOG_LLM_API_KEY": secret,
				"HEARDLOG_CREDENTIALS": "p=id:" + secret, "HEARDLOG_SECRET_KEY": strings.Repeat("0123456789abcdef", 4), "HEARDLOG_OUTBOUND_ALLOW": "127.0.0.0/8",
			}
			tt.edit(m)
			out, errs, err := run(t, m, "", "doctor")
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
			if errors.Is(err, data.ErrFound) != tt.fail || err != nil && !tt.fail {
				t.Errorf("error %v, want one: %t\n%s", err, tt.fail, out)
			}
			if all := out + errs; strings.Contains(all, secret) || strings.Contains(all, "0123456789abcdef") {
				t.Errorf("a secret was shown:\n%s", all)
			}
		})
	}
}

// TestDoctorDamage: a message that was changed on disk is a failure, and the advice names restore.
func TestDoctorDamage(t *testing.T) {
	t.Parallel()
	url := sqliteURL(t)
	filled(t, url, 1)
	path := strings.TrimPrefix(url, "sqlite:")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	err = db.QueryRowContext(t.Context(), "SELECT body FROM message WHERE seq = 3 LIMIT 1").Scan(&body)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, body)
	if at < 0 {
		t.Fatal("no message is in the file")
	}
	b[at+len(body)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, settingsOf(url), "", "doctor", "--offline")
	if !errors.Is(err, data.ErrFound) || !strings.Contains(out, "the file is damaged: message") || !strings.Contains(out, "heardlog restore --overwrite") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	if out, _, err := run(t, settingsOf(url), "", "verify"); !errors.Is(err, data.ErrFound) {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
