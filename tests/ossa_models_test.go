package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
)

const modelsPath = v1 + "/memory-models"

// shortModel is a document in YAML whose settings differ from all defaults.
const shortModel = `apiVersion: ossa/v0.3.2
kind: MemoryModel
short_term:
  enabled: true
  conversation_context: {max_messages: 2}
  working_memory: {max_size_mb: 3, ttl_seconds: 600}
  session_state: {session_ttl_seconds: 90, persist_across_invocations: true, max_sessions: '${MAX:-2}'}
long_term:
  enabled: false
`

// joinWith joins an agent with a memory model and more settings under properties.heardlog.
func (s *server) joinWith(name, model, more string) answer {
	s.t.Helper()
	if model != "" {
		more = strings.TrimPrefix(fmt.Sprintf(`%s,"memory_model":%q`, more, model), ",")
	}
	return s.post(v1+"/join", `{"name":"`+name+`","properties":{"heardlog":{`+more+`}}}`)
}

// joined returns the ID of an answer to a join.
func (a answer) joined() string {
	a.t.Helper()
	var out struct {
		AgentID string `json:"agent_id"`
	}
	a.ok(&out)
	return out.AgentID
}

type agentSettings struct {
	Model    string `json:"memory_model"`
	Settings struct {
		Policy struct {
			MaxMessages int `json:"max_messages"`
			MaxTokens   int `json:"max_tokens"`
		}
		IdleTimeout int `json:"idle_timeout_seconds"`
		MaxSessions int `json:"max_sessions"`
		Working     struct {
			Enabled bool
			MaxMB   int `json:"max_size_mb"`
			TTL     int `json:"ttl_seconds"`
		} `json:"working_memory"`
		AgentState json.RawMessage `json:"agent_state"`
		History    json.RawMessage `json:"conversation_history"`
	}
}

func (s *server) settingsOf(id string) (out agentSettings) {
	s.t.Helper()
	s.get(agent(id)).ok(&out)
	return out
}

// TestMemoryModelAtJoin: an agent that names a model has the settings of the document, unless its
// join sets them, also after a restart and after the model is gone.
func TestMemoryModelAtJoin(t *testing.T) {
	t.Parallel()
	s := start(t)
	var m struct {
		Document map[string]any
		modelReport
		MaxSessions int `json:"max_sessions"`
	}
	s.do("PUT", modelsPath+"/short", shortModel).ok(&m)
	if !m.Valid || m.Document["kind"] != "MemoryModel" || m.MaxSessions != 2 {
		t.Errorf("%+v", m)
	}
	s = s.again()
	id := s.joinWith("ann", "short", "").joined()
	got := s.settingsOf(id)
	if w := got.Settings.Working; got.Model != "short" || got.Settings.Policy.MaxMessages != 2 || got.Settings.IdleTimeout != 90 || w.MaxMB != 3 || w.TTL != 600 || !w.Enabled {
		t.Errorf("%+v", got)
	}
	s.say(id, user("one"), assistant("two"), user("three"))
	if c := s.context(id, `{}`); len(c.Messages) != 2 {
		t.Errorf("context %+v", c.Messages)
	}
	var keys struct {
		MaxBytes int `json:"max_bytes"`
	}
	s.get(agent(id, "/working-memory")).ok(&keys)
	if keys.MaxBytes != 3<<20 {
		t.Errorf("working memory holds %d", keys.MaxBytes)
	}
	s.do("DELETE", modelsPath+"/short", nil)
	s = s.again()
	if again := s.settingsOf(id); fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("after a restart %+v, want %+v", again, got)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.joinWith("ann", "short", "").refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.memory_model", "short", "PUT /v1/memory-models/short")

	s.do("PUT", modelsPath+"/short", map[string]any{"document": json.RawMessage(mustJSON(t, shortModel)), "variables": map[string]string{"MAX": "5"}}).ok(&m)
	if m.MaxSessions != 5 {
		t.Errorf("with a variable: %d sessions", m.MaxSessions)
	}
	var next struct {
		AgentID   string `json:"agent_id"`
		Inherited *struct{ Messages int }
	}
	s.joinWith("ann", "short", "").ok(&next)
	if next.Inherited == nil || next.Inherited.Messages != 3 {
		t.Errorf("persist_across_invocations took over %+v", next.Inherited)
	}
	own := s.settingsOf(s.joinWith("own", "short", `"policy":{"max_messages":9},"session":{"session_ttl_seconds":300},"working_memory":{"ttl_seconds":70}`).joined())
	if w := own.Settings.Working; own.Settings.Policy.MaxMessages != 9 || own.Settings.Policy.MaxTokens != 32000 || own.Settings.IdleTimeout != 300 || w.TTL != 70 || w.MaxMB != 3 {
		t.Errorf("the join's own settings: %+v", own)
	}
}

// mustJSON returns what the server stores of a document in YAML.
func mustJSON(t *testing.T, document string) []byte {
	t.Helper()
	s := start(t)
	var m struct{ Document json.RawMessage }
	s.do("PUT", modelsPath+"/x", document).ok(&m)
	return m.Document
}

// TestMaxSessions: as many agents may run by a document as it allows; HEARDLOG_OVER_MAX_AGENTS says
// whether one more is refused or the one that is idle longest ends.
func TestMaxSessions(t *testing.T) {
	t.Parallel()
	refuse, drop := start(t), start(t, "HEARDLOG_OVER_MAX_AGENTS=drop_idle")
	for _, s := range []*server{refuse, drop} {
		s.do("PUT", modelsPath+"/two", shortModel).ok(nil)
		s.do("PUT", modelsPath+"/other", shortModel).ok(nil)
		s.join("without", nil)
		s.joinWith("other", "other", "").joined()
	}
	first := refuse.joinWith("a", "two", "").joined()
	refuse.joinWith("b", "two", "").joined()
	refuse.joinWith("c", "two", "").refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", `"two"`, "max_sessions", "2 agents")
	refuse.post(agent(first, "/leave"), nil).ok(nil)
	refuse.joinWith("c", "two", "").joined()

	oldest := drop.joinWith("a", "two", "").joined()
	drop.joinWith("b", "two", "").joined()
	drop.joinWith("c", "two", "").joined()
	if v := drop.agent(oldest); v.Status != "STOPPED" {
		t.Errorf("the agent that was idle longest is %s", v.Status)
	}
	if n := drop.list("?state=2").Data.Count; n != 4 {
		t.Errorf("%d agents run, want 4", n)
	}
}

// TestMemoryModels: models are listed by name, page by page, belong to one project, and are
// bounded.
func TestMemoryModels(t *testing.T) {
	t.Parallel()
	s := start(t)
	type page struct {
		Models []struct{ Name string } `json:"memory_models"`
		Next   string                  `json:"next_cursor"`
	}
	var p page
	if s.get(modelsPath).ok(&p); len(p.Models) != 0 || p.Next != "" {
		t.Errorf("at first: %+v", p)
	}
	for i := range 100 {
		s.do("PUT", fmt.Sprintf("%s/m%02d", modelsPath, i), shortModel).ok(nil)
	}
	s.do("PUT", modelsPath+"/m99", shortModel).ok(nil) // in place of the earlier one
	s.do("PUT", modelsPath+"/one-more", shortModel).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "100")
	var names []string
	for cursor := ""; ; cursor = "&cursor=" + p.Next {
		p = page{}
		s.get(modelsPath + "?limit=40" + cursor).ok(&p)
		for _, m := range p.Models {
			names = append(names, m.Name)
		}
		if p.Next == "" {
			break
		}
	}
	if len(names) != 100 || names[0] != "m00" || names[99] != "m99" {
		t.Errorf("%d names: %v", len(names), names)
	}
	s.get(modelsPath+"?limit=101").refused(http.StatusBadRequest, "InvalidFieldValue", "limit", "100")
	s.get(modelsPath+"?cursor=%20").refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	for range 2 {
		if got := s.do("DELETE", modelsPath+"/m00", nil); got.status != http.StatusNoContent || len(got.body) > 0 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	s.get(modelsPath+"/m00").refused(http.StatusNotFound, "TaskNotFound", "m00")
	for _, method := range []string{"GET", "DELETE"} {
		s.do(method, modelsPath+"/a%20b", nil).refused(http.StatusBadRequest, "InvalidFieldValue", "name", "letters")
	}
	for body, words := range map[string][]string{
		"a: [":              {"not valid YAML"},
		"a: &x 1\nb: *x\n":  {"alias"},
		"a: 1\n---\nb: 2\n": {"more than one"},
		"1: 2\nb: .inf\n":   {"line 1", "not text", "quotes"},
		`"a": {"b":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}": {"64 levels"},
	} {
		s.do("PUT", modelsPath+"/bad", body).refused(http.StatusBadRequest, "InvalidRequestBody", words...)
	}
	for body, words := range map[string][]string{
		"kind: MemoryModel\n": {"document", "apiVersion: is missing", "short_term: is missing"},
		strings.Replace(shortModel, "enabled: false", "enabled: true\n  provider: neo4j", 1):                            {"long_term.provider", "neo4j", "sqlite and postgres"},
		strings.Replace(shortModel, "enabled: false", "enabled: true\n  conversation_history: {retention_days: 91}", 1): {"retention_days", "91", "90 days", "HEARDLOG_RETENTION"},
		strings.Replace(shortModel, "enabled: false", "enabled: true\n  knowledge_base: {schema: rdf}", 1):              {"knowledge_base.schema", "rdf", "json_schema"},
		`{"document":{},"part":"model"}`: {"part"},
	} {
		s.do("PUT", modelsPath+"/bad", body).refused(http.StatusBadRequest, "InvalidFieldValue", words...)
	}
	s.do("PUT", modelsPath+"/default", shortModel).refused(http.StatusBadRequest, "InvalidFieldValue", "HEARDLOG_MEMORY_MODEL")
	s.do("PUT", modelsPath+"/long", shortModel+"note: "+strings.Repeat("x", 256<<10)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "262144")
	s.joinWith("x", "default", "").refused(http.StatusBadRequest, "InvalidFieldValue", "HEARDLOG_MEMORY_MODEL is not set")
	s.joinWith("x", "a b", "").refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.memory_model")

	two := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	two.do("PUT", modelsPath+"/m", shortModel, alice...).ok(nil)
	two.get(modelsPath+"/m", bob...).refused(http.StatusNotFound, "TaskNotFound")
	two.get(modelsPath+"/m", alice...).ok(nil)
}

// TestServersModel: the document of HEARDLOG_MEMORY_MODEL holds for joins that name no model. The
// standard's complete example runs. A document with mistakes keeps the server from starting, and
// each is named.
func TestServersModel(t *testing.T) {
	t.Parallel()
	redis := kvtest.StartRedis(t, "--requirepass", os.Getenv("REDIS_PASSWORD"))
	text, err := os.ReadFile("../ossa/testdata/complete.yaml")
	if err != nil {
		t.Fatal(err)
	}
	complete := filepath.Join(t.TempDir(), "complete.yaml")
	if err := os.WriteFile(complete, bytes.Replace(text, []byte("localhost:6379"), []byte(redis.Addr), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "HEARDLOG_CREDENTIAL_REFS=REDIS_PASSWORD", "HEARDLOG_MEMORY_MODEL="+complete)
	got := s.settingsOf(s.join("ann", nil))
	if got.Model != "default" || got.Settings.IdleTimeout != 3600 || got.Settings.Policy.MaxMessages != 100 || got.Settings.MaxSessions != 100 ||
		string(got.Settings.AgentState) != `{"checkpoint_interval_seconds":60,"max_checkpoints":10,"compression":true}` ||
		string(got.Settings.History) != `{"retention_days":90,"indexing":true,"summarization":true}` {
		t.Errorf("%+v", got)
	}
	if named := s.settingsOf(s.joinWith("bea", "default", "").joined()); named.Model != "default" {
		t.Errorf("%+v", named)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	document := strings.Replace(strings.Replace(shortModel, "max_messages: 2", "max_messages: 0", 1), "max_size_mb: 3", "max_size_mb: no", 1)
	if err := os.WriteFile(bad, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		bad:                            {"HEARDLOG_MEMORY_MODEL", "short_term.conversation_context.max_messages", "short_term.working_memory.max_size_mb"},
		filepath.Join(bad, "none.yml"): {"HEARDLOG_MEMORY_MODEL", "none.yml"},
	} {
		c, err := config.Load(func(name string) string {
			return map[string]string{"HEARDLOG_ADDR": "127.0.0.1:0", "HEARDLOG_STORE": "memory:", "HEARDLOG_MEMORY_MODEL": path}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = app.New(t.Context(), c, zerolog.Nop())
		checked := app.Check(c)
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) || checked == nil || !strings.Contains(checked.Error(), w) {
				t.Errorf("%v and %v do not name %s", err, checked, w)
			}
		}
	}
}
