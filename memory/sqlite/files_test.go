package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite"
	"github.com/heardlog/heardlog/webhook"
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

// oldFile makes a file of an earlier schema, with rows of its time.
func oldFile(t *testing.T, version int, rows string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "old.db")
	steps, err := filepath.Glob("schema/*.sql")
	if err != nil || len(steps) < version {
		t.Fatalf("%d steps of the schema: %v", len(steps), err)
	}
	for _, step := range steps[:version] {
		text, err := os.ReadFile(step)
		if err != nil {
			t.Fatal(err)
		}
		rawSQL(t, path, string(text))
	}
	rawSQL(t, path, fmt.Sprintf("PRAGMA application_id = 0x68656172; PRAGMA user_version = %d; %s", version, rows))
	return path
}

// TestSchemaOne: a file of the first schema is brought up to this one, and keeps what it holds.
func TestSchemaOne(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{Path: oldFile(t, 1, `INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash)
		VALUES ('p', 'a1', 'old', 'room', 2, 1, 0, '', 1, '', ''); INSERT INTO agent_settings VALUES (1, x'00027b7d')`)})
	if h, err := s.Head(t.Context(), "p", "a1"); err != nil || h.Agent.Name != "old" || len(h.Agent.Settings.Call.Keys) != 0 {
		t.Errorf("%+v, %v", h.Agent, err)
	}
	if id, err := s.ByKey(t.Context(), "p", "agora.channel:room"); err != nil || id != "a1" {
		t.Errorf("by its channel: %q, %v", id, err)
	}
	fresh := memory.Agent{ID: "a2", Project: "p", Name: "new", Status: memory.Running, StartMS: 1, Rev: 1}
	fresh.Settings.Call.Keys = []string{"k"}
	if _, _, err := s.Create(t.Context(), fresh, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	if id, err := s.ByKey(t.Context(), "p", "k"); err != nil || id != "a2" {
		t.Errorf("%q, %v", id, err)
	}
}

// TestSchemaTwo: endpoints with a list of numbers and of secrets become what they are now; deliveries get the times that lists go by.
func TestSchemaTwo(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{Path: oldFile(t, 2, `
		INSERT INTO endpoint VALUES (1, 'e', 'p', '{"url":"https://e.example","types":[102,103],"agora":true}',
			CAST(x'00' || '[{"value":"whsec_x","not_after":"2026-06-01T00:00:00Z"}]' AS BLOB));
		INSERT INTO endpoint VALUES (2, 'f', 'p', '{"url":"https://f.example"}', CAST(x'00' || '[]' AS BLOB));
		INSERT INTO event VALUES (1, 'ev1', 1, 'a1', 'p', 102, 10, '{}');
		INSERT INTO delivery VALUES (1, 1, 1, 0, 1, 90, 1, 0, ''), (2, 1, 2, 1, 1, 0, 1, 0, ''), (3, 1, 2, 2, 1, 0, 1, 0, 'why');
		INSERT INTO attempt VALUES (2, 1, 1, 50, 5, 200, '', '', NULL, 0)`)})
	got, err := s.Endpoint(t.Context(), "p", "e")
	if err != nil {
		t.Fatal(err)
	}
	want := webhook.Endpoint{
		ID: "e", Project: "p", URL: "https://e.example", Events: []string{"102", "103"}, Agora: true,
		Secrets: []webhook.SigningSecret{{Value: "whsec_x", NotAfter: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("endpoint (-want +got):\n%s", d)
	}
	page, err := s.Deliveries(t.Context(), webhook.DeliveryQuery{Project: "p", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	record := webhook.Record{EventID: "ev1", Type: 102, Project: "p", AgentID: "a1", EndpointID: "f", Attempt: 1, EventMS: 10, CreatedMS: 10, Size: 2}
	one, two, three := record, record, record
	one.ID, one.EndpointID, one.State, one.DueMS = 1, "e", webhook.Pending, 90
	two.ID, two.State, two.DoneMS, two.LastStatus = 2, webhook.Delivered, 55, 200
	three.ID, three.State, three.DoneMS, three.Reason = 3, webhook.Dead, 10, "why"
	if d := cmp.Diff([]webhook.Record{three, two, one}, page.Deliveries); d != "" {
		t.Errorf("deliveries (-want +got):\n%s", d)
	}
	list, err := s.Claim(t.Context(), webhook.Claim{NowMS: 100, Limit: 10, Lease: time.Minute})
	if err != nil || len(list) != 1 || list[0].ID != 1 || list[0].Attempt != 2 {
		t.Errorf("claimed %+v, %v", list, err)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	newer := filepath.Join(t.TempDir(), "newer.db")
	open(t, sqlite.Options{Path: newer}).Close()
	rawSQL(t, newer, "PRAGMA user_version = 999")
	if msg := refused(t, sqlite.Options{Path: newer}); !strings.Contains(msg, "schema 999") || !strings.Contains(msg, "newer version") {
		t.Errorf("newer schema: %s", msg)
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

// TestSealedBlobsStayInPlace moves one agent's sealed settings to another, as somebody with the file but not the key could.
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
	s := open(t, sqlite.Options{Path: path, MaxPages: 60})
	ctx := t.Context()
	a := agent("p", 1)
	if _, _, err := s.Create(ctx, a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("many words ", 2000)
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
	check := func(s *sqlite.Store, want int) {
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
		a := tx.Head().Agent
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
