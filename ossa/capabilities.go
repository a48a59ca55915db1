package ossa

import (
	"fmt"
	"slices"
	"strings"
)

// Host is what a server can do for a document.
type Host struct {
	Store         string // "sqlite", "postgres" or "memory"
	RetentionDays int64  // how long ended calls are kept; 0 = for ever
	// KV is the provider that keeps keys and values in place of the store: "redis", "memcached" or
	// "", for none. Connects is set for the operator's own document, which may name one.
	KV       string
	Connects bool
	// Uploads is set if the operator allows backups in a bucket.
	Uploads bool
	// EmbeddingModel is the model of the server's embeddings, "" for none.
	EmbeddingModel string
	// MaxWorkingMB bounds every working memory, in megabytes; 0 = no bound.
	MaxWorkingMB int64
	// NoSummaries is set if the server makes no summaries.
	NoSummaries bool
}

// operations are the operations of a provider that this server has.
var operations = []string{"get", "set", "delete", "exists", "list", "clear", "search", "batch_get", "batch_set", "expire", "increment"}

// host adds what a valid document asks for and the server cannot do. Only what the document has
// written counts: a default of the schema asks for nothing.
type host struct {
	Host
	given, effective map[string]any
	refused, without []Problem
}

// judge fills in Refused, and adds to what has no effect.
func (c *checker) judge(r *Report, given map[string]any, server Host) {
	h := &host{Host: server, given: given, effective: r.Effective}
	h.shortTerm()
	if isOn(section(r.Effective, "long_term")) {
		h.longTerm(r)
	}
	h.providerInterface()
	h.backup()
	h.migration()
	r.GarbageCollection, r.Compaction = h.garbageCollection(), h.compaction()
	r.Refused = atMost(h.refused)
	c.unsupported = append(c.unsupported, h.without...)
}

// note lists a part that has no effect.
func (h *host) note(path, format string, args ...any) {
	h.without = append(h.without, Problem{path, fmt.Sprintf(format, args...)})
}

// refuse lists a part that the server cannot do. An object with "optional": true makes what stands
// in it optional, so that it is only noted.
func (h *host) refuse(path, format string, args ...any) {
	m := h.given
	for _, name := range split(path) {
		m, _ = m[name].(map[string]any)
		if m["optional"] == true {
			h.note(path, format, args...)
			return
		}
	}
	h.refused = append(h.refused, Problem{path, fmt.Sprintf(format, args...)})
}

// text returns a text of the effective document, or "" unless the document has written it.
func (h *host) text(path string) string {
	names := split(path)
	last := len(names) - 1
	if _, ok := section(h.given, names[:last]...)[names[last]]; !ok {
		return ""
	}
	v, _ := section(h.effective, names[:last]...)[names[last]].(string)
	return v
}

// wants reports whether the document has written a section and it is on.
func (h *host) wants(path string) bool {
	return section(h.given, split(path)...) != nil && isOn(section(h.effective, split(path)...))
}

func (h *host) shortTerm() {
	p, connection := h.text("short_term.provider"), section(h.given, "short_term", "connection")
	external := p == "redis" || p == "memcached"
	connects := h.Connects && h.text("short_term.connection.endpoint") != "" && (external || h.wants("lifecycle.migration"))
	if external && !connects && h.KV != p {
		h.note("short_term.provider", "every memory is kept in this server's store, whatever the provider")
	}
	if connection != nil && !connects {
		h.note("short_term.connection", "is not used: the operator alone connects the server to another one")
	}
	if connects && p == "memcached" {
		h.lacks("list", "search")
	}
	working := section(h.effective, "short_term", "working_memory")
	if working["namespaced"] == false {
		h.note("short_term.working_memory.namespaced", "each agent has its own working memory")
	}
	_, written := section(h.given, "short_term", "working_memory")["max_size_mb"]
	if mb, _ := working["max_size_mb"].(int64); written && isOn(working) && h.MaxWorkingMB > 0 && mb > h.MaxWorkingMB {
		h.note("short_term.working_memory.max_size_mb", "%d is more than the %d megabytes that a working memory may have here: HEARDLOG_MAX_WORKING_MB", mb, h.MaxWorkingMB)
	}
}

// lacks refuses operations that a document requires and its provider cannot do.
func (h *host) lacks(operations ...string) {
	required, _ := section(h.given, "provider_interface")["required_operations"].([]any)
	for i, op := range required {
		m, _ := op.(map[string]any)
		if name, _ := m["name"].(string); slices.Contains(operations, name) {
			h.refuse(fmt.Sprintf("provider_interface.required_operations[%d].name", i), "the provider memcached has no %s", name)
		}
	}
}

func (h *host) longTerm(r *Report) {
	switch p := h.text("long_term.provider"); p {
	case "", h.Store:
	case "sqlite", "postgres":
		h.note("long_term.provider", "this server keeps everything in its own store, which is %s: see HEARDLOG_STORE", h.Store)
	default:
		h.refuse("long_term.provider", "%s does not run here; sqlite and postgres do, and HEARDLOG_STORE names the one in use", p)
	}
	if section(h.given, "long_term", "connection") != nil {
		h.note("long_term.connection", "is not used: HEARDLOG_STORE names the store")
	}
	if p := h.text("long_term.storage_type"); p == "document" || p == "graph" || p == "vector" {
		h.note("long_term.storage_type", "the store is relational, with vectors beside it")
	}
	if h.wants("long_term.knowledge_base") {
		r.KnowledgeBase = h.knowledgeBase()
	}
	if h.wants("long_term.vector_store") {
		h.vectorStore()
	}
	days, _ := section(h.effective, "long_term", "conversation_history")["retention_days"].(int64)
	_, written := section(h.given, "long_term", "conversation_history")["retention_days"]
	if written && h.wants("long_term.conversation_history") && h.RetentionDays > 0 && days > h.RetentionDays {
		h.refuse("long_term.conversation_history.retention_days", "%d is more than the %d days for which this server keeps calls: HEARDLOG_RETENTION", days, h.RetentionDays)
	}
	// The default of the schema asks no model for anything.
	if _, written := section(h.given, "long_term", "conversation_history")["summarization"]; r.History != nil && !written {
		r.History.Summarization = false
	}
	if h.wants("long_term.conversation_history") {
		given := section(h.given, "long_term", "conversation_history")
		history := section(h.effective, "long_term", "conversation_history")
		if history["indexing"] == false {
			h.note("long_term.conversation_history.indexing", "every call of a caller can be found by recall, unless the caller's consent says otherwise")
		}
		if written := given["summarization"] == true; written && h.NoSummaries {
			h.note("long_term.conversation_history.summarization", "this server makes no summaries: HEARDLOG_SUMMARIES is 0")
		}
	}
	if h.wants("long_term.learned_patterns") {
		r.Patterns = h.patterns()
	}
}

// knowledgeBase judges long_term.knowledge_base. It returns nil if that cannot run.
func (h *host) knowledgeBase() *KnowledgeBase {
	m := section(h.effective, "long_term", "knowledge_base")
	b := &KnowledgeBase{}
	b.Schema, _ = m["schema"].(string)
	b.Versioning, _ = m["versioning"].(bool)
	b.MaxEntries, _ = m["max_entries"].(int64)
	if b.Schema == "rdf" {
		h.refuse("long_term.knowledge_base.schema", "rdf does not run here; json_schema and custom do")
		return nil
	}
	return b
}

// patterns judges long_term.learned_patterns.
func (h *host) patterns() *Patterns {
	m := section(h.effective, "long_term", "learned_patterns")
	p := &Patterns{Types: []string{}}
	types, _ := m["pattern_types"].([]any)
	for _, t := range types {
		if t, ok := t.(string); ok && !slices.Contains(p.Types, t) {
			p.Types = append(p.Types, t)
		}
	}
	if m["decay_enabled"] == true {
		p.HalfLifeDays, _ = m["decay_half_life_days"].(int64)
	}
	if m["feedback_integration"] == false {
		h.note("long_term.learned_patterns.feedback_integration", "feedback moves a weight whenever it is posted")
	}
	return p
}

// vectorStore judges long_term.vector_store, which is /v1/vectors here.
func (h *host) vectorStore() {
	given := section(h.given, "long_term", "vector_store")
	if m := h.text("long_term.vector_store.embedding_model"); m != "" && m != h.EmbeddingModel {
		h.note("long_term.vector_store.embedding_model", "the operator chooses the model: HEARDLOG_EMBEDDINGS_MODEL")
	}
	if t := h.text("long_term.vector_store.index_type"); t != "" && t != "flat" {
		h.note("long_term.vector_store.index_type", "every search compares all vectors, as flat does")
	}
	if m := h.text("long_term.vector_store.distance_metric"); m != "" && m != "cosine" {
		h.note("long_term.vector_store.distance_metric", "each search names its metric; without one it is cosine")
	}
	for _, field := range []struct{ name, why string }{
		{"embedding_dimensions", "the first embedding of a collection sets its dimensions"},
		{"max_vectors", "collections have the same limits for all"},
	} {
		if _, ok := given[field.name]; ok {
			h.note("long_term.vector_store."+field.name, "%s", field.why)
		}
	}
}

func (h *host) providerInterface() {
	for _, list := range []struct {
		name string
		add  func(path, format string, args ...any)
	}{{"required_operations", h.refuse}, {"optional_operations", h.note}} {
		given, _ := section(h.effective, "provider_interface")[list.name].([]any)
		for i, op := range given {
			m, _ := op.(map[string]any)
			if name, _ := m["name"].(string); !slices.Contains(operations, name) {
				list.add(fmt.Sprintf("provider_interface.%s[%d].name", list.name, i), "%q is not an operation of this server; there are %s", name, strings.Join(operations, ", "))
			}
		}
	}
	if section(h.given, "provider_interface", "lifecycle_hooks") != nil {
		h.note("provider_interface.lifecycle_hooks", "has no effect: all five hooks are always logged, counted and sent as webhooks")
	}
}

func (h *host) backup() {
	to := h.text("lifecycle.backup.destination")
	switch {
	case h.Connects && h.Store != "memory" && to != "":
		if strings.Contains(to, "://") && !h.Uploads {
			h.note("lifecycle.backup.destination", "nothing is uploaded unless HEARDLOG_CREDENTIAL_REFS lists AWS_SECRET_ACCESS_KEY")
		}
	case h.wants("lifecycle.backup"):
		h.note("lifecycle.backup", "has no effect: backups are the operator's: HEARDLOG_MEMORY_MODEL with a destination, or heardlog backup")
	}
}

// compaction judges lifecycle.compaction. It returns nil if the document has not written it, or it
// cannot run.
func (h *host) compaction() *Compaction {
	const path = "lifecycle.compaction"
	switch {
	case !h.wants(path):
		return nil
	case h.Store == "memory":
		h.note(path, "has no effect: nothing is on a disk")
		return nil
	case !h.Connects:
		h.note(path, "has no effect: the operator compacts the store, by HEARDLOG_MEMORY_MODEL or heardlog compact")
		return nil
	}
	m := section(h.effective, "lifecycle", "compaction")
	var c Compaction
	c.ThresholdPercent, _ = m["threshold_percent"].(int64)
	c.RunIntervalHours, _ = m["run_interval_hours"].(int64)
	return &c
}

// migration judges lifecycle.migration, which moves keys and values between the server's own store
// and the one of short_term.connection.
func (h *host) migration() {
	const path = "lifecycle.migration"
	if !h.wants(path) {
		return
	}
	if !h.Connects {
		h.note(path, "has no effect: the operator alone moves keys and values, by HEARDLOG_MEMORY_MODEL")
		return
	}
	own := func(p string) bool { return p == "in_memory" || p == "local_cache" || p == h.Store }
	external := func(p string) bool { return p == "redis" || p == "memcached" }
	source, target, provider := h.text(path+".source_provider"), h.text(path+".target_provider"), h.text("short_term.provider")
	for _, end := range []struct{ name, provider string }{{"source_provider", source}, {"target_provider", target}} {
		if !own(end.provider) && !external(end.provider) {
			h.refuse(path+"."+end.name, "must be this server's own store, which is in_memory, local_cache or %s, or redis or memcached, not %q", h.Store, end.provider)
			return
		}
	}
	switch {
	case external(source) == external(target):
		h.refuse(path+".target_provider", "keys and values move between this server's own store and another server, not from %s to %s; heardlog migrate moves a whole store", source, target)
	case source == "memcached":
		h.refuse(path+".source_provider", "memcached cannot list its keys, so that they cannot be moved")
	case external(target) && provider != target || own(target) && external(provider):
		h.refuse(path+".target_provider", "%s is not short_term.provider, which keeps keys and values after the migration", target)
	case !isOn(section(h.effective, "short_term")) || h.text("short_term.connection.endpoint") == "":
		h.refuse(path, "needs short_term.connection.endpoint, the address of the other server")
	}
}

// garbageCollection judges lifecycle.garbage_collection. It returns nil if the document has not
// written it, or it cannot run.
func (h *host) garbageCollection() *GarbageCollection {
	const path = "lifecycle.garbage_collection"
	if !h.wants(path) {
		return nil
	}
	if p := h.text("short_term.provider"); h.KV != "" || h.Connects && (p == "redis" || p == "memcached") && h.text("short_term.connection.endpoint") != "" {
		h.note(path, "has no effect: keys and values are in another server, which evicts by its own settings")
		return nil
	}
	m := section(h.effective, "lifecycle", "garbage_collection")
	var c GarbageCollection
	c.Strategy, _ = m["strategy"].(string)
	c.RunIntervalSeconds, _ = m["run_interval_seconds"].(int64)
	c.MaxPercent, _ = m["max_memory_percent"].(int64)
	c.TargetPercent, _ = m["target_memory_percent"].(int64)
	if c.TargetPercent >= c.MaxPercent {
		h.refuse(path+".target_memory_percent", "%d is not below max_memory_percent, which is %d", c.TargetPercent, c.MaxPercent)
		return nil
	}
	return &c
}
