package data_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// spoken is what an agent of these tests has said.
const spoken = "Xq7canary9Zk on the line"

// openTexts opens a store that seals texts.
func openTexts(t *testing.T, url string, key []byte) memory.Ledger {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return must(store.OpenSQLite(t.Context(), sqlite.Options{Path: path, DataKey: key}, engine.Options{}))
	}
	return must(store.OpenPostgres(t.Context(), postgres.Options{URL: url, DataKey: key}, engine.Options{}))
}

// said returns what the agent in a store has said.
func said(t *testing.T, url string, key []byte) string {
	t.Helper()
	s := openTexts(t, url, key)
	defer s.Close()
	_, list, err := s.Recent(t.Context(), "p", "a", 10, false)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d messages, %v", len(list), err)
	}
	return list[0].Content
}

// TestDataKey: exports and backups of a store with a data key are sealed, are useless without it,
// and say so. A rotation replaces the key.
func TestDataKey(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "h.db") },
		"postgres": func(t *testing.T) string { return postgrestest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testDataKey(t, url(t))
		})
	}
}

func testDataKey(t *testing.T, url string) {
	dir := t.TempDir()
	key, next := bytes.Repeat([]byte("k"), 32), bytes.Repeat([]byte("n"), 32)
	old, fresh := base64.StdEncoding.EncodeToString(key), filepath.Join(dir, "next")
	if err := os.WriteFile(fresh, []byte(base64.StdEncoding.EncodeToString(next)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	passphrase := filepath.Join(dir, "old")
	if err := os.WriteFile(passphrase, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTexts(t, url, key)
	a := memory.Agent{ID: "a", Name: "n", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1, Settings: memory.Settings{Scope: memory.Scope{UserID: "ann"}}}
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{Append: []memory.Message{{Seq: 1, Rev: 1, Role: memory.User, Content: spoken}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HEARDLOG_STORE": url, "HEARDLOG_DATA_KEY": old}
	do := func(env map[string]string, want string, name string, args ...string) {
		t.Helper()
		_, errs, err := run(t, env, "", name, args...)
		if err != nil {
			errs += err.Error()
		}
		if !strings.Contains(errs, want) {
			t.Fatalf("%s %q: %s %v, want %q", name, args, errs, err, want)
		}
	}
	holds := func(path string, want bool) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || bytes.Contains(b, []byte("Xq7canary9Zk")) != want {
			t.Errorf("%s: the words are in it: %v, %v", path, !want, err)
		}
	}
	file, plain, backups := filepath.Join(dir, "sealed"), filepath.Join(dir, "plain"), filepath.Join(dir, "backups")
	do(env, "encrypted with HEARDLOG_DATA_KEY", "export", file)
	do(env, "WARNING", "export", "--plain", plain)
	do(env, "backed up", "backup", backups)
	holds(file, false)
	holds(plain, true)
	list, err := filepath.Glob(backups + "/*")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	holds(list[0], false)
	to := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	none := map[string]string{"HEARDLOG_STORE": url}
	do(none, "without the HEARDLOG_DATA_KEY", "export", filepath.Join(dir, "never"))
	do(map[string]string{"HEARDLOG_STORE": to("never")}, "the HEARDLOG_DATA_KEY that it was made with", "import", file)
	do(map[string]string{"HEARDLOG_STORE": to("never")}, "the HEARDLOG_DATA_KEY that it was made with", "restore", backups)
	do(map[string]string{"HEARDLOG_STORE": to("never"), "HEARDLOG_DATA_KEY": "file:" + fresh}, "another HEARDLOG_DATA_KEY", "restore", backups)
	for name, args := range map[string][]string{"import": {file}, "restore": {backups}} {
		do(map[string]string{"HEARDLOG_STORE": to(name), "HEARDLOG_DATA_KEY": old}, "1 messages", name, args...)
		if got := said(t, to(name), key); got != spoken {
			t.Errorf("%s: %q", name, got)
		}
	}
	do(env, "encrypted 0 values", "keys", "seal")
	do(none, "HEARDLOG_DATA_KEY is not set", "keys", "rotate", "--to", "file:"+fresh)
	do(env, "others can read the command line", "keys", "rotate", "--to", old)
	do(env, "wrapped 1 data keys", "keys", "rotate", "--to", "file:"+fresh)
	do(env, "not the key of this database", "keys", "rotate", "--to", "file:"+fresh)
	if got := said(t, url, next); got != spoken {
		t.Errorf("with the new key: %q", got)
	}
	do(map[string]string{"HEARDLOG_STORE": to("passphrase"), "HEARDLOG_DATA_KEY": "file:" + fresh}, "1 messages", "import", "--passphrase-file", passphrase, file)
	if got := said(t, to("passphrase"), next); got != spoken {
		t.Errorf("with the old key as a passphrase: %q", got)
	}
}
