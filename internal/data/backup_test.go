package data_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// whole is a store with what these tests put into it.
type whole interface {
	memory.Ledger
	kv.Store
	record.Store
	webhook.Store
}

var sealKey = strings.Repeat("0123456789abcdef", 4)

// openStore opens the store of a URL as a server does.
func openStore(t *testing.T, url string) whole {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return must(store.OpenSQLite(t.Context(), sqlite.Options{Path: path, SealKey: []byte(sealKey)}, engine.Options{}))
	}
	return must(store.OpenPostgres(t.Context(), postgres.Options{URL: url, SealKey: []byte(sealKey)}, engine.Options{}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// filled stores n agents, a0, a1 and so on, with messages and secrets, an endpoint and a
// conversation.
func filled(t *testing.T, url string, n int) {
	t.Helper()
	s := openStore(t, url)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://one.example/x", Events: []string{"*"}, Secrets: []webhook.SigningSecret{{ID: "s1", Value: "whsec_hidden"}}}))
	for i := range n {
		a := memory.Agent{ID: fmt.Sprint("a", i), Name: fmt.Sprint("n", i), Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
		a.Settings.LLM.APIKey = "hidden-key"
		var msgs []memory.Message
		for j := range 20 {
			msgs = append(msgs, memory.Message{Seq: int64(j + 1), Rev: 1, Role: memory.User, Content: fmt.Sprintf("message %d of %d é", j, i), TurnID: int64(j), Timestamp: int64(j + 1), Details: &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: "u"}}}})
		}
		_, _, err := s.Create(t.Context(), a, 0, memory.Change{Append: msgs, Events: []memory.Event{{ID: fmt.Sprint("ev", i), Type: 102, CreatedMS: 5, Body: []byte("{}")}}})
		check(err)
	}
	_, err := s.ChangeRecords(t.Context(), record.Space{Project: "p", Name: "fact", User: "u"}, []record.Change{{ID: "f", Body: []byte("{}")}}, record.Limit{}, nil, 1)
	check(err)
	check(kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: "c", Value: []byte(`{"messages":[]}`), ExpiresMS: kv.Never}, kv.Limit{}, 0))
	check(s.Close())
}

// exported returns the export of a store.
func exported(t *testing.T, url string) string {
	t.Helper()
	out, errs, err := run(t, settingsOf(url), "", "export", "-secrets")
	if err != nil {
		t.Fatalf("export: %v\n%s", err, errs)
	}
	return out
}

func settingsOf(url string) map[string]string {
	return map[string]string{"HEARDLOG_STORE": url, "HEARDLOG_SECRET_KEY": sealKey}
}

// bucketAt returns the URL of a prefix in an empty bucket, addressed by path, and its settings.
func bucketAt(t *testing.T) (url string, env map[string]string) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server())
	t.Cleanup(srv.Close)
	return "s3://bucket/some/prefix?region=r-1&path-style=true&endpoint=" + srv.URL, map[string]string{"AWS_ACCESS_KEY_ID": "hidden-id", "AWS_SECRET_ACCESS_KEY": "hidden-secret"}
}

func sqliteURL(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "h.db") }

// with adds settings.
func with(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// TestBackup: a backup of any store, in a folder or a bucket, in clear or encrypted, restores to
// the same data in any kind of store. An encrypted backup shows nothing, cannot be read without the
// key, and nothing is overwritten without a flag.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	identity := must(age.GenerateX25519Identity())
	keyFile, wrong, pass := filepath.Join(dir, "key"), filepath.Join(dir, "wrong"), filepath.Join(dir, "pass")
	for name, text := range map[string]string{keyFile: identity.String(), wrong: must(age.GenerateX25519Identity()).String(), pass: "long enough a passphrase\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, to := range []string{"folder", "bucket"} {
			for how, flags := range map[string]struct{ write, read []string }{
				"plain": {[]string{"-plain"}, nil}, "recipient": {[]string{"-recipient", identity.Recipient().String()}, []string{"-identity", keyFile}},
				"passphrase": {[]string{"-passphrase-file", pass}, []string{"-passphrase-file", pass}},
			} {
				// A passphrase costs seconds.
				if how == "passphrase" && (kind == "postgres" || to == "bucket") {
					continue
				}
				t.Run(kind+" "+to+" "+how, func(t *testing.T) {
					t.Parallel()
					urls := map[string]string{"sqlite": sqliteURL(t), "postgres": postgrestest.URL(t)}
					url, other := urls[kind], urls[map[string]string{"sqlite": "postgres", "postgres": "sqlite"}[kind]]
					filled(t, url, 3)
					want := exported(t, url)
					at, env := filepath.Join(t.TempDir(), "made", "here"), map[string]string{}
					if to == "bucket" {
						at, env = bucketAt(t)
					}
					out, errs, err := run(t, with(settingsOf(url), env), "", "backup", append(flags.write, at)...)
					if err != nil {
						t.Fatalf("backup: %v\n%s", err, errs)
					}
					if m := regexp.MustCompile(`/heardlog-\d{8}T\d{6}\.\d{3}Z\.jsonl\.zst(\.age)? [\d.]+ KiB sha256:[0-9a-f]{64}\n$`).FindStringSubmatch(out); m == nil || (m[1] != "") != (how != "plain") {
						t.Errorf("stdout %q", out)
					}
					if how != "plain" {
						_, _, err := run(t, with(settingsOf(other), env), "", "restore", at)
						if err == nil || !strings.Contains(err.Error(), "it is encrypted") {
							t.Errorf("without a key: %v", err)
						}
						if _, _, err = run(t, with(settingsOf(other), env), "", "restore", "-identity", wrong, at); err == nil {
							t.Error("restored with another key")
						}
					}
					for _, into := range []string{other, sqliteURL(t)} {
						_, errs, err := run(t, with(settingsOf(into), env), "", "restore", append(flags.read, at)...)
						if err != nil {
							t.Fatalf("restore into %s: %v\n%s", into, err, errs)
						}
						if got := exported(t, into); got != want {
							t.Errorf("restored into %s other bytes", into)
						}
						if out, _, err := run(t, settingsOf(into), "", "verify"); err != nil {
							t.Errorf("verify: %v\n%s", err, out)
						}
						if _, _, err := run(t, with(settingsOf(into), env), "", "restore", append(flags.read, at)...); strings.HasPrefix(into, "sqlite:") == (err == nil) {
							t.Errorf("restored again into %s: %v; a file is never overwritten, and a database that holds the same is fine", into, err)
						}
						openStore(t, into).Close() // it can be used
					}
					if all := out + errs; strings.Contains(all, "hidden") {
						t.Errorf("a secret was shown: %s", all)
					}
				})
			}
		}
	}
}

// TestBackupRefused: what would give secrets away, or cannot be, is refused by name.
func TestBackupRefused(t *testing.T) {
	t.Parallel()
	url := sqliteURL(t)
	filled(t, url, 1)
	place := t.TempDir()
	short := filepath.Join(place, "short")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no place", nil, "PLACE is required"},
		{"in clear", []string{place}, "would hold its secrets in clear"},
		{"a key that is none", []string{"-recipient", "age1x", place}, "-recipient"},
		{"a short passphrase", []string{"-passphrase-file", short, place}, "12 bytes"},
		{"both", []string{"-passphrase-file", short, "-recipient", "age1x", place}, "stands alone"},
		{"a label", []string{"-label", "a/b", place}, "-label"},
		{"keep", []string{"-keep", "-1", place}, "-keep"},
		{"no keys", []string{"-plain", "s3://b/x"}, "AWS_ACCESS_KEY_ID"},
		{"another scheme", []string{"-plain", "ftp://b/x"}, "unsupported scheme ftp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := run(t, settingsOf(url), "", "backup", tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if _, errs, err := run(t, settingsOf(url), "", "backup", "-no-secrets", filepath.Join(place, "bare")); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	into := sqliteURL(t)
	if _, errs, err := run(t, settingsOf(into), "", "restore", filepath.Join(place, "bare")); err != nil || !strings.Contains(errs, "no secrets") {
		t.Fatalf("%v\n%s", err, errs)
	}
	if strings.Contains(exported(t, into), "hidden") {
		t.Error("secrets are in a backup without")
	}
}

// TestKeep: the newest backups stay, and all files that are no backups of this label. Parts of an
// interrupted backup are removed after a day.
func TestKeep(t *testing.T) {
	t.Parallel()
	url, dir := sqliteURL(t), t.TempDir()
	filled(t, url, 1)
	names := map[string]bool{ // whether it stays
		"heardlog-20200101T000000.000Z.jsonl.zst": false, "heardlog-20200102T000000.000Z.jsonl.zst.age": false, "heardlog-20200103T000000.000Z.jsonl.zst": true,
		"heardlog-20200101T000000.000Z.jsonl.zst.bak": true, "heardlog-eu-20200101T000000.000Z.jsonl.zst": true, "heardlog-notes.txt": true, "other": true,
		"heardlog-20200101T000000.000Z.jsonl.zst.part-123": false, "heardlog-20200101T000000.000Z.jsonl.zst.part-456": true, "heardlog-eu-20200101T000000.000Z.jsonl.zst.part-1": true,
	}
	for name := range names {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if old := time.Now().Add(-25 * time.Hour); !strings.HasSuffix(name, "456") {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, errs, err := run(t, settingsOf(url), "", "backup", "-plain", "-keep", "2", dir); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	for name, stays := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s is there: %t, want %t", name, err == nil, stays)
		}
	}
	made, _ := filepath.Glob(filepath.Join(dir, "heardlog-202[1-9]*.zst"))
	if len(made) != 1 {
		t.Errorf("made %q", made)
	}
	// A clock that went back leaves newer names. The one that was just made stays all the same.
	future := filepath.Join(dir, "heardlog-29990101T000000.000Z.jsonl.zst")
	if err := os.WriteFile(future, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, settingsOf(url), "", "backup", "-plain", "-keep", "1", dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(strings.Fields(out)[0]); err != nil {
		t.Errorf("the new one is gone: %v", err)
	}

	place, env := bucketAt(t)
	for range 3 {
		if _, errs, err := run(t, with(settingsOf(url), env), "", "backup", "-plain", "-keep", "2", place); err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
	}
	_, errs, err := run(t, with(settingsOf(url), env), "", "backup", "-plain", "-keep", "1", place)
	if err != nil || strings.Count(errs, "removed heardlog-") != 2 {
		t.Errorf("error %v\n%s", err, errs)
	}
}

// TestRestoreDamaged: a backup that was changed anywhere is refused, and nothing is written.
func TestRestoreDamaged(t *testing.T) {
	t.Parallel()
	url, dir := sqliteURL(t), t.TempDir()
	filled(t, url, 20)
	identity, key := must(age.GenerateX25519Identity()), filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(identity.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, how := range [][]string{{"-plain"}, {"-recipient", identity.Recipient().String()}} {
		place := filepath.Join(t.TempDir(), "x")
		out, errs, err := run(t, settingsOf(url), "", "backup", append(how, place)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		good := must(os.ReadFile(strings.Fields(out)[0]))
		args := []string{filepath.Join(dir, "bad")}
		if how[0] != "-plain" {
			args = []string{"-identity", key, args[0]}
		}
		for _, at := range []int{0, 10, len(good) / 2, len(good) - 3} {
			for name, bad := range map[string][]byte{
				"a bit":  func() []byte { b := bytes.Clone(good); b[at] ^= 4; return b }(),
				"cut":    good[:at],
				"longer": append(bytes.Clone(good), "more"...),
			} {
				if err := os.WriteFile(filepath.Join(dir, "bad"), bad, 0o600); err != nil {
					t.Fatal(err)
				}
				into := sqliteURL(t)
				if _, _, err := run(t, settingsOf(into), "", "restore", args...); err == nil {
					t.Errorf("%s at %d was restored", name, at)
				}
				if list, _ := filepath.Glob(strings.TrimPrefix(into, "sqlite:") + "*"); len(list) > 0 {
					t.Errorf("%s at %d left %q", name, at, list)
				}
			}
		}
	}
}

// TestRestoreOverwrites: --overwrite replaces a file and its log, unless it is in use. A database
// is never replaced.
func TestRestoreOverwrites(t *testing.T) {
	t.Parallel()
	url, place := sqliteURL(t), t.TempDir()
	filled(t, url, 2)
	want := exported(t, url)
	if _, errs, err := run(t, settingsOf(url), "", "backup", "-plain", place); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	into := sqliteURL(t)
	filled(t, into, 5)
	before := exported(t, into)
	s := openStore(t, into)
	for _, args := range [][]string{{place}, {"-overwrite", place}} {
		if _, _, err := run(t, settingsOf(into), "", "restore", args...); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("%q under a server: %v", args, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, settingsOf(into), "", "restore", place); err == nil || !strings.Contains(err.Error(), "-overwrite") {
		t.Errorf("unasked: %v", err)
	}
	if exported(t, into) != before {
		t.Error("a refused restore has changed something")
	}
	if _, errs, err := run(t, settingsOf(into), "", "restore", "-overwrite", place); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if exported(t, into) != want {
		t.Error("other bytes")
	}
	if list, _ := filepath.Glob(strings.TrimPrefix(into, "sqlite:") + ".new*"); len(list) > 0 {
		t.Errorf("left %q", list)
	}
	// What is no database is not silently taken away.
	odd := sqliteURL(t)
	if err := os.WriteFile(strings.TrimPrefix(odd, "sqlite:"), bytes.Repeat([]byte("no database\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, settingsOf(odd), "", "restore", "-overwrite", place); err == nil || !strings.Contains(err.Error(), "move") {
		t.Errorf("over something else: %v", err)
	}
	base := postgrestest.URL(t)
	filled(t, base, 1)
	if _, _, err := run(t, settingsOf(base), "", "restore", "-overwrite", place); err == nil || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("a database: %v", err)
	}
	if _, _, err := run(t, settingsOf(base), "", "restore", place); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a database: %v", err)
	}
}

// TestCompact: a file gets smaller after much was erased, and keeps its data, unless a server uses
// it. A database is vacuumed beside servers.
func TestCompact(t *testing.T) {
	t.Parallel()
	for _, url := range []string{sqliteURL(t), postgrestest.URL(t)} {
		filled(t, url, 100)
		s := openStore(t, url)
		for i := range 95 {
			if err := s.Erase(t.Context(), "p", fmt.Sprint("a", i)); err != nil {
				t.Fatal(err)
			}
		}
		path, file := strings.CutPrefix(url, "sqlite:")
		if file {
			if _, _, err := run(t, settingsOf(url), "", "compact"); err == nil || !strings.Contains(err.Error(), "in use") {
				t.Errorf("under a server: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want := exported(t, url)
		size := func() int64 {
			if !file {
				return 0
			}
			return must(os.Stat(path)).Size()
		}
		before := size()
		out, errs, err := run(t, settingsOf(url), "", "compact")
		if err != nil || !strings.Contains(out, " before, ") {
			t.Fatalf("%v\n%s%s", err, out, errs)
		}
		if after := size(); file && after > before/2 {
			t.Errorf("%d bytes before, %d now", before, after)
		}
		if exported(t, url) != want {
			t.Error("it holds something else now")
		}
		if out, _, err := run(t, settingsOf(url), "", "verify"); err != nil {
			t.Errorf("verify: %v\n%s", err, out)
		}
		if file {
			if list, _ := filepath.Glob(path + ".new*"); len(list) > 0 || must(os.Stat(path)).Mode().Perm() != 0o600 {
				t.Errorf("left %q, or a mode that others may read", list)
			}
			s = openStore(t, url)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := run(t, settingsOf(sqliteURL(t)), "", "compact"); err == nil || errors.Is(err, data.ErrFound) {
		t.Errorf("of nothing: %v", err)
	}
}
