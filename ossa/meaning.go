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

// setMeaning sets what the sections mean here. The document is valid, so its values have the types
// of the schema.
func (r *Report) setMeaning() {
	if short := section(r.Effective, "short_term"); short != nil {
		r.setShort(short, isOn(short))
	}
	if long := section(r.Effective, "long_term"); long != nil && isOn(long) {
		r.setLong(long)
	}
}

func (r *Report) setShort(short map[string]any, on bool) {
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
		r.MaxSessions, _ = m["max_sessions"].(int64)
	}
}

func (r *Report) setLong(long map[string]any) {
	if m := section(long, "agent_state"); m != nil && isOn(m) {
		r.AgentState = &AgentState{}
		r.AgentState.IntervalSeconds, _ = m["checkpoint_interval_seconds"].(int64)
		r.AgentState.MaxCheckpoints, _ = m["max_checkpoints"].(int64)
		r.AgentState.Compression, _ = m["compression"].(bool)
	}
	if m := section(long, "conversation_history"); m != nil && isOn(m) {
		r.History = &History{}
		r.History.RetentionDays, _ = m["retention_days"].(int64)
		r.History.Indexing, _ = m["indexing"].(bool)
		r.History.Summarization, _ = m["summarization"].(bool)
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
