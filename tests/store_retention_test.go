package tests

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // changes the times of calls
)

// TestRetentionDays: a call goes, with what belongs to it, the days of its memory model after its
// end. A younger call, a call without such a model and a running call stay.
func TestRetentionDays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.db")
	s := start(t, "HEARDLOG_STORE=sqlite:"+path)
	s.do(http.MethodPut, modelsPath+"/week", "apiVersion: ossa/v0.3.2\nkind: MemoryModel\nshort_term: {enabled: true}\nlong_term: {enabled: true, conversation_history: {retention_days: 7}}\n").ok(nil)
	calls := map[string]string{}
	for name, model := range map[string]string{"old": "week", "young": "week", "plain": "", "running": "week"} {
		id := s.joinWith(name, model, `"scope":{"user_id":"ann"}`).joined()
		s.say(id, user("the words of "+name), assistant("yes"))
		s.do(http.MethodPut, working(id, "k"), `{"value":1}`).ok(nil)
		s.checkpoint(id)
		if calls[name] = id; name != "running" {
			s.post(agent(id, "/leave"), nil).ok(nil)
		}
	}
	s.stop()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for name, days := range map[string]int64{"old": 8, "young": 6, "plain": 8, "running": 30} {
		ago := days * 24 * time.Hour.Milliseconds()
		if _, err := db.Exec("UPDATE agent SET start_ms = start_ms - ?1, stop_ms = iif(stop_ms > 0, stop_ms - ?1, 0) WHERE id = ?2", ago, calls[name]); err != nil {
			t.Fatal(err)
		}
	}
	// The notes by which calls are found are due too.
	r, err := db.Exec("UPDATE record SET id = '0000000000000001' || substr(id, 17) WHERE space_no = (SELECT no FROM record_space WHERE name LIKE 'retention/%')")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.RowsAffected(); err != nil || n < 3 {
		t.Fatalf("%d notes, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s = start(t, s.env...)
	waitFor(t, "the end of the old call", func() bool { return s.get(agent(calls["old"])).status == http.StatusNotFound })
	for _, path := range []string{"/messages", "/checkpoints", "/working-memory"} {
		if got := s.get(agent(calls["old"], path)); got.status != http.StatusNotFound {
			t.Errorf("%s of the old call: %d %s", path, got.status, got.body)
		}
	}
	if found := string(s.post(v1+"/recall", `{"user_id":"ann","query":"the words of old"}`).ok(nil).body); strings.Contains(found, calls["old"]) {
		t.Errorf("the old call is found: %s", found)
	}
	for _, name := range []string{"young", "plain", "running"} {
		if len(s.history(calls[name]).Contents) != 2 {
			t.Errorf("the call %q is gone", name)
		}
	}
	s.stop()
	if db, err = sql.Open("sqlite", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for what, query := range map[string]string{
		"checkpoints": "SELECT count(*) FROM record_space WHERE name LIKE '%' || ? || '%' AND n > 0",
		"messages":    "SELECT count(*) FROM message m LEFT JOIN agent a ON a.no = m.agent_no WHERE a.id = ? OR a.no IS NULL",
		"notes":       "SELECT count(*) FROM record WHERE id LIKE '%/' || ? AND body IS NOT NULL",
	} {
		var n int
		if err := db.QueryRow(query, calls["old"]).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s of the old call are left, %v", n, what, err)
		}
	}
}

// TestRetentionGoesOn: a note that cannot be decrypted and a call that cannot be erased keep no
// other call from being erased, over restarts too, and the log names them.
func TestRetentionGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.db")
	s := start(t, "HEARDLOG_STORE=sqlite:"+path, "HEARDLOG_SECRET_KEY=0123456789abcdef0123456789abcdef")
	s.do(http.MethodPut, modelsPath+"/day", "apiVersion: ossa/v0.3.2\nkind: MemoryModel\nshort_term: {enabled: true}\nlong_term: {enabled: true, conversation_history: {retention_days: 1}}\n").ok(nil)
	var calls []string
	for range 4 {
		id := s.joinWith("call", "day", `"scope":{"user_id":"ann"}`).joined()
		s.say(id, user("words"))
		s.post(agent(id, "/leave"), nil).ok(nil)
		calls = append(calls, id)
	}
	s.stop()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []string{
		"UPDATE agent SET start_ms = start_ms - 200000000, stop_ms = stop_ms - 200000000",
		"UPDATE record SET id = '000000000000000' || (SELECT count(*) FROM record o WHERE o.space_no = record.space_no AND o.no < record.no) || substr(id, 17) WHERE space_no = (SELECT no FROM record_space WHERE name LIKE 'retention/%')",
		"UPDATE record SET body = x'0102' WHERE id LIKE '%/" + calls[0] + "'",
		"UPDATE agent_settings SET body = x'0102' WHERE agent_no = (SELECT no FROM agent WHERE id = '" + calls[1] + "')",
	} {
		if _, err := db.Exec(change); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, s.env...)
	for _, i := range []int{0, 2, 3} {
		waitFor(t, "the end of a call", func() bool { return s.get(agent(calls[i])).status == http.StatusNotFound })
	}
	waitFor(t, "the report", func() bool {
		failed, erased := false, 0
		for line := range strings.Lines(s.log.String()) {
			if !strings.Contains(line, `"kind":"retention"`) || !strings.Contains(line, `"project":"default"`) {
				continue
			}
			failed = failed || strings.Contains(line, `"outcome":"retried"`) && strings.Contains(line, "/"+calls[1]+`"`)
			if strings.Contains(line, `"outcome":"erased"`) {
				erased++
			}
		}
		return failed && erased == 3
	})
}
