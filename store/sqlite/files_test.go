package sqlite_test

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/sqlite"
)

// rawSQL runs SQL on a closed store's file, as an operator's shell would.
func rawSQL(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// refused opens a file that must not open and gives the error's text.
func refused(t *testing.T, o sqlite.Options) string {
	t.Helper()
	s, err := sqlite.Open(t.Context(), o)
	if err == nil {
		s.Close()
		t.Fatal("it opened")
	}
	return err.Error()
}

func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	newer := filepath.Join(t.TempDir(), "newer.db")
	open(t, sqlite.Options{Path: newer}).Close()
	rawSQL(t, newer, "PRAGMA user_version = 999")
	if msg := refused(t, sqlite.Options{Path: newer}); !strings.Contains(msg, "schema 999") || !strings.Contains(msg, "newer version") {
		t.Errorf("newer schema: %s", msg)
	}
	old := filepath.Join(t.TempDir(), "old.db")
	open(t, sqlite.Options{Path: old}).Close()
	rawSQL(t, old, "DELETE FROM meta WHERE key = 'released'; PRAGMA user_version = 12")
	if msg := refused(t, sqlite.Options{Path: old}); !strings.Contains(msg, "schema 12") || !strings.Contains(msg, "before the first release") || !strings.Contains(msg, "export it") {
		t.Errorf("a build from before the first release: %s", msg)
	}
	if r, err := sqlite.OpenReader(sqlite.Options{Path: old}); err == nil || !strings.Contains(err.Error(), "before the first release") {
		t.Errorf("read: %v, %v", r, err)
	}
	other := filepath.Join(t.TempDir(), "other.db")
	rawSQL(t, other, "CREATE TABLE accounts (x)")
	if msg := refused(t, sqlite.Options{Path: other}); !strings.Contains(msg, "another program") {
		t.Errorf("another program's database: %s", msg)
	}
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if msg := refused(t, sqlite.Options{Path: text}); !strings.Contains(msg, "no database") {
		t.Errorf("no database: %s", msg)
	}
	if msg := refused(t, sqlite.Options{Path: t.TempDir()}); msg == "" {
		t.Error("a folder opened")
	}
	if msg := refused(t, sqlite.Options{}); !strings.Contains(msg, "path") {
		t.Errorf("no path: %s", msg)
	}
}

// secrets are what fill stores that must not be readable in a sealed file.
func secretsInFiles(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			continue
		}
		for _, secret := range []string{"sk-very-secret", "hk-very-secret", "tts-very-secret", "whsec_plain"} {
			if bytes.Contains(b, []byte(secret)) {
				found = append(found, secret+" in "+suffix)
			}
		}
	}
	return found
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	key := sqlite.Options{Path: path, SealKey: []byte("the right key")}
	s := open(t, key)
	fill(t, s)
	want := everything(t, s)
	if found := secretsInFiles(t, path); len(found) > 0 {
		t.Errorf("while open: %v", found)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := secretsInFiles(t, path); len(found) > 0 {
		t.Errorf("when closed: %v", found)
	}
	if msg := refused(t, sqlite.Options{Path: path}); !strings.Contains(msg, "without the secret key") {
		t.Errorf("without key: %s", msg)
	}
	if msg := refused(t, sqlite.Options{Path: path, SealKey: []byte("the wrong key")}); !strings.Contains(msg, "is not the one") {
		t.Errorf("wrong key: %s", msg)
	}
	if d := cmp.Diff(want, everything(t, open(t, key))); d != "" {
		t.Errorf("with the key again (-want +got):\n%s", d)
	}
}

func TestPlainFileIsSealedLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "p.db")
	s := open(t, sqlite.Options{Path: path})
	fill(t, s)
	want := everything(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := secretsInFiles(t, path); len(found) != 4 {
		t.Fatalf("the search itself finds only %v in a plain file", found)
	}
	s = open(t, sqlite.Options{Path: path, SealKey: []byte("key")})
	if d := cmp.Diff(want, everything(t, s)); d != "" {
		t.Errorf("after sealing (-want +got):\n%s", d)
	}
	if found := secretsInFiles(t, path); len(found) > 0 {
		t.Errorf("while open: %v", found)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if found := secretsInFiles(t, path); len(found) > 0 {
		t.Errorf("when closed: %v", found)
	}
	if msg := refused(t, sqlite.Options{Path: path}); !strings.Contains(msg, "without the secret key") {
		t.Errorf("without key: %s", msg)
	}
}

// TestSealedBlobsStayInPlace moves one agent's sealed settings to another, as somebody with the
// file but not the key could.
func TestSealedBlobsStayInPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	o := sqlite.Options{Path: path, SealKey: []byte("key")}
	s := open(t, o)
	fill(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rawSQL(t, path, "UPDATE agent_settings SET body = (SELECT body FROM agent_settings WHERE agent_no = 2) WHERE agent_no = 1")
	s = open(t, o)
	if _, err := s.Head(t.Context(), "p", agent("p", 0).ID); fault.CodeOf(err) != fault.Internal {
		t.Errorf("moved settings were read: %v", err)
	}
	if _, err := s.Head(t.Context(), "p", agent("p", 1).ID); err != nil {
		t.Errorf("their neighbour: %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.db")
	s := open(t, sqlite.Options{Path: path, MaxPages: 102})
	ctx := t.Context()
	a := agent("p", 1)
	if _, _, err := s.Create(ctx, a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	big := noise(22_000)
	stored := 0
	var err error
	for err == nil && stored < 1000 {
		if err = s.Update(ctx, "p", a.ID, appendOne(big)); err == nil {
			stored++
		}
	}
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("after %d messages: %v", stored, err)
	}
	check := func(s *store.SQLite, want int) {
		t.Helper()
		h, list, err := s.Recent(ctx, "p", a.ID, 1000, false)
		if err != nil || len(list) != want || h.NextSeq != int64(want+1) {
			t.Fatalf("%d messages, head at %d, want %d: %v", len(list), h.NextSeq, want, err)
		}
	}
	check(s, stored)
	// What needs no new page still goes, so the failed transaction left nothing behind.
	update := func(tx memory.AgentView) (memory.Change, error) {
		m := tx.Head().Last
		m.Rev = tx.Head().Rev + 1
		return memory.Change{Replace: []memory.Message{m}}, nil
	}
	if err := s.Update(ctx, "p", a.ID, update); err != nil {
		t.Fatalf("a change in place: %v", err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
	// Room is made by erasing.
	b := agent("p", 2)
	if _, _, err := s.Create(ctx, b, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	end := func(tx memory.AgentView) (memory.Change, error) {
		a := *tx.Head().Agent
		a.Status, a.StopMS, a.Rev = memory.Stopped, 1, tx.Head().Rev+1
		return memory.Change{Agent: &a}, nil
	}
	if err := s.Update(ctx, "p", a.ID, end); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(ctx, 1000, 10); err != nil || n != 1 {
		t.Fatalf("swept %d: %v", n, err)
	}
	for range stored / 2 {
		if err := s.Update(ctx, "p", b.ID, appendOne(big)); err != nil {
			t.Fatalf("once there is room: %v", err)
		}
	}
	a = b
	check(s, stored/2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, sqlite.Options{Path: path}), stored/2)
}
