package tests

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// before creates a store with agents that joined some time ago, each with one message, and returns
// the setting for it.
func before(t *testing.T, ages map[string]time.Duration, status memory.Status) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "old.db")
	store, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, age := range ages {
		at := time.Now().Add(-age).UnixMilli()
		a := memory.Agent{
			ID: name, Project: "default", Name: name, Status: status, StartMS: at, Rev: 1,
			Settings: memory.Settings{LLM: memory.LLMSettings{MaxHistory: 32}}, Properties: []byte("{}"),
		}
		if status.Ended() {
			a.StopMS, a.Message = at+1000, memory.EndOK
		}
		m := memory.Message{Seq: 1, Rev: 1, Role: memory.User, Content: "from " + name, Source: memory.SourceASR, Timestamp: at, TurnHasUser: true}
		if _, _, err := store.Create(t.Context(), a, 0, memory.Change{Append: []memory.Message{m}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return "HEARDLOG_STORE=sqlite:" + path
}

// TestLifetime: an agent ends 72 hours after its join, whatever its idle timeout, even if the
// server was down at that time.
func TestLifetime(t *testing.T) {
	t.Parallel()
	s := start(t, before(t, map[string]time.Duration{"old": 72*time.Hour + time.Minute, "young": 71 * time.Hour}, memory.Running))
	if why := s.tail("old", "Last-Event-ID", "0").status("STOPPED"); why != "Task lifetime limit exceeded" {
		t.Errorf("it ended with %q", why)
	}
	if a := s.agent("young"); a.Status != "RUNNING" {
		t.Errorf("%+v", a)
	}
	if diff := cmp.Diff([]string{"0 user: from old"}, texts(s.history("old").Contents)); diff != "" {
		t.Error(diff)
	}
}

// TestListWindow: a list without from_time goes back two hours, as Agora's does.
func TestListWindow(t *testing.T) {
	t.Parallel()
	s := start(t, before(t, map[string]time.Duration{"recent": time.Hour, "older": 3 * time.Hour, "ancient": 50 * time.Hour}, memory.Running))
	if diff := cmp.Diff([]string{"recent"}, s.list("").names()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"recent", "older", "ancient"}, s.list("?from_time=1").names()); diff != "" {
		t.Error(diff)
	}
	if p := s.list("?from_time=1&limit=1"); p.Meta.Total != 3 || p.Meta.Cursor == "" {
		t.Errorf("%+v", p.Meta)
	}
}

// TestLeavingGoesOnAfterRestart: an agent that was asked to leave before the server stopped has
// left after its restart.
func TestLeavingGoesOnAfterRestart(t *testing.T) {
	t.Parallel()
	for _, status := range []memory.Status{memory.Stopping, memory.Idle} {
		s := start(t, before(t, map[string]time.Duration{"leaving": time.Minute}, status))
		if why := s.tail("leaving", "Last-Event-ID", "0").status("STOPPED"); why != "OK" {
			t.Errorf("%s: ended with %q", status, why)
		}
	}
}
