package ossa_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/ossa"
)

// least is the shortest whole document.
const least = `{"apiVersion":"ossa/v0.3.2","kind":"MemoryModel","short_term":{"enabled":true},"long_term":{"enabled":false}}`

// with returns a whole document with the given halves.
func with(short, long string) string {
	return fmt.Sprintf(`{"apiVersion":"ossa/v0.4.9","kind":"MemoryModel","short_term":%s,"long_term":%s}`, short, long)
}

func validate(t *testing.T, d ossa.Document) ossa.Report {
	t.Helper()
	r, err := ossa.Validate(d)
	if err != nil {
		t.Fatalf("%s: %v", d.JSON, err)
	}
	if r.Valid != (len(r.Errors) == 0) {
		t.Fatalf("valid %v with the errors %v", r.Valid, r.Errors)
	}
	return r
}

func read(t *testing.T, doc string) ossa.Report {
	t.Helper()
	return validate(t, ossa.Document{JSON: []byte(doc)})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDefaults: what a whole document may leave out, and what it then means here.
//
// Rules: 004-3, 004-4, 004-6, 004-7
func TestDefaults(t *testing.T) {
	t.Parallel()
	r := read(t, least)
	const want = `{"connection":{"pool_size":10,"retry_policy":{"backoff":"exponential","initial_delay_ms":100,"max_attempts":3,"max_delay_ms":10000},` +
		`"ssl":{"enabled":true,"verify":true},"timeout_seconds":30},"conversation_context":{"enabled":true,"include_system_messages":true,"include_tool_results":true,"max_messages":100,"max_tokens":32000,` +
		`"truncation_strategy":"sliding_window"},"enabled":true,"provider":"in_memory","session_state":{"enabled":true,"max_sessions":100,` +
		`"persist_across_invocations":false,"session_ttl_seconds":3600},"working_memory":{"enabled":true,"max_size_mb":64,"namespaced":true,"ttl_seconds":3600}}`
	if got := asJSON(t, r.Effective["short_term"]); got != want {
		t.Errorf("short term %s", got)
	}
	if d := cmp.Diff(window.Merge(window.Policy{Preset: "ossa"}), r.Policy.Full()); d != "" {
		t.Errorf("the defaults are not the preset (-preset +got):\n%s", d)
	}
	if err := r.Policy.Validate("policy"); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(&ossa.Session{TTLSeconds: 3600}, r.Session); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&ossa.WorkingMemory{Enabled: true, MaxSizeMB: 64, TTLSeconds: 3600}, r.WorkingMemory); d != "" {
		t.Error(d)
	}
	if len(r.NotSupported) != 0 {
		t.Errorf("not supported: %v", r.NotSupported)
	}
}

// TestEveryDefault: the effective form of a short document shows each default of schema.json, also
// of objects that the document lacks. None of them is listed as without effect.
func TestEveryDefault(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		node
		Defs map[string]node `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	whole := strings.Replace(least, `{"enabled":false}`, `{"enabled":true}`, 1)
	for _, d := range []ossa.Document{{JSON: []byte(whole)}, {JSON: []byte(`{}`), Part: ossa.All}} {
		r := validate(t, d)
		n := 0
		var walk func(path string, s node, have any)
		walk = func(path string, s node, have any) {
			m, _ := have.(map[string]any)
			for name, child := range s.Properties {
				if ref, ok := strings.CutPrefix(child.Ref, "#/$defs/"); ok {
					child = schema.Defs[ref]
				}
				switch want := string(child.Default); {
				case want == "":
					continue
				case len(child.Properties) == 0:
					n++
					want = strings.Replace(want, "${EMBEDDING_MODEL:-text-embedding-3-small}", "text-embedding-3-small", 1)
					if got := strings.ReplaceAll(asJSON(t, m[name]), ",", ", "); got != want {
						t.Errorf("part %q: %s.%s is %s, want %s", d.Part, path, name, got, want)
					}
				default:
					walk(path+"."+name, child, m[name])
				}
			}
		}
		walk("", schema.node, r.Effective)
		if n < 60 {
			t.Errorf("part %q: only %d defaults were found", d.Part, n)
		}
		if got := paths(append(r.NotSupported, r.Refused...)); got != "" {
			t.Errorf("part %q: not supported %q", d.Part, got)
		}
	}
}

// node is a part of schema.json.
type node struct {
	Ref        string          `json:"$ref"`
	Default    json.RawMessage `json:"default"`
	Properties map[string]node `json:"properties"`
}

// TestMeaning: values of a document set policy, session and working memory; those without effect
// are listed.
//
// Rules: 004-3, 004-4, 004-6, 004-7
func TestMeaning(t *testing.T) {
	t.Parallel()
	r := read(t, with(`{"enabled":true,"provider":"redis","conversation_context":{"max_messages":7,"max_tokens":1000,"truncation_strategy":"importance_based",
		"include_system_messages":false,"include_tool_results":false},"working_memory":{"max_size_mb":1024,"ttl_seconds":60,"namespaced":false},
		"session_state":{"session_ttl_seconds":86400,"persist_across_invocations":true,"max_sessions":3},"connection":{"pool_size":4},"colour":"red"}`, `{"enabled":true}`))
	if got, want := asJSON(t, r.Policy), `{"preset":"limits","max_messages":7,"max_tokens":1000,"include_system":false,"include_tool_results":false,"strategy":"importance_based"}`; got != want {
		t.Errorf("policy %s", got)
	}
	if d := cmp.Diff(&ossa.Session{TTLSeconds: 86400, Persist: true}, r.Session); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&ossa.WorkingMemory{Enabled: true, MaxSizeMB: 1024, TTLSeconds: 60}, r.WorkingMemory); d != "" {
		t.Error(d)
	}
	var paths []string
	for _, p := range r.NotSupported {
		paths = append(paths, p.Path)
	}
	if d := cmp.Diff([]string{
		"short_term.colour", "short_term.provider", "short_term.connection", "short_term.working_memory.namespaced",
	}, paths); d != "" {
		t.Errorf("not supported (-want +got):\n%s", d)
	}
	for _, strategy := range []string{"sliding_window", "summarize", "oldest_first", "importance_based"} {
		r := read(t, with(`{"enabled":true,"conversation_context":{"truncation_strategy":"`+strategy+`"}}`, `{"enabled":false}`))
		if string(r.Policy.Strategy) != strategy || r.Policy.Validate("policy") != nil {
			t.Errorf("%s became %q, %v", strategy, r.Policy.Strategy, r.Policy.Validate("policy"))
		}
	}
	for _, off := range []string{`{"enabled":false}`, `{"enabled":true,"conversation_context":{"enabled":false},"working_memory":{"enabled":false},"session_state":{"enabled":false}}`} {
		r := read(t, with(off, `{"enabled":false}`))
		if *r.Policy.Full().Enabled || r.WorkingMemory.Enabled || r.Session != nil {
			t.Errorf("%s: policy %s, working memory %+v, session %+v", off, asJSON(t, r.Policy), r.WorkingMemory, r.Session)
		}
	}
}

// TestRequired: four keys of a document and enabled in both halves; any version, and nothing of a
// part.
//
// Rules: 004-1
func TestRequired(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		least: "",
		`{}`:  "apiVersion kind short_term long_term",
		`{"apiVersion":"ossa/v0.3.2","kind":"MemoryModel"}`: "short_term long_term",
		with(`{}`, `{}`): "long_term.enabled short_term.enabled",
		strings.Replace(least, "0.3.2", "0.4.9", 1):                   "",
		strings.Replace(least, "0.3.2", "12.0.345", 1):                "",
		strings.Replace(least, "0.3.2", "0.3", 1):                     "apiVersion",
		strings.Replace(least, "ossa/v0.3.2", "ossa/v0.3.2\\n", 1):    "apiVersion",
		strings.Replace(least, "ossa/v", "", 1):                       "apiVersion",
		strings.Replace(least, "MemoryModel", "Agent", 1):             "kind",
		strings.Replace(least, `"MemoryModel"`, `["MemoryModel"]`, 1): "kind",
	} {
		if got := paths(read(t, doc).Errors); got != want {
			t.Errorf("%s: errors at %q, want %q", doc, got, want)
		}
	}
	for _, tt := range []struct{ part, doc, effective string }{
		{ossa.All, `{"short_term":{"working_memory":{"ttl_seconds":90}}}`, ""},
		{"short_term", `{}`, ""},
		{"short_term.working_memory", `{"ttl_seconds":90}`, `{"short_term":{"working_memory":{"enabled":true,"max_size_mb":64,"namespaced":true,"ttl_seconds":90}}}`},
		{"long_term.vector_store", `{"index_type":"flat"}`, `{"long_term":{"vector_store":{"distance_metric":"cosine","embedding_dimensions":1536,` +
			`"embedding_model":"text-embedding-3-small","enabled":true,"index_type":"flat","max_vectors":1000000}}}`},
		{"lifecycle.migration", `{}`, `{"lifecycle":{"migration":{"batch_size":1000,"enabled":false,"verify_integrity":true}}}`},
	} {
		r := validate(t, ossa.Document{JSON: []byte(tt.doc), Part: tt.part})
		if got := asJSON(t, r.Effective); !r.Valid || tt.effective != "" && got != tt.effective {
			t.Errorf("%s: %v, %s", tt.part, r.Errors, got)
		}
	}
	for _, part := range []string{"short_term.nothing", "short_term.provider", "medium_term", ".", "short_term."} {
		if _, err := ossa.Validate(ossa.Document{JSON: []byte(`{}`), Part: part}); !fault.Is(err, fault.Invalid) {
			t.Errorf("part %q: %v", part, err)
		}
	}
	for _, doc := range []string{``, `[]`, `null`, `"x"`, `{} {}`, `{`} {
		if _, err := ossa.Validate(ossa.Document{JSON: []byte(doc)}); !fault.Is(err, fault.BadRequest) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func paths(list []ossa.Problem) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Path)
	}
	return strings.Join(out, " ")
}

// TestOpen: no object is closed. What is not known passes, stays, and is named, wherever it stands.
//
// Rules: 004-1
func TestOpen(t *testing.T) {
	t.Parallel()
	r := read(t, strings.Replace(with(`{"enabled":true,"x":{"y":[1.50,null]},"connection":{"tls":1}}`, `{"enabled":false,"vector_store":{"z":"${NOT_LOOKED_AT}"}}`), `{`, `{"a":1e400,`, 1))
	if !r.Valid {
		t.Fatal(r.Errors)
	}
	if got, want := paths(r.NotSupported), "a long_term.vector_store.z short_term.connection.tls short_term.x short_term.connection"; got != want {
		t.Errorf("not supported %q, want %q", got, want)
	}
	short := asJSON(t, r.Effective["short_term"])
	if !strings.Contains(short, `"x":{"y":[1.50,null]}`) || !strings.Contains(short, `"connection":{"pool_size":10,`) {
		t.Errorf("effective %s", short)
	}
}

// TestVariables: they come with the document or have a default; nothing comes from this process.
//
// Rules: 004-2
func TestVariables(t *testing.T) {
	t.Setenv("OSSA_SECRET", "from the environment")
	for _, tt := range []struct{ name, model, want, err string }{
		{"default", "${EMBEDDING_MODEL:-small}", "small", ""},
		{"given", "a-${GIVEN}-b", "a-given-b", ""},
		{"given before the default", "${GIVEN:-x}", "given", ""},
		{"twice", "${GIVEN}${GIVEN}", "givengiven", ""},
		{"empty takes the default", "${EMPTY:-x}", "x", ""},
		{"empty without one", "${EMPTY}", "", ""},
		{"empty default", "${NONE:-}", "", ""},
		{"nested", "${NONE:-${ALSO_NONE:-${GIVEN}!}?}", "given!?", ""},
		{"not looked at again", "${REFERS}", "${GIVEN}", ""},
		{"dollars and braces", "$GIVEN {x} $", "$GIVEN {x} $", ""},
		{"the environment", "${OSSA_SECRET:-not read}", "not read", ""},
		{"the environment without default", "${OSSA_SECRET}", "", "OSSA_SECRET"},
		{"none", "${NONE}", "", "the variable NONE"},
		{"open", "${GIVEN", "", "without its }"},
		{"no name", "${}", "", "neither"},
		{"odd name", "${1A:-x}", "", "neither"},
		{"another operator", "${GIVEN:+x}", "", "neither"},
		{"deep", strings.Repeat("${N:-", 20) + strings.Repeat("}", 20), "", "nest deeper"},
	} {
		r := validate(t, ossa.Document{
			JSON: fmt.Appendf(nil, `{"embedding_model":%q}`, tt.model), Part: "long_term.vector_store",
			Variables: map[string]string{"GIVEN": "given", "EMPTY": "", "REFERS": "${GIVEN}"},
		})
		if tt.err != "" {
			if r.Valid || paths(r.Errors) != "long_term.vector_store.embedding_model" || !strings.Contains(r.Errors[0].Message, tt.err) {
				t.Errorf("%s: %+v", tt.name, r)
			}
			if strings.Contains(asJSON(t, r), "from the environment") {
				t.Errorf("%s: the environment shows: %+v", tt.name, r)
			}
			continue
		}
		if got := asJSON(t, r.Effective["long_term"]); !r.Valid || !strings.Contains(got, fmt.Sprintf(`"embedding_model":%q`, tt.want)) {
			t.Errorf("%s: %v, %s", tt.name, r.Errors, got)
		}
	}
	r := validate(t, ossa.Document{JSON: []byte(`{}`), Part: "long_term.vector_store", Variables: map[string]string{"EMBEDDING_MODEL": "large"}})
	if !strings.Contains(asJSON(t, r.Effective), `"embedding_model":"large"`) {
		t.Errorf("the schema's own default: %s", asJSON(t, r.Effective))
	}
}

// TestVariablesOfOtherKinds: a variable may be a number or a boolean; errors do not show its value;
// references to secrets stay as they are.
//
// Rules: 004-2
func TestVariablesOfOtherKinds(t *testing.T) {
	t.Parallel()
	doc := `{"conversation_context":{"enabled":"${ON:-true}","max_messages":"${N}0","truncation_strategy":"${S:-summarize}"},"connection":{"credentials_ref":"${REDIS_PASSWORD}","pool_size":"${POOL}"}}`
	r := validate(t, ossa.Document{JSON: []byte(doc), Part: "short_term", Variables: map[string]string{"N": "20", "REDIS_PASSWORD": "hunter2", "ON": ""}})
	if !r.Valid || *r.Policy.MaxMessages != 200 || r.Policy.Strategy != window.Summarize || r.Policy.Enabled != nil {
		t.Fatalf("%v, %s", r.Errors, asJSON(t, r.Policy))
	}
	if got := asJSON(t, r); strings.Contains(got, "hunter2") || !strings.Contains(got, `"credentials_ref":"${REDIS_PASSWORD}"`) {
		t.Errorf("a secret was put in: %s", got)
	}
	r = validate(t, ossa.Document{JSON: []byte(doc), Part: "short_term", Variables: map[string]string{"N": "hunter2"}})
	if got := asJSON(t, r); paths(r.Errors) != "short_term.conversation_context.max_messages" || strings.Contains(got, "hunter2") {
		t.Errorf("%s", got)
	}
	large := strings.Repeat("x", 1000)
	r = validate(t, ossa.Document{
		JSON: []byte(`{"endpoint":"x","embedding_model":"` + strings.Repeat("${L}", 2000) + `"}`), Part: "long_term.vector_store", Variables: map[string]string{"L": large},
	})
	if r.Valid || !strings.Contains(r.Errors[0].Message, "longer than") {
		t.Errorf("values without end: %+v", r.Errors)
	}
	for _, text := range []string{`"100"`, `"true"`} { // which no variable made
		if r := validate(t, ossa.Document{JSON: []byte(`{"max_messages":` + text + `,"enabled":` + text + `}`), Part: "short_term.conversation_context"}); len(r.Errors) != 2 {
			t.Errorf("%s: %v", text, r.Errors)
		}
	}
}

// TestBounds: the smallest and the largest value of every key pass, and values beyond them do not.
//
// Rules: 004-1
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, row := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Fields(row)
		path, kind := cells[0], cells[1]
		part, key, _ := cutLast(path)
		check := func(value string, valid bool) {
			t.Helper()
			r := validate(t, ossa.Document{JSON: fmt.Appendf(nil, `{%q:%s}`, key, value), Part: part})
			if r.Valid != valid || !valid && !strings.HasPrefix(paths(r.Errors), path) {
				t.Errorf("%s = %s: valid %v, %v", path, value, r.Valid, r.Errors)
			}
		}
		check("null", false)
		check("{}", false)
		switch kind {
		case "boolean":
			check("true", true)
			check("false", true)
			check("0", false)
		case "integer":
			var least, most int
			if _, err := fmt.Sscan(cells[2], &least); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint(least), true)
			check(fmt.Sprint(least)+".0", true)
			check(fmt.Sprint(least-1), false)
			check(fmt.Sprint(least)+".5", false)
			check("1e400", false)
			if cells[3] != "-" {
				if _, err := fmt.Sscan(cells[3], &most); err != nil {
					t.Fatal(err)
				}
				check(fmt.Sprint(most), true)
				check(fmt.Sprint(most+1), false)
			}
		case "one":
			for _, v := range cells[2:] {
				check(fmt.Sprintf("%q", v), true)
			}
			check(`"something else"`, false)
			check(`"`+strings.ToUpper(cells[2])+`x"`, false)
		case "text":
			check(`"anything"`, true)
			check("1", false)
		case "list":
			check(`[]`, true)
			for _, v := range cells[2:] {
				check(fmt.Sprintf("[%q]", v), true)
			}
			check(`["something else"]`, false)
			check(`"`+cells[2]+`"`, false)
		}
	}
}

func cutLast(path string) (before, after string, ok bool) {
	i := strings.LastIndex(path, ".")
	return path[:i], path[i+1:], true
}

// table is the published schema once more, in the form of a test.
const table = `
short_term.enabled boolean
short_term.provider one in_memory redis memcached local_cache
short_term.conversation_context.enabled boolean
short_term.conversation_context.max_messages integer 1 10000
short_term.conversation_context.max_tokens integer 1000 200000
short_term.conversation_context.truncation_strategy one sliding_window summarize oldest_first importance_based
short_term.conversation_context.include_system_messages boolean
short_term.conversation_context.include_tool_results boolean
short_term.working_memory.enabled boolean
short_term.working_memory.max_size_mb integer 1 1024
short_term.working_memory.ttl_seconds integer 60 86400
short_term.working_memory.namespaced boolean
short_term.session_state.enabled boolean
short_term.session_state.session_ttl_seconds integer 60 86400
short_term.session_state.persist_across_invocations boolean
short_term.session_state.max_sessions integer 1 10000
long_term.enabled boolean
long_term.provider one postgres mongodb sqlite dynamodb neo4j qdrant pinecone weaviate chromadb milvus redis file_system
long_term.storage_type one relational document vector graph hybrid
long_term.knowledge_base.enabled boolean
long_term.knowledge_base.schema one json_schema rdf custom
long_term.knowledge_base.versioning boolean
long_term.knowledge_base.max_entries integer 100 10000000
long_term.vector_store.enabled boolean
long_term.vector_store.embedding_model text
long_term.vector_store.embedding_dimensions integer 64 4096
long_term.vector_store.distance_metric one cosine euclidean dot_product
long_term.vector_store.index_type one flat hnsw ivf scann
long_term.vector_store.max_vectors integer 1000 -
long_term.conversation_history.enabled boolean
long_term.conversation_history.retention_days integer 1 3650
long_term.conversation_history.indexing boolean
long_term.conversation_history.summarization boolean
long_term.agent_state.enabled boolean
long_term.agent_state.checkpoint_interval_seconds integer 10 3600
long_term.agent_state.max_checkpoints integer 1 100
long_term.agent_state.compression boolean
long_term.learned_patterns.enabled boolean
long_term.learned_patterns.feedback_integration boolean
long_term.learned_patterns.pattern_types list task_completion error_recovery user_preferences tool_usage delegation_patterns
long_term.learned_patterns.decay_enabled boolean
long_term.learned_patterns.decay_half_life_days integer 1 365
provider_interface.version one 1.0
provider_interface.lifecycle_hooks.on_init text
provider_interface.lifecycle_hooks.on_shutdown text
provider_interface.lifecycle_hooks.on_error text
provider_interface.lifecycle_hooks.on_connection_lost text
provider_interface.lifecycle_hooks.on_connection_restored text
lifecycle.garbage_collection.enabled boolean
lifecycle.garbage_collection.strategy one lru lfu ttl size_based hybrid
lifecycle.garbage_collection.run_interval_seconds integer 60 86400
lifecycle.garbage_collection.max_memory_percent integer 50 95
lifecycle.garbage_collection.target_memory_percent integer 30 80
lifecycle.backup.enabled boolean
lifecycle.backup.interval_hours integer 1 168
lifecycle.backup.retention_count integer 1 30
lifecycle.backup.destination text
lifecycle.backup.encryption boolean
lifecycle.compaction.enabled boolean
lifecycle.compaction.threshold_percent integer 10 50
lifecycle.compaction.run_interval_hours integer 1 168
lifecycle.migration.enabled boolean
lifecycle.migration.source_provider text
lifecycle.migration.target_provider text
lifecycle.migration.batch_size integer 100 10000
lifecycle.migration.verify_integrity boolean
short_term.connection.endpoint text
long_term.connection.credentials_ref text
short_term.connection.pool_size integer 1 100
long_term.connection.timeout_seconds integer 1 300
short_term.connection.retry_policy.backoff one exponential linear constant
short_term.connection.ssl.enabled boolean
short_term.connection.ssl.verify boolean
short_term.connection.ssl.ca_cert_ref text
short_term.connection.ssl.client_cert_ref text
`

// TestOperations: a provider's operations are read by their own schema, with the place of each
// error.
func TestOperations(t *testing.T) {
	t.Parallel()
	r := validate(t, ossa.Document{Part: "provider_interface", JSON: []byte(`{"version":"1.0","required_operations":[
		{"name":"get","description":"one","parameters":{"key":{"type":"string","required":true}},"returns":{"type":"object","nullable":true}},7,
		{"name":1,"description":"two","async":"no"},{"description":"three","returns":[]}]}`)})
	if got, want := paths(r.Errors), "provider_interface.required_operations[1] provider_interface.required_operations[2].async provider_interface.required_operations[2].name "+
		"provider_interface.required_operations[3].returns"; got != want {
		t.Errorf("errors at %q, want %q", got, want)
	}
	many := validate(t, ossa.Document{Part: "provider_interface", JSON: []byte(`{"optional_operations":[` + strings.Repeat("1,", 500) + `1]}`)})
	if n := len(many.Errors); n != ossa.MaxProblems+1 || many.Errors[n-1].Message != "there are 401 more" {
		t.Errorf("%d errors, the last %+v", n, many.Errors[n-1])
	}
}

// TestNoEndpoint: a provider that no endpoint names is not used, and the report says so.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{"": "short_term.provider short_term.connection", "redis:6379": "", "${REDIS}": ""} {
		r := validate(t, ossa.Document{
			Part: "short_term", JSON: []byte(`{"provider":"redis","connection":{"endpoint":"` + endpoint + `"}}`),
			Host: ossa.Host{Store: "sqlite", Connects: true},
		})
		if got := paths(r.NotSupported); got != want {
			t.Errorf("%q: not supported at %q, want %q", endpoint, got, want)
		}
	}
	r := validate(t, ossa.Document{
		Part: "model", JSON: []byte(`{"short_term":{"connection":{"endpoint":""}},"lifecycle":{"migration":{"enabled":true,"source_provider":"redis","target_provider":"in_memory"}}}`),
		Host: ossa.Host{Store: "sqlite", Connects: true},
	})
	if got := paths(r.Refused); got != "lifecycle.migration" {
		t.Errorf("refused at %q", got)
	}
}

// FuzzValidate: no document brings it down, and what it calls valid has a policy that can be
// followed.
func FuzzValidate(f *testing.F) {
	f.Add(least, "", "A", "x")
	f.Add(`{"conversation_context":{"max_messages":"${A:-${B:-1}}"}}`, "short_term", "A", "1e3")
	f.Add(`{"a":"${","b":{"${A}":[{}]}}`, "model", "A", "${A}")
	f.Fuzz(func(t *testing.T, doc, part, name, value string) {
		r, err := ossa.Validate(ossa.Document{JSON: []byte(doc), Part: part, Variables: map[string]string{name: value}})
		if err != nil {
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("cannot be told: %v", err)
		}
		if r.Valid && r.Policy != nil && r.Policy.Validate("policy") != nil {
			t.Errorf("policy %+v: %v", r.Policy, r.Policy.Validate("policy"))
		}
	})
}

// TestToJSON: a document in YAML has the form of JSON, or an error that names the line.
func TestToJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 1\nb: [x, true, null, 1.5]\n": `{"a":1,"b":["x",true,null,1.5]}`,
		"%YAML 1.2\n---\na: 1\n":          `{"a":1}`,
		"a: {<<: {b: 1}, c: 2}\n":         `{"a":{"b":1,"c":2}}`,
		"a: 0x10\nb: 1_000\nc: 1e3\n":     `{"a":16,"b":1000,"c":1000}`,
		`{"a": [`:                         `{"a": [`,
	} {
		if got, err := ossa.ToJSON([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q became %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		" \n":                               "is empty",
		"a: 1\n2001-01-01: x\n":             "line 2 of the document has a key that is not text: 2001-01-01; write it in quotes",
		"a:\n  1: x\n":                      "line 2 of the document has a key that is not text: 1;",
		"a:\n  ? {b: 1}\n  : x\n":           "line 2 of the document has a key that is not text: a list or a mapping",
		"a: 1\nb: -.inf\n":                  "line 2 of the document has the number -.inf",
		"a: .NaN\n":                         "line 1 of the document has the number .NaN",
		"a: &x [1]\nb: [*x, *x]\n":          "line 2 of the document has a YAML alias",
		"a: 1\na: 2\n":                      "line 2",
		"a: 1\n---\nb: 1\n":                 "more than one",
		strings.Repeat("- ", 100_000) + "x": "depth",
	} {
		if got, err := ossa.ToJSON([]byte(text)); !fault.Is(err, fault.BadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %s, %v; want %q", text, got, err, want)
		}
	}
}
