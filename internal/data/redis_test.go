package data_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// redisFilled gives the URL of a Redis store with agents, items and a conversation, which a server goes on having.
func redisFilled(t *testing.T) string {
	t.Helper()
	url := redistest.URL(t)
	s := must(redis.Open(t.Context(), redis.Options{URL: url, SealKey: []byte(sealKey)}))
	t.Cleanup(func() { _ = s.Close() })
	for i := range 5 {
		a := memory.Agent{ID: fmt.Sprint("a", i), Name: fmt.Sprint("n", i), Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
		a.Settings.LLM.APIKey = "hidden-key"
		var msgs []memory.Message
		for j := range 20 {
			msgs = append(msgs, memory.Message{Seq: int64(j + 1), Rev: 1, Role: memory.User, Content: fmt.Sprintf("message %d of %d é", j, i), TurnID: int64(j), Timestamp: int64(j + 1), Rare: &memory.Rare{Scope: memory.Scope{UserID: "u"}}})
		}
		if _, _, err := s.Create(t.Context(), a, 0, memory.Change{Append: msgs}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveConversation(t.Context(), "only-saved", "c", []byte(`{"messages":[]}`), 0); err != nil {
		t.Fatal(err)
	}
	return url
}

// TestRedis: what only reads works on a Redis store, beside its server, and leaves it as it is; what it holds can be moved into the stores that last. What writes is refused by name before anything is touched.
func TestRedis(t *testing.T) {
	t.Parallel()
	from := redisFilled(t)
	base, _, _ := strings.Cut(from, "?")
	prefix := from[strings.Index(from, "prefix=")+len("prefix="):] + ":"
	m := settingsOf(from)
	before := len(redistest.Keys(t, base, prefix))
	want := exported(t, from)
	if !strings.Contains(want, `"only-saved"`) || !strings.Contains(want, "hidden-key") {
		t.Errorf("the export lacks something:\n%s", want)
	}
	if out, _, err := run(t, m, "", "verify"); err != nil || !strings.Contains(out, "5 agents with 100 messages") {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, _, err := run(t, m, "", "doctor", "-offline"); err != nil || !strings.Contains(out, "answers: ") || !strings.Contains(out, "Redis server") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	// Out of it: migrated, and by way of a file and of a backup.
	to, spool := sqliteURL(t), t.TempDir()
	if _, errs, err := run(t, m, "", "migrate", "-to", to, "-spool", spool); err != nil || !strings.Contains(errs, "5 agents with 100 messages") {
		t.Fatalf("migrate: %v\n%s", err, errs)
	}
	if exported(t, to) != want {
		t.Error("migrated: other bytes")
	}
	file := filepath.Join(t.TempDir(), "all.jsonl")
	if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	imported := sqliteURL(t)
	if _, errs, err := run(t, settingsOf(imported), "", "import", file); err != nil || exported(t, imported) != want {
		t.Errorf("import: %v\n%s", err, errs)
	}
	folder, restored := t.TempDir(), sqliteURL(t)
	if _, errs, err := run(t, m, "", "backup", "-plain", folder); err != nil {
		t.Fatalf("backup: %v\n%s", err, errs)
	}
	if _, errs, err := run(t, settingsOf(restored), "", "restore", folder); err != nil || exported(t, restored) != want {
		t.Errorf("restore: %v\n%s", err, errs)
	}
	empty := redistest.Prefix(t, base)
	for _, tt := range []struct {
		name, store string
		args        []string
		want        string
	}{
		{"import", from, []string{file}, "import, migrate and restore write to"},
		{"migrate", to, []string{"-to", empty, "-spool", spool}, "-to: a Redis store"},
		{"migrate", to, []string{"-to", empty, "-spool", spool, "-into-existing"}, "-to: a Redis store"},
		{"restore", from, []string{folder}, "import, migrate and restore write to"},
		{"compact", from, nil, "no file to make smaller"},
		{"erase", from, []string{"-project", "p", "-agent", "a1"}, "DELETE /v1/agents/{id}"},
		{"erase", from, []string{"-project", "p", "-whole"}, "DELETE /v1/agents/{id}"},
		{"export", empty, nil, "there is no memory under the prefix"},
		{"verify", empty, nil, "there is no memory under the prefix"},
		{"export", "redis://:very-hidden@127.0.0.1:1/0", nil, "cannot do this now"},
	} {
		_, errs, err := run(t, settingsOf(tt.store), "", tt.name, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error()+errs, "very-hidden") {
			t.Errorf("%s %q on %s: %v\n%s", tt.name, tt.args, tt.store, err, errs)
		}
	}
	if list, _ := filepath.Glob(spool + "/*"); len(list) > 0 {
		t.Errorf("left %q", list)
	}
	if got := redistest.Keys(t, base, prefix); len(got) != before {
		t.Errorf("%d keys, there were %d: %q", len(got), before, got)
	}
	if exported(t, from) != want {
		t.Error("the store has changed")
	}
}
