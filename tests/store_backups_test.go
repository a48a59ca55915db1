package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// backupModel writes a memory model of the operator with backups.
func backupModel(t *testing.T, destination string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.yaml")
	text := "apiVersion: ossa/v0.3.2\nkind: MemoryModel\nshort_term: {enabled: true}\nlong_term: {enabled: false}\nlifecycle: {backup: {retention_count: 1, destination: " + destination + "}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "HEARDLOG_MEMORY_MODEL=" + path
}

// backedUp waits for a number of backups by result.
func (s *server) backedUp(result string, n int) {
	s.t.Helper()
	want := fmt.Sprintf(`heardlog_backups_total{result=%q} %d`, result, n)
	for end := time.Now().Add(patience); !strings.Contains(string(s.get("/metrics").body), want); {
		if time.Now().After(end) {
			s.t.Fatalf("there is no %s", want)
		}
	}
}

// TestScheduledBackup: a server makes the backup of its operator's memory model at start, unless
// there is a recent one, and removes older ones. One that fails removes nothing.
func TestScheduledBackup(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	old := filepath.Join(folder, "heardlog-20200101T000000.000Z.jsonl.zst")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := backupModel(t, folder)
	s := start(t, model)
	s.backedUp("error", 1)
	// It is logged after it is counted.
	for end := time.Now().Add(patience); !strings.Contains(s.log.String(), "needs HEARDLOG_SECRET_KEY"); s.get("/healthz") {
		if time.Now().After(end) {
			t.Fatal("the log does not say why there is no backup")
		}
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("a backup that failed has removed an older one: %v", err)
	}
	s = start(t, model, "HEARDLOG_SECRET_KEY=a key that is long enough")
	s.backedUp("ok", 1)
	list, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(list) != 1 || !strings.HasSuffix(list[0], ".jsonl.zst.age") {
		t.Errorf("%v %v", list, err)
	}
	s = s.again()
	s.get("/healthz").is(http.StatusOK, nil)
	s.stop()
	if again, _ := filepath.Glob(filepath.Join(folder, "*")); len(again) != 1 || again[0] != list[0] {
		t.Errorf("after a restart there are %v", again)
	}
}
