package tests

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory/kv/kvtest"
)

// ossaCase proves what one line of docs/reference/ossa.md says.
type ossaCase func(p *ossaPage)

// ossaCases has a case for each line of the tables, by "section: first cell" without backquotes.
func ossaCases() map[string]ossaCase {
	return map[string]ossaCase{
		"short_term: enabled: false": func(p *ossaPage) {
			id := p.join(`short_term: {enabled: false}`)
			p.s.say(id, user("one"), assistant("two"))
			if c := p.s.context(id, `{}`); len(c.Messages) != 0 { // a completion adds its utterance
				p.t.Errorf("context %+v", c.Messages)
			}
			p.s.do("PUT", working(id, "k"), `{"value":1}`).refused(http.StatusConflict, "TaskConflict", "switched off")
		},
		"short_term: provider in_memory, local_cache": func(p *ossaPage) {
			for _, name := range []string{"in_memory", "local_cache"} {
				p.runs(`short_term: {provider: ` + name + `}`)
				id := p.join(`short_term: {provider: ` + name + `}`)
				p.s.do("PUT", working(id, "k"), `{"value":"`+name+`"}`).ok(nil)
				if got := p.s.get(working(id, "k")).ok(nil); !strings.Contains(string(got.body), name) {
					p.t.Errorf("%s", got.body)
				}
				p.s.post(agent(id, "/leave"), nil).ok(nil)
			}
		},
		"short_term: provider redis, memcached": func(p *ossaPage) {
			p.listed(`short_term: {provider: redis}`, "short_term.provider")
			p.listed(`short_term: {provider: memcached}`, "short_term.provider")
		},
		"short_term: connection": func(p *ossaPage) {
			p.listed(`short_term: {connection: {endpoint: x}}`, "short_term.connection")
			p.listed(`short_term: {provider: redis, connection: {endpoint: x}}`, "short_term.provider", "short_term.connection")
			redis := kvtest.StartRedis(p.t)
			s := start(p.t, "HEARDLOG_MEMORY_MODEL="+kvModel(p.t, "redis", `{endpoint: "redis://`+redis.Addr+`"}`, ""))
			s.do(http.MethodPut, kvPath("n", "k"), `{"value":1}`).ok(nil)
			redis.Kill()
			s.get(kvPath("n", "k")).refused(http.StatusServiceUnavailable, "ServiceUnavailable")
		},
		"short_term: conversation_context": func(p *ossaPage) {
			p.runs(`short_term: {conversation_context: {max_messages: 2, max_tokens: 1000, truncation_strategy: importance_based, include_system_messages: false, include_tool_results: false}}`)
			id := p.join(`short_term: {conversation_context: {max_messages: 2, include_system_messages: false}}`)
			p.s.say(id, map[string]any{"role": "system", "content": "rule"}, user("one"), assistant("two"), user("three"))
			if c := p.s.context(id, `{}`); len(c.Messages) != 2 || c.Messages[0]["content"] != "two" || c.Messages[1]["content"] != "three" {
				p.t.Errorf("context %+v", c.Messages)
			}
		},
		"short_term: truncation_strategy: oldest_first": func(p *ossaPage) {
			id := p.join(`short_term: {conversation_context: {max_messages: 2, truncation_strategy: oldest_first}}`)
			p.s.say(id, user("one"), assistant("two"), user("three"))
			if c := p.s.context(id, `{}`); len(c.Messages) != 2 || c.Messages[1]["content"] != "three" || len(p.s.history(id).Contents) != 3 {
				p.t.Errorf("context %+v", c.Messages)
			}
		},
		"short_term: working_memory.max_size_mb, ttl_seconds": func(p *ossaPage) {
			got := p.settings(`short_term: {working_memory: {max_size_mb: 3, ttl_seconds: 70}}`)
			if w := got.Settings.Working; w.MaxMB != 3 || w.TTL != 70 {
				p.t.Errorf("%+v", got)
			}
			if e := p.s.putWorking(p.id, "k", `{"value":1}`); e.life() != 70*time.Second {
				p.t.Errorf("%+v", e)
			}
			big := `{"value":"` + strings.Repeat("x", 1_000_000) + `"}`
			for _, key := range []string{"a", "b", "c"} {
				p.s.putWorking(p.id, key, big)
			}
			p.s.do("PUT", working(p.id, "d"), big).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded")
		},
		"short_term: working_memory.max_size_mb above HEARDLOG_MAX_WORKING_MB": func(p *ossaPage) {
			p.listed(`short_term: {working_memory: {max_size_mb: 65}}`, "short_term.working_memory.max_size_mb")
			p.runs(`short_term: {working_memory: {max_size_mb: 64}}`)
		},
		"short_term: working_memory.namespaced: false": func(p *ossaPage) {
			p.listed(`short_term: {working_memory: {namespaced: false}}`, "short_term.working_memory.namespaced")
		},
		"short_term: session_state.session_ttl_seconds": func(p *ossaPage) {
			if got := p.settings(`short_term: {session_state: {session_ttl_seconds: 90}}`); got.Settings.IdleTimeout != 90 {
				p.t.Errorf("%+v", got)
			}
		},
		"short_term: session_state.persist_across_invocations": func(p *ossaPage) {
			id := p.join(`short_term: {session_state: {persist_across_invocations: true}}`)
			p.s.say(id, user("one"))
			p.s.post(agent(id, "/leave"), nil).ok(nil)
			var next struct{ Inherited *struct{ Messages int } }
			p.s.joinWith(p.name, p.name, "").ok(&next)
			if next.Inherited == nil || next.Inherited.Messages != 1 {
				p.t.Errorf("%+v", next)
			}
		},
		"short_term: session_state.max_sessions": func(p *ossaPage) {
			p.join(`short_term: {session_state: {max_sessions: 1}}`)
			p.s.joinWith("another", p.name, "").refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "max_sessions")
		},

		"long_term: provider sqlite, postgres": func(p *ossaPage) {
			own, other := "sqlite", "postgres"
			if os.Getenv("TEST_STORE") == "postgres" {
				own, other = other, own
			}
			p.runs(`long_term: {provider: ` + own + `}`)
			p.listed(`long_term: {provider: `+other+`}`, "long_term.provider")
		},
		"long_term: any other provider": func(p *ossaPage) {
			for _, name := range []string{"mongodb", "dynamodb", "neo4j", "qdrant", "pinecone", "weaviate", "chromadb", "milvus", "redis", "file_system"} {
				p.refused(`long_term: {provider: `+name+`}`, "long_term.provider", name, "sqlite and postgres", "HEARDLOG_STORE")
			}
		},
		"long_term: storage_type relational, hybrid": func(p *ossaPage) {
			p.runs(`long_term: {storage_type: relational}`, `long_term: {storage_type: hybrid}`)
		},
		"long_term: storage_type document, vector, graph": func(p *ossaPage) {
			for _, kind := range []string{"document", "vector", "graph"} {
				p.listed(`long_term: {storage_type: `+kind+`}`, "long_term.storage_type")
			}
		},
		"long_term: connection": func(p *ossaPage) {
			p.listed(`long_term: {connection: {endpoint: x}}`, "long_term.connection")
		},
		"long_term: knowledge_base": func(p *ossaPage) {
			p.join(`long_term: {enabled: true, knowledge_base: {enabled: true}}`)
			p.s.do("PUT", knowledgePath+"/"+p.name+"/entries/e", `{"content":"It closes at ten."}`).ok(nil)
			var found struct{ Results []struct{ ID string } }
			if p.s.post(knowledgePath+"/"+p.name+"/search", `{"query":"When does it close?"}`).ok(&found); len(found.Results) != 1 || found.Results[0].ID != "e" {
				p.t.Errorf("%+v", found)
			}
		},
		"long_term: knowledge_base.schema, versioning, max_entries": func(p *ossaPage) {
			for _, want := range []string{`"schema":"json_schema","versioning":true,"max_entries":1000`, `"schema":"custom","versioning":false,"max_entries":100`} {
				p.join(`long_term: {enabled: true, knowledge_base: {` + strings.ReplaceAll(strings.ReplaceAll(want, `"`, ""), ":", ": ") + `}}`)
				if got := string(p.s.get(knowledgePath + "/" + p.name).ok(nil).body); !strings.Contains(got, want) {
					p.t.Errorf("%s lacks %s", got, want)
				}
				for range 2 { // the second changes nothing
					p.s.do("PUT", knowledgePath+"/"+p.name+"/entries/e", `{"content":`+strconv.Quote(want)+`}`).ok(nil)
				}
				p.s.post(agent(p.id, "/leave"), nil).ok(nil)
			}
			if got := string(p.s.get(knowledgePath + "/" + p.name + "/entries/e/versions").ok(nil).body); !strings.Contains(got, `"version":2`) || strings.Contains(got, `"version":1,`) {
				p.t.Errorf("the second model keeps no versions: %s", got)
			}
			for i := range 100 {
				answer := p.s.do("PUT", knowledgePath+"/"+p.name+"/entries/"+fmt.Sprint(i), `{"content":"x"}`)
				if i < 99 {
					answer.ok(nil)
				} else {
					answer.refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "at most 100")
				}
			}
		},
		"long_term: knowledge_base.schema: rdf": func(p *ossaPage) {
			p.refused(`long_term: {knowledge_base: {schema: rdf}}`, "long_term.knowledge_base.schema", "rdf", "json_schema")
		},
		"long_term: vector_store.index_type: flat": func(p *ossaPage) {
			p.runs(`long_term: {vector_store: {index_type: flat}}`)
			for _, kind := range []string{"hnsw", "ivf", "scann"} {
				p.listed(`long_term: {vector_store: {index_type: `+kind+`}}`, "long_term.vector_store.index_type")
			}
		},
		"long_term: vector_store.embedding_model": func(p *ossaPage) {
			p.listed(`long_term: {vector_store: {embedding_model: other}}`, "long_term.vector_store.embedding_model")
		},
		"long_term: vector_store, other fields": func(p *ossaPage) {
			for _, field := range []string{"embedding_dimensions: 1536", "distance_metric: euclidean", "max_vectors: 1000"} {
				name, _, _ := strings.Cut(field, ":")
				p.listed(`long_term: {vector_store: {`+field+`}}`, "long_term.vector_store."+name)
			}
			p.runs(`long_term: {vector_store: {distance_metric: cosine}}`)
		},
		"long_term: learned_patterns.pattern_types": func(p *ossaPage) {
			for _, kind := range []string{"task_completion", "error_recovery", "user_preferences", "tool_usage", "delegation_patterns"} {
				p.s.do("PUT", v1+"/patterns/"+kind, `{"type":"`+kind+`","content":"Prefer `+kind+`."}`).ok(nil)
			}
			id := p.join(`long_term: {enabled: true, learned_patterns: {pattern_types: [tool_usage, delegation_patterns]}}`)
			prompt := strings.Join(p.s.context(id, `{"utterance":"Hello"}`).lines(), "\n")
			for _, kind := range []string{"tool_usage", "delegation_patterns"} {
				if !strings.Contains(prompt, "Prefer "+kind+".") || strings.Count(prompt, "Prefer ") != 2 {
					p.t.Errorf("%s", prompt)
				}
			}
		},
		"long_term: learned_patterns.decay_enabled, decay_half_life_days": func(p *ossaPage) {
			for fields, want := range map[string]string{"decay_half_life_days: 7": `"half_life_days":7,`, "decay_enabled: false": `"half_life_days":0,`} {
				p.join(`long_term: {enabled: true, learned_patterns: {` + fields + `}}`)
				if got := string(p.s.do("PUT", v1+"/patterns/aging", `{"type":"tool_usage","content":"x"}`).ok(nil).body); !strings.Contains(got, want) {
					p.t.Errorf("%s: %s", fields, got)
				}
				p.s.post(agent(p.id, "/leave"), nil).ok(nil)
			}
		},
		"long_term: learned_patterns.feedback_integration: false": func(p *ossaPage) {
			p.listed(`long_term: {learned_patterns: {feedback_integration: false}}`, "long_term.learned_patterns.feedback_integration")
		},
		"long_term: agent_state": func(p *ossaPage) {
			const written = `{"checkpoint_interval_seconds":20,"max_checkpoints":2,"compression":false}`
			if got := p.settings(`long_term: {enabled: true, agent_state: ` + written + `}`); string(got.Settings.AgentState) != written {
				p.t.Errorf("%+v", got)
			}
			for range 3 {
				p.s.checkpoint(p.id)
			}
			var list struct{ Checkpoints []checkpointOf }
			if p.s.get(agent(p.id, "/checkpoints")).ok(&list); len(list.Checkpoints) != 2 || list.Checkpoints[0].Compressed {
				p.t.Errorf("%+v", list)
			}
		},
		"long_term: conversation_history.retention_days": func(p *ossaPage) {
			got := p.settings(`long_term: {enabled: true, conversation_history: {retention_days: 7}}`)
			if !strings.Contains(string(got.Settings.History), `"retention_days":7`) { // TestRetentionDays
				p.t.Errorf("%+v", got)
			}
		},
		"long_term: conversation_history.indexing: false": func(p *ossaPage) {
			p.listed(`long_term: {conversation_history: {indexing: false}}`, "long_term.conversation_history.indexing")
		},
		"long_term: conversation_history.summarization": func(p *ossaPage) {
			got := p.settings(`long_term: {enabled: true, conversation_history: {summarization: true}}`)
			if !strings.Contains(string(got.Settings.History), `"summarization":true`) { // TestCallSummary
				p.t.Errorf("%+v", got)
			}
		},
		"long_term: conversation_history.retention_days above HEARDLOG_RETENTION": func(p *ossaPage) {
			p.refused(`long_term: {conversation_history: {retention_days: 91}}`, "long_term.conversation_history.retention_days", "91", "90 days")
		},

		"provider_interface: required_operations": func(p *ossaPage) {
			for _, name := range []string{"get", "set", "delete", "exists", "list", "clear", "search", "batch_get", "batch_set", "expire", "increment"} {
				p.runs(`provider_interface: {required_operations: [{name: ` + name + `, description: x}]}`)
			}
			p.refused(`provider_interface: {required_operations: [{name: fly, description: x}]}`, "provider_interface.required_operations[0].name", "fly")
		},
		"provider_interface: optional_operations": func(p *ossaPage) {
			p.listed(`provider_interface: {optional_operations: [{name: fly, description: x}]}`, "provider_interface.optional_operations[0].name")
		},
		"provider_interface: lifecycle_hooks": func(p *ossaPage) {
			p.listed(`provider_interface: {lifecycle_hooks: {on_init: x}}`, "provider_interface.lifecycle_hooks")
		},

		"lifecycle: garbage_collection": func(p *ossaPage) {
			id := p.join("short_term: {enabled: true, working_memory: {max_size_mb: 1}}\nlifecycle: {garbage_collection: {strategy: lru, max_memory_percent: 90, target_memory_percent: 70}}")
			big := `"` + strings.Repeat("x", 400_000) + `"`
			p.s.do("PUT", working(id, "first"), `{"pinned":true,"value":`+big+`}`).ok(nil)
			p.s.do("PUT", working(id, "second"), `{"value":`+big+`}`).ok(nil)
			p.s.do("PUT", working(id, "third"), `{"value":`+big+`}`).ok(nil)
			p.s.get(working(id, "first")).ok(nil)
			p.s.get(working(id, "second")).refused(http.StatusNotFound, "NotFound")
			p.s.get(working(id, "third")).ok(nil)
		},
		"lifecycle: garbage_collection, keys in redis or memcached": func(p *ossaPage) {
			redis := kvtest.StartRedis(p.t)
			s := start(p.t, "HEARDLOG_MEMORY_MODEL="+kvModel(p.t, "redis", `{endpoint: "redis://`+redis.Addr+`"}`, "lifecycle: {garbage_collection: {strategy: lru}}\n"))
			s.do(http.MethodPost, kvPath("n", "gc"), `{}`).refused(http.StatusNotImplemented, "NotImplemented", "own settings")
		},
		"lifecycle: garbage_collection.target_memory_percent not below max_memory_percent": func(p *ossaPage) {
			p.refused(`lifecycle: {garbage_collection: {max_memory_percent: 60, target_memory_percent: 60}}`, "lifecycle.garbage_collection.target_memory_percent", "60")
		},
		"lifecycle: backup": func(p *ossaPage) {
			p.listed(`lifecycle: {backup: {interval_hours: 1}}`, "lifecycle.backup")
			p.listed(`lifecycle: {backup: {destination: /x}}`, "lifecycle.backup") // TestScheduledBackup runs one
		},
		"lifecycle: backup.destination in a bucket": func(p *ossaPage) {
			bucket := backupModel(p.t, `"s3://none/x?endpoint=http://127.0.0.1:1"`)
			s := start(p.t, bucket, "HEARDLOG_SECRET_KEY=a key that is long enough")
			if log := s.log.String(); !strings.Contains(log, "lifecycle.backup.destination") || !strings.Contains(log, "AWS_SECRET_ACCESS_KEY") || strings.Contains(string(s.get("/metrics").body), "heardlog_backups_total") {
				p.t.Error(log)
			}
			s = start(p.t, bucket, "HEARDLOG_SECRET_KEY=a key that is long enough", "HEARDLOG_CREDENTIAL_REFS=X,AWS_SECRET_ACCESS_KEY")
			s.backedUp("error", 1) // there is no such bucket
		},
		"lifecycle: compaction": func(p *ossaPage) { // TestCompaction runs it
			p.listed(`lifecycle: {compaction: {threshold_percent: 20}}`, "lifecycle.compaction")
		},
		"lifecycle: migration": func(p *ossaPage) {
			p.runs(`lifecycle: {migration: {source_provider: sqlite}}`) // off by default
			// TestMigrateKeys runs one.
			p.listed(`lifecycle: {migration: {enabled: true, source_provider: sqlite}}`, "lifecycle.migration")
		},
		"lifecycle: migration between other providers": func(p *ossaPage) {
			for _, c := range []struct{ source, target, want string }{
				{"mongodb", "redis", "source_provider"}, {"local_cache", "mongodb", "target_provider"}, {"in_memory", "local_cache", "heardlog migrate"}, {"redis", "memcached", "heardlog migrate"},
				{"memcached", "in_memory", "cannot list"}, {"in_memory", "memcached", "short_term.provider"},
			} {
				m := kvModel(p.t, "redis", `{endpoint: "127.0.0.1:1"}`, fmt.Sprintf("lifecycle: {migration: {enabled: true, source_provider: %s, target_provider: %s}}\n", c.source, c.target))
				if err := (&server{t: p.t}).fails("HEARDLOG_STORE=memory:", "HEARDLOG_MEMORY_MODEL="+m); !strings.Contains(err, c.want) {
					p.t.Errorf("%s to %s: %s, want %s", c.source, c.target, err, c.want)
				}
			}
		},
	}
}

// TestOSSAPage runs a case for each line of the tables in docs/reference/ossa.md, and fails for a
// line without a case and a case without a line.
func TestOSSAPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/reference/ossa.md")
	if err != nil {
		t.Fatal(err)
	}
	s, cases, section := start(t), ossaCases(), ""
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), "`", "")
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = name
		}
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !ok || !strings.HasPrefix(line, "| ") || cell == "field" || cell == "---" {
			continue
		}
		name := section + ": " + cell
		run := cases[name]
		delete(cases, name)
		n := len(cases)
		t.Run(name, func(t *testing.T) {
			if run == nil {
				t.Fatal("the page has this line, and ossaCases has no case for it")
			}
			run(&ossaPage{t: t, s: s, name: fmt.Sprintf("case-%d", n)})
		})
	}
	for name := range cases {
		t.Errorf("the page has no line %q", name)
	}
}

// ossaPage is what a case has. Its documents are YAML and lack what is not their concern.
type ossaPage struct {
	t    *testing.T
	s    *server
	name string // of the case's memory model and its agent
	id   string // of the agent of join and settings
}

// join stores a document and joins an agent with it.
func (p *ossaPage) join(document string) string {
	p.t.Helper()
	text := "apiVersion: ossa/v0.3.2\nkind: MemoryModel\n" + document + "\n"
	for _, half := range []string{"short_term: {", "long_term: {"} {
		if !strings.HasPrefix(document, half) {
			text += half + "enabled: " + fmt.Sprint(half[0] == 's') + "}\n"
		} else if !strings.Contains(document, "{enabled: ") {
			text = strings.Replace(text, half, half+"enabled: true, ", 1)
		}
	}
	p.s.do("PUT", modelsPath+"/"+p.name, text).ok(nil)
	p.id = p.s.joinWith(p.name, p.name, "").joined()
	return p.id
}

func (p *ossaPage) settings(document string) agentSettings {
	p.t.Helper()
	return p.s.settingsOf(p.join(document))
}

// report returns the paths that a document has refused and without effect.
func (p *ossaPage) report(document string) (refused, listed []string, words string) {
	p.t.Helper()
	var r struct {
		Valid        bool
		Refused      []struct{ Path, Message string }
		NotSupported []struct{ Path, Message string } `json:"not_supported"`
	}
	got := p.s.post(validatePath, "part: model\ndocument:\n  "+document+"\n").ok(&r)
	if !r.Valid {
		p.t.Errorf("%s: %s", document, got.body)
	}
	for _, one := range r.Refused {
		refused, words = append(refused, one.Path), words+one.Message
	}
	for _, one := range r.NotSupported {
		listed = append(listed, one.Path)
	}
	return refused, listed, words
}

func (p *ossaPage) runs(documents ...string) {
	p.t.Helper()
	for _, d := range documents {
		p.listed(d)
	}
}

func (p *ossaPage) listed(document string, want ...string) {
	p.t.Helper()
	if refused, listed, _ := p.report(document); len(refused) > 0 || !slices.Equal(listed, want) {
		p.t.Errorf("%s: refused %q, listed %q, want %q", document, refused, listed, want)
	}
}

// refused checks a refusal, and that optional: true in its section makes it a listing.
func (p *ossaPage) refused(document, path string, words ...string) {
	p.t.Helper()
	refused, listed, message := p.report(document)
	if !slices.Equal(refused, []string{path}) || slices.Contains(listed, path) {
		p.t.Errorf("%s: refused %q, listed %q, want %q refused", document, refused, listed, path)
	}
	for _, w := range words {
		if !strings.Contains(message, w) {
			p.t.Errorf("%s: %q does not name %s", document, message, w)
		}
	}
	optional := strings.Replace(document, "{", "{optional: true, ", 1)
	if refused, listed, _ := p.report(optional); len(refused) > 0 || !slices.Contains(listed, path) {
		p.t.Errorf("%s: refused %q, listed %q, want %q listed", optional, refused, listed, path)
	}
}
