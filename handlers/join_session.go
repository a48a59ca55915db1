package handlers

import (
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// sessionProperties are properties.heardlog.session: how long an agent is kept without activity,
// and what it takes over from the last one of its name.
type sessionProperties struct {
	TTLSeconds int    `json:"session_ttl_seconds" validate:"omitempty,min=60,max=86400"`
	Persist    *bool  `json:"persist_across_invocations"`
	Inherit    string `json:"inherit" validate:"omitempty,oneof=none summary full"`
}

func (p *sessionProperties) rules() error {
	if p.Persist != nil && !*p.Persist && p.Inherit != "" && p.Inherit != string(memory.InheritNone) {
		return fault.At(fault.Invalid, "properties.heardlog.session.inherit", "%q contradicts persist_across_invocations, which is false; leave one of them out", p.Inherit)
	}
	return nil
}

// inherit returns what is taken over, "" if the join does not say. Without inherit,
// persist_across_invocations means everything or nothing.
func (p *sessionProperties) inherit() memory.Inherit {
	switch {
	case p.Inherit != "":
		return memory.Inherit(p.Inherit)
	case p.Persist == nil:
		return ""
	case *p.Persist:
		return memory.InheritFull
	}
	return memory.InheritNone
}

// idle returns the idle timeout in seconds, the shorter of two; below 0 means the server's.
func (p *sessionProperties) idle(timeout *int) int {
	switch {
	case timeout == nil && p.TTLSeconds == 0:
		return -1
	case timeout == nil || *timeout == 0 && p.TTLSeconds > 0:
		return p.TTLSeconds
	case p.TTLSeconds == 0:
		return *timeout
	}
	return min(*timeout, p.TTLSeconds)
}

// inheritedJSON describes what an agent took over when it started.
type inheritedJSON struct {
	AgentID  string `json:"agent_id"`
	Mode     string `json:"mode"`
	Messages int    `json:"messages"`
	LeftOut  int    `json:"left_out,omitempty"`
	UpToSeq  int64  `json:"up_to_seq"`
	Summary  bool   `json:"summary"`
	Pending  bool   `json:"pending"` // part of the summary is not written yet
}

// inheritedOf returns nil for an agent that took over nothing.
func inheritedOf(a *memory.Agent) *inheritedJSON {
	in := a.Settings.Memory.Inherited
	if in == nil {
		return nil
	}
	return &inheritedJSON{
		AgentID: in.From, Mode: string(in.Mode), Messages: in.Messages, LeftOut: in.LeftOut, UpToSeq: in.UpToSeq, Summary: in.Summary, Pending: len(in.Ancestors) > 0,
	}
}
