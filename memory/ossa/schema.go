package ossa

import "strings"

// kind is what a value of the model may be.
type kind int

const (
	kindObject kind = iota
	kindFlag
	kindText
	kindNumber
	kindList
)

// node is one place of the model.
type node struct {
	kind     kind
	required bool // in a whole document
	def      any  // bool, int64, string or []any; nil = none
	values   []string
	min, max int64
	children map[string]*node
	names    []string // of the children, in the order of the schema
	items    *node    // of a list
	// given tells that an object gets its defaults only where the document has it.
	given bool
	// opaque tells that ${…} is left as it stands: such values are references to secrets, which are nobody's business here.
	opaque bool
}

func flag(def any) *node { return &node{kind: kindFlag, def: def} }

func word(def any, values ...string) *node { return &node{kind: kindText, def: def, values: values} }

// whole is an integer within bounds; at most noLimit.
func whole(def any, least, most int64) *node {
	return &node{kind: kindNumber, def: def, min: least, max: most}
}

const noLimit = 1 << 53 // what a JSON number holds exactly

func (n *node) must() *node { n.required = true; return n }

// member is one key of an object.
type member struct {
	name string
	node *node
}

func object(members ...member) *node {
	n := &node{kind: kindObject, children: map[string]*node{}}
	for _, m := range members {
		n.names = append(n.names, m.name)
		n.children[m.name] = m.node
	}
	return n
}

// on is an object that can be switched off, which it is not unless that is said.
func on(members ...member) *node {
	return object(append([]member{{"enabled", flag(true)}}, members...)...)
}

func list(def any, items *node) *node { return &node{kind: kindList, def: def, items: items} }

// only makes an object that has defaults only where it is given.
func (n *node) only() *node { n.given = true; return n }

// model is the published schema (reference/memory-semantics.md, the table behind system 004) with every apiVersion of its form.
func model() *node {
	return object(
		member{"apiVersion", word(nil).must()},
		member{"kind", word(nil, "MemoryModel").must()},
		member{"short_term", object(
			member{"enabled", flag(true).must()},
			member{"provider", word("in_memory", "in_memory", "redis", "memcached", "local_cache")},
			member{"conversation_context", on(
				member{"max_messages", whole(int64(100), 1, 10000)},
				member{"max_tokens", whole(int64(32000), 1000, 200000)},
				member{"truncation_strategy", word("sliding_window", "sliding_window", "summarize", "oldest_first", "importance_based")},
				member{"include_system_messages", flag(true)},
				member{"include_tool_results", flag(true)},
			)},
			member{"working_memory", on(
				member{"max_size_mb", whole(int64(64), 1, 1024)},
				member{"ttl_seconds", whole(int64(3600), 60, 86400)},
				member{"namespaced", flag(true)},
			)},
			member{"session_state", on(
				member{"session_ttl_seconds", whole(int64(3600), 60, 86400)},
				member{"persist_across_invocations", flag(false)},
				member{"max_sessions", whole(int64(100), 1, 10000)},
			)},
			member{"connection", connection()},
		).must()},
		member{"long_term", longTerm().only().must()},
		member{"provider_interface", providerInterface().only()},
		member{"lifecycle", lifecycle().only()},
	)
}

func longTerm() *node {
	return object(
		member{"enabled", flag(true).must()},
		member{"provider", word("postgres", "postgres", "mongodb", "sqlite", "dynamodb", "neo4j", "qdrant", "pinecone", "weaviate", "chromadb", "milvus", "redis", "file_system")},
		member{"storage_type", word("hybrid", "relational", "document", "vector", "graph", "hybrid")},
		member{"knowledge_base", on(
			member{"schema", word("json_schema", "json_schema", "rdf", "custom")},
			member{"versioning", flag(true)},
			member{"max_entries", whole(int64(100_000), 100, 10_000_000)},
		)},
		member{"vector_store", on(
			member{"embedding_model", word("${EMBEDDING_MODEL:-text-embedding-3-small}")},
			member{"embedding_dimensions", whole(int64(1536), 64, 4096)},
			member{"distance_metric", word("cosine", "cosine", "euclidean", "dot_product")},
			member{"index_type", word("hnsw", "flat", "hnsw", "ivf", "scann")},
			member{"max_vectors", whole(int64(1_000_000), 1000, noLimit)},
		)},
		member{"conversation_history", on(
			member{"retention_days", whole(int64(90), 1, 3650)},
			member{"indexing", flag(true)},
			member{"summarization", flag(true)},
		)},
		member{"agent_state", on(
			member{"checkpoint_interval_seconds", whole(int64(60), 10, 3600)},
			member{"max_checkpoints", whole(int64(10), 1, 100)},
			member{"compression", flag(true)},
		)},
		member{"learned_patterns", on(
			member{"feedback_integration", flag(true)},
			member{"pattern_types", list([]any{"task_completion", "error_recovery"},
				word(nil, "task_completion", "error_recovery", "user_preferences", "tool_usage", "delegation_patterns"))},
			member{"decay_enabled", flag(true)},
			member{"decay_half_life_days", whole(int64(30), 1, 365)},
		)},
		member{"connection", connection()},
	)
}

func providerInterface() *node {
	hooks := object().only()
	for _, name := range strings.Fields("on_init on_shutdown on_error on_connection_lost on_connection_restored") {
		hooks.names = append(hooks.names, name)
		hooks.children[name] = word(nil)
	}
	return object(
		member{"version", word(nil, "1.0")},
		member{"required_operations", list(nil, operation())},
		member{"optional_operations", list(nil, operation())},
		member{"lifecycle_hooks", hooks},
	)
}

func operation() *node {
	return object(
		member{"name", word(nil).must()},
		member{"description", word(nil).must()},
		member{"parameters", object().only()},
		member{"returns", object(
			member{"type", word(nil)},
			member{"nullable", flag(nil)},
			member{"items", object().only()},
		).only()},
		member{"idempotent", flag(false)},
		member{"async", flag(false)},
	)
}

func lifecycle() *node {
	return object(
		member{"garbage_collection", on(
			member{"strategy", word("hybrid", "lru", "lfu", "ttl", "size_based", "hybrid")},
			member{"run_interval_seconds", whole(int64(3600), 60, 86400)},
			member{"max_memory_percent", whole(int64(80), 50, 95)},
			member{"target_memory_percent", whole(int64(60), 30, 80)},
		)},
		member{"backup", on(
			member{"interval_hours", whole(int64(24), 1, 168)},
			member{"retention_count", whole(int64(7), 1, 30)},
			member{"destination", word(nil)},
			member{"encryption", flag(true)},
		)},
		member{"compaction", on(
			member{"threshold_percent", whole(int64(30), 10, 50)},
			member{"run_interval_hours", whole(int64(24), 1, 168)},
		)},
		member{"migration", object(
			member{"enabled", flag(false)},
			member{"source_provider", word(nil)},
			member{"target_provider", word(nil)},
			member{"batch_size", whole(int64(1000), 100, 10000)},
			member{"verify_integrity", flag(true)},
		)},
	)
}

// connection is how a provider is reached, which Heardlog never does: its store is the server's own.
func connection() *node {
	n := object(
		member{"endpoint", word(nil)},
		member{"credentials_ref", word(nil)},
		member{"pool_size", whole(int64(10), 1, 100)},
		member{"timeout_seconds", whole(int64(30), 1, 300)},
		member{"retry_policy", object(
			member{"max_attempts", whole(int64(3), -noLimit, noLimit)},
			member{"backoff", word("exponential", "exponential", "linear", "constant")},
			member{"initial_delay_ms", whole(int64(100), -noLimit, noLimit)},
			member{"max_delay_ms", whole(int64(10000), -noLimit, noLimit)},
		)},
		member{"ssl", object(
			member{"enabled", flag(true)},
			member{"verify", flag(true)},
			member{"ca_cert_ref", word(nil)},
			member{"client_cert_ref", word(nil)},
		)},
	)
	n.conceal()
	return n.only()
}

func (n *node) conceal() {
	n.opaque = true
	for _, c := range n.children {
		c.conceal()
	}
}

// part finds an object of the model by its path, "" being all of it; nil if there is none.
func (n *node) part(path string) *node {
	if path == "" {
		return n
	}
	for name := range strings.SplitSeq(path, ".") {
		if n = n.children[name]; n == nil || n.kind != kindObject {
			return nil
		}
	}
	return n
}
