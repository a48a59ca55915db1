package ossa

import (
	"github.com/heardlog/heardlog/memory/window"
)

// section returns an object of the effective document, or nil if there is none.
func section(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// isOn reports whether an object is enabled, which is the default.
func isOn(m map[string]any) bool {
	v, ok := m["enabled"].(bool)
	return !ok || v
}

// setMeaning sets Policy, Session and WorkingMemory from short_term. The document is valid, so its
// values have the types of the schema.
func (r *Report) setMeaning() {
	short := section(r.Effective, "short_term")
	if short == nil {
		return
	}
	on := isOn(short)
	if m := section(short, "conversation_context"); m != nil {
		r.Policy = policy(m, on)
	}
	if m := section(short, "working_memory"); m != nil {
		r.WorkingMemory = &WorkingMemory{Enabled: on && isOn(m)}
		if r.WorkingMemory.Enabled {
			r.WorkingMemory.MaxSizeMB, _ = m["max_size_mb"].(int64)
			r.WorkingMemory.TTLSeconds, _ = m["ttl_seconds"].(int64)
		}
	}
	if m := section(short, "session_state"); m != nil && on && isOn(m) {
		r.Session = &Session{}
		r.Session.TTLSeconds, _ = m["session_ttl_seconds"].(int64)
		r.Session.Persist, _ = m["persist_across_invocations"].(bool)
	}
}

// policy returns the window policy of a conversation_context. It names a preset, so policies of the
// project and the server have no part in it.
func policy(m map[string]any, on bool) *window.Policy {
	p := &window.Policy{Preset: "limits"}
	if !on || !isOn(m) {
		p.Enabled = new(false)
		return p
	}
	number := func(name string) *int {
		n, _ := m[name].(int64)
		return new(int(n))
	}
	boolean := func(name string) *bool {
		v, _ := m[name].(bool)
		return &v
	}
	strategy, _ := m["truncation_strategy"].(string)
	p.MaxMessages, p.MaxTokens = number("max_messages"), number("max_tokens")
	p.IncludeSystem, p.IncludeToolResults = boolean("include_system_messages"), boolean("include_tool_results")
	p.Strategy = window.Strategy(strategy)
	return p
}

// addUnsupported notes the parts of a valid document that have no effect. m is the effective
// document, and given is as the sender wrote it: what only a default put in is not noted.
func (c *checker) addUnsupported(m, given map[string]any) {
	note := func(path, why string) { c.unsupported = append(c.unsupported, Problem{path, why}) }
	short := section(m, "short_term")
	if p, _ := short["provider"].(string); p != "in_memory" && p != "" {
		note("short_term.provider", "every memory is kept in this server's store, whatever the provider")
	}
	if section(given, "short_term", "connection") != nil {
		note("short_term.connection", "Heardlog connects to nothing: the memory is in this server's store")
	}
	if section(short, "working_memory")["namespaced"] == false {
		note("short_term.working_memory.namespaced", "each agent has its own working memory")
	}
	if _, ok := section(given, "short_term", "session_state")["max_sessions"]; ok {
		note("short_term.session_state.max_sessions", "the server limits the agents of a project: HEARDLOG_MAX_AGENTS, HEARDLOG_OVER_MAX_AGENTS")
	}
	if section(given, "long_term") != nil && isOn(section(m, "long_term")) {
		note("long_term", "is only checked")
	}
	for _, name := range []string{"provider_interface", "lifecycle"} {
		if section(given, name) != nil {
			note(name, "is only checked")
		}
	}
}
