package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestOSSAExample: the standard's complete example, as the server's own document, has its effect
// section by section, on SQLite and on PostgreSQL, with keys and values in Redis.
func TestOSSAExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../ossa/testdata/complete.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "db") },
		"postgres": func(t *testing.T) string { return postgrestest.URL(t) + "&pool_max_conns=5" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := kvtest.StartRedis(t, "--requirepass", os.Getenv("REDIS_PASSWORD"))
			backups, model := t.TempDir(), filepath.Join(t.TempDir(), "model.yaml")
			document := strings.NewReplacer("localhost:6379", redis.Addr, "s3://backups/memory/", backups).Replace(string(text))
			if err := os.WriteFile(model, []byte(document), 0o600); err != nil {
				t.Fatal(err)
			}
			llm, base := upstream(t, fake.Script{Answer: "Yes."})
			s := start(t, "HEARDLOG_STORE="+store(t), "HEARDLOG_LLM_URL="+base, "HEARDLOG_CREDENTIAL_REFS=REDIS_PASSWORD", "HEARDLOG_MEMORY_MODEL="+model, "HEARDLOG_SECRET_KEY=a key that is long enough")

			for id, kind := range map[string]string{"asked": "error_recovery", "unasked": "tool_usage"} {
				s.do(http.MethodPut, v1+"/patterns/"+id, `{"type":"`+kind+`","content":"Pattern `+id+`."}`).ok(nil)
			}

			// short_term: conversation_context, session_state, working_memory.
			id := s.joinWith("ann", "", "").joined()
			got := s.settingsOf(id)
			if got.Model != "default" || got.Settings.Policy.MaxMessages != 100 || got.Settings.Policy.MaxTokens != 32000 || got.Settings.IdleTimeout != 3600 || got.Settings.MaxSessions != 100 {
				t.Errorf("%+v", got)
			}
			for i := range 60 {
				s.say(id, user(fmt.Sprint("question ", i)), assistant(fmt.Sprint("answer ", i)))
			}
			// The patterns come first.
			if c := s.context(id, `{}`); len(c.Messages) != 101 || c.Messages[1]["content"] != "question 10" || c.Messages[100]["content"] != "answer 59" {
				t.Errorf("a context of %d messages", len(c.Messages))
			}
			s.do(http.MethodPut, working(id, "seat"), `{"value":"window"}`).ok(nil)

			// long_term: knowledge_base, learned_patterns.
			var b struct {
				Schema     string
				Versioning bool
				MaxEntries int `json:"max_entries"`
			}
			if s.get(knowledgePath + "/default").ok(&b); b.Schema != "json_schema" || !b.Versioning || b.MaxEntries != 100_000 {
				t.Errorf("%+v", b)
			}
			var p struct {
				HalfLife int `json:"half_life_days"`
			}
			if s.get(v1 + "/patterns/asked").ok(&p); p.HalfLife != 30 {
				t.Errorf("%+v", p)
			}
			s.chat(agent(id, "/chat/completions"), "And now?", true).ok(nil)
			if prompt := prompts(llm)[0]; !strings.Contains(prompt, "Pattern asked.") || strings.Contains(prompt, "Pattern unasked.") {
				t.Errorf("%s", prompt)
			}

			// long_term: agent_state.
			for range 11 {
				if c := s.checkpoint(id); !c.Compressed {
					t.Errorf("%+v", c)
				}
			}
			var list struct{ Checkpoints []checkpointOf }
			if s.get(agent(id, "/checkpoints")).ok(&list); len(list.Checkpoints) != 10 {
				t.Errorf("%d checkpoints", len(list.Checkpoints))
			}

			// long_term: conversation_history.
			if !strings.Contains(string(got.Settings.History), `"retention_days":90`) {
				t.Errorf("%s", got.Settings.History)
			}
			s.post(agent(id, "/leave"), nil).ok(nil)
			waitFor(t, "the summary of the call", func() bool {
				var out struct{ Call *struct{ Summary string } }
				s.get(agent(id, "/summary")).ok(&out)
				return out.Call != nil && out.Call.Summary == "Yes."
			})

			// lifecycle: backup. Redis evicts by its own settings.
			s.backedUp("ok", 1)
			if files, err := filepath.Glob(filepath.Join(backups, "*.age")); err != nil || len(files) != 1 {
				t.Errorf("%v, %v", files, err)
			}
			s.do(http.MethodPost, kvPath("n", "gc"), `{}`).refused(http.StatusNotImplemented, "NotImplemented", "own settings")

			// What has no effect here is named.
			var report modelReport
			s.do(http.MethodPut, modelsPath+"/copy", document).ok(&report)
			var listed []string
			for _, one := range report.NotSupported {
				listed = append(listed, one.Path)
			}
			for _, want := range []string{"short_term.connection", "long_term.connection", "long_term.vector_store.index_type", "lifecycle.garbage_collection"} {
				if !slices.Contains(listed, want) {
					t.Errorf("%q lacks %s", listed, want)
				}
			}
			if slices.Contains(listed, "long_term.provider") != (name == "sqlite") {
				t.Errorf("%q", listed)
			}

			redis.Kill()
			s.get(working(id, "seat")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
		})
	}
}
