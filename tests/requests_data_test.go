package tests

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

const toldPrompt = "You sell tickets for trains. Escalate to the harbor desk at desk@mail.example, and never promise seats."

// toldCall starts a call on a server whose LLM was given toldPrompt and a learned pattern.
func toldCall(t *testing.T, env ...string) (s *server, llm *fake.LLM, id string) {
	t.Helper()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s = start(t, append([]string{"HEARDLOG_LLM_URL=" + base}, env...)...)
	s.do(http.MethodPut, v1+"/patterns/p", `{"type":"tool_usage","content":"Mention the ferry timetable."}`).ok(nil)
	id = s.join("n", map[string]any{
		"llm":      map[string]any{"system_messages": []any{map[string]any{"role": "system", "content": toldPrompt}}},
		"heardlog": map[string]any{"remember": map[string]any{"inject": false, "patterns": []string{"tool_usage"}}},
	})
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	return s, llm, id
}

// TestToldExported: what the LLM was given is part of an export, and the same after an import.
func TestToldExported(t *testing.T) {
	t.Parallel()
	from := sqlite.Options{Path: filepath.Join(t.TempDir(), "from.db"), SealKey: []byte("a key that is long enough")}
	s, _, id := toldCall(t, "HEARDLOG_STORE=sqlite:"+from.Path, "HEARDLOG_SECRET_KEY="+string(from.SealKey))
	s.chat(agent(id, "/chat/completions"), "And the \"last\" one?", true).ok(nil)
	before, second := s.requests(id, 0), s.requests(id, 1)
	if len(second) != 1 || !second[0].Exact || !strings.Contains(second[0].Body, "At nine.") {
		t.Fatalf("%+v", second)
	}
	if len(before) != 1 || !before[0].Exact || !strings.Contains(before[0].Body, "harbor desk") || !strings.Contains(before[0].Body, "ferry timetable") {
		t.Fatalf("%+v", before)
	}
	s.stop()
	r, err := sqlite.OpenReader(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	var lines bytes.Buffer
	if _, err := export.Write(t.Context(), &lines, r, export.Scope{}, true, nil); err != nil {
		t.Fatal(err)
	}
	to := sqlite.Options{Path: filepath.Join(t.TempDir(), "to.db")}
	if strings.Contains(lines.String(), `"words":`) {
		t.Error("a line of the export is not whole without the others")
	}
	m, err := sqlite.OpenImporter(to)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = export.Read(t.Context(), &lines, m, nil)
	if closed := m.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	s = start(t, "HEARDLOG_STORE=sqlite:"+to.Path)
	if diff := cmp.Diff(append(before, second...), append(s.requests(id, 0), s.requests(id, 1)...)); diff != "" {
		t.Error(diff)
	}
	s.stop()
	if n := strings.Count(strings.Join(storedBodies(t, to.Path), "\n"), "one?"); n != 1 {
		t.Errorf("the words of a question are there %d times", n)
	}
}

// storedBodies returns the bodies of all messages of a SQLite file.
func storedBodies(t *testing.T, path string) (out []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT body FROM message ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			t.Fatal(err)
		}
		plain, err := codec.Unpack(body[:len(body)-8]) // without its checksum
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(plain))
	}
	return out
}

// TestToldRedacted: personal data is replaced in the record, wherever it came from; the LLM was
// given it.
func TestToldRedacted(t *testing.T) {
	t.Parallel()
	s, llm, id := toldCall(t, "HEARDLOG_REDACT=email")
	s.chat(agent(id, "/chat/completions"), "Write to ann@mail.example.", true).ok(nil)
	if sent := prompts(llm)[1]; !strings.Contains(sent, "desk@mail.example") || !strings.Contains(sent, "ann@mail.example") {
		t.Errorf("the LLM was sent %s", sent)
	}
	for turn := range int64(2) {
		body := string(s.get(agent(id, fmt.Sprintf("/turns/%d/requests", turn))).ok(nil).body)
		if strings.Contains(body, "mail.example") || !strings.Contains(body, "harbor desk") {
			t.Errorf("turn %d: %s", turn, body)
		}
	}
}

// TestToldGone: the record goes with its call, and nothing of it stays in a table.
func TestToldGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.db")
	s, _, id := toldCall(t, "HEARDLOG_STORE=sqlite:"+path)
	count := func() (n int) {
		t.Helper()
		for _, body := range storedBodies(t, path) {
			if strings.Contains(body, "harbor desk") && strings.Contains(body, "ferry timetable") {
				n++
			}
		}
		return n
	}
	s.stop()
	if n := count(); n != 1 { // or the test below would find nothing either
		t.Fatalf("%d records", n)
	}
	s = start(t, s.env...)
	if got := s.do(http.MethodDelete, agent(id, ""), nil); got.status != http.StatusNoContent {
		t.Fatalf("%+v", got)
	}
	s.get(agent(id, "/turns/0/requests")).refused(http.StatusNotFound, "TaskNotFound")
	s.stop()
	if n := count(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
