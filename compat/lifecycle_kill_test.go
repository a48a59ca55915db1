package compat_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// saved is a checkpoint that was acknowledged, with the context at that moment.
type saved struct {
	id      int64
	context string
}

// TestKillCheckpoints kills the server repeatedly while it saves checkpoints, on demand and by the
// interval of a memory model. None that was acknowledged or listed is lost, and each restores the
// context byte for byte.
func TestKillCheckpoints(t *testing.T) {
	t.Parallel()
	model := memoryModel(t, "short_term: {enabled: true}", "long_term: {enabled: true, agent_state: {checkpoint_interval_seconds: 10, max_checkpoints: 100}}")
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_SECRET_KEY=a key that is long enough", model}
	s := start(t, env...)
	id, quiet := s.join(t, "busy", nil), s.join(t, "quiet", nil)
	say := func(base, agent, words string) bool {
		_, ok := tried(base, "POST", "/v1/agents/"+agent+"/messages", fmt.Sprintf(`{"role":"user","content":%q}`, words))
		return ok
	}
	contextOf := func(base, agent string) string {
		got, _ := tried(base, "POST", "/v1/agents/"+agent+"/context", `{}`)
		var out struct{ Messages json.RawMessage }
		_ = json.Unmarshal([]byte(got), &out) // "" if the server is gone
		return string(out.Messages)
	}
	list := func(base, agent string) (ids []int64) {
		got, _ := tried(base, "GET", "/v1/agents/"+agent+"/checkpoints", "")
		var out struct{ Checkpoints []struct{ ID int64 } }
		_ = json.Unmarshal([]byte(got), &out) // the list is empty then
		for _, c := range out.Checkpoints {
			ids = append(ids, c.ID)
		}
		return ids
	}
	restored := func(base, agent string, c saved) {
		t.Helper()
		if got, ok := tried(base, "POST", fmt.Sprintf("/v1/agents/%s/checkpoints/%d/restore", agent, c.id), ""); !ok {
			t.Errorf("checkpoint %d is lost: %s", c.id, got)
		} else if got := contextOf(base, agent); got != c.context {
			t.Errorf("checkpoint %d restores %s, want %s", c.id, got, c.context)
		}
	}
	var acked []saved
	said := 0
	for range 6 {
		var wg sync.WaitGroup
		before := len(acked)
		enough := make(chan struct{})
		wg.Go(func() {
			for say(s.url, id, fmt.Sprint("message ", said)) {
				said++
				now := contextOf(s.url, id)
				got, ok := tried(s.url, "POST", "/v1/agents/"+id+"/checkpoints", "")
				var c struct{ ID int64 }
				if !ok || json.Unmarshal([]byte(got), &c) != nil || now == "" {
					return
				}
				if acked = append(acked, saved{c.ID, now}); len(acked) == before+8 {
					close(enough)
				}
			}
		})
		<-enough
		s.kill()
		wg.Wait()
		s = start(t, env...)
		restored(s.url, id, acked[len(acked)-1])
		restored(s.url, id, acked[before])
	}
	if !say(s.url, quiet, "kept by the interval") {
		t.Fatal("the message is refused")
	}
	want := contextOf(s.url, quiet)
	eventually(t, "a checkpoint by the interval", func() bool { return len(list(s.url, quiet)) > 0 })
	ids := list(s.url, quiet)
	s.kill()
	s = start(t, env...)
	restored(s.url, quiet, saved{ids[0], want})
	s.kill()
}

// TestKillScheduledBackup kills the server repeatedly while it makes the backup of its memory
// model. What has the name of a backup then is whole, and the next start makes the one that is
// missing.
func TestKillScheduledBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, db := filepath.Join(dir, "backups"), filepath.Join(dir, "heardlog.db")
	model := memoryModel(t, "short_term: {enabled: true}", "long_term: {enabled: false}",
		"lifecycle: {backup: {interval_hours: 1, encryption: false, destination: "+folder+"}}")
	env := []string{"HEARDLOG_STORE=sqlite:" + db}
	s := start(t, env...)
	for i := range 40 {
		if got, ok := tried(s.url, "PUT", fmt.Sprintf("/v1/kv/n/%d", i), fmt.Sprintf(`{"value":%q}`, strings.Repeat(fmt.Sprint(i, " "), 100_000))); !ok {
			t.Fatal(got)
		}
	}
	s.kill()
	env = append(env, model)
	// names returns what is in the folder: whole backups, or parts of one.
	names := func(part bool) (out []string) {
		entries, _ := os.ReadDir(folder) // the first backup makes it
		for _, e := range entries {
			if strings.Contains(e.Name(), ".part-") == part {
				out = append(out, e.Name())
			}
		}
		return out
	}
	for range 6 {
		for _, n := range append(names(true), names(false)...) {
			if err := os.Rename(filepath.Join(folder, n), filepath.Join(dir, n)); err != nil {
				t.Fatal(err)
			}
		}
		s := launch(t, env...)
		eventually(t, "the beginning of a backup", func() bool { return len(names(true))+len(names(false)) > 0 })
		s.kill()
	}
	s = start(t, env...)
	eventually(t, "a whole backup", func() bool { return len(names(false)) > 0 })
	s.kill()
	want, errs, code := subcommand(t, db, "export")
	if code != 0 {
		t.Fatal(errs)
	}
	whole, _ := filepath.Glob(filepath.Join(dir, "heardlog-*.zst"))
	for _, n := range names(false) {
		whole = append(whole, filepath.Join(folder, n))
	}
	for i, file := range whole {
		copied := filepath.Join(dir, fmt.Sprint("copy-", i, ".db"))
		if _, errs, code := subcommand(t, copied, "restore", file); code != 0 {
			t.Errorf("%s cannot be restored: %s", file, errs)
		}
		if got, _, _ := subcommand(t, copied, "export"); got != want {
			t.Errorf("%s restores something else", file)
		}
	}
}
