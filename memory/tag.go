package memory

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Tag is a property by which agents are found: a label, the user under an empty name, or one of
// Heardlog's own, whose names begin with ownTag.
type Tag struct{ Name, Value string }

// MaxTag is how long name and value of a tag may be together, in bytes. Longer labels are kept, and
// find no agent.
const MaxTag = 512

// The tags that follow from what happened. Labels whose names begin with ownTag find no agent.
const (
	ownTag         = "\x01"
	tagPlatform    = ownTag + "platform"
	tagInterrupted = ownTag + "interrupted"
	tagFailed      = ownTag + "failed"
	tagGhosts      = ownTag + "ghosts"
	tagCheck       = ownTag + "check"  // and its name as the value
	tagScore       = ownTag + "score/" // and the score's name; see ScoreTag
	// ModelTag is the tag with the memory model of an agent.
	ModelTag = ownTag + "memory_model"
	// JoinedTag is the tag with a user that the join named (remote_rtc_uids) of an agent.
	JoinedTag = ownTag + "joined"
)

// User returns the user of a tag that names one: the agent's own, or one that its join named.
func (t Tag) User() (user string, is bool) {
	return t.Value, t.Name == "" || t.Name == JoinedTag
}

// Own reports whether a tag is one of Heardlog's own, and neither a user nor a label.
func (t Tag) Own() bool { return t.Name == "" || strings.HasPrefix(t.Name, ownTag) }

// maxJoined is how many users of a join have tags.
const maxJoined = 32

// RemoteUIDs returns the users that the join named.
func (a *Agent) RemoteUIDs() []string {
	if !bytes.Contains(a.Properties, []byte(`"remote_rtc_uids"`)) {
		return nil
	}
	var p struct {
		UIDs []json.RawMessage `json:"remote_rtc_uids"`
	}
	if json.Unmarshal(a.Properties, &p) != nil {
		return nil
	}
	var out []string
	for _, raw := range p.UIDs {
		var s string
		if json.Unmarshal(raw, &s) != nil { // a number
			s = string(raw)
		}
		out = append(out, s)
	}
	return out
}

// ErrSessions returns the fault.Quota of an agent whose memory model has as many live agents as it
// allows.
func (a *Agent) ErrSessions() error {
	m := &a.Settings.Memory
	return fault.New(fault.Quota, "the project runs %d agents with the memory model %q already, which is its max_sessions", m.MaxSessions, m.Model)
}

// Tags returns the tags of an agent, sorted by name.
func (h *Head) Tags() []Tag {
	a := h.Agent
	var out []Tag
	if user := a.Settings.Scope.UserID; user != "" && len(user) <= MaxTag {
		out = append(out, Tag{"", user})
	}
	for _, name := range slices.Sorted(slices.Values(a.Settings.Checks)) {
		out = append(out, Tag{tagCheck, name})
	}
	for _, name := range []string{tagFailed, tagGhosts, tagInterrupted} {
		if h.has(name) {
			out = append(out, Tag{name, ""})
		}
	}
	for i, user := range slices.Compact(slices.Sorted(slices.Values(a.RemoteUIDs()))) {
		if i < maxJoined && user != "" && len(user) <= MaxTag {
			out = append(out, Tag{JoinedTag, user})
		}
	}
	if model := a.Settings.Memory.Model; model != "" {
		out = append(out, Tag{ModelTag, model})
	}
	if p := a.Platform(); p != "" {
		out = append(out, Tag{tagPlatform, p})
	}
	out = append(out, scoreTags(a.Settings.Scores)...)
	for _, name := range slices.Sorted(maps.Keys(a.Settings.Labels)) {
		if value := a.Settings.Labels[name]; name != "" && len(name)+len(value) <= MaxTag && !strings.HasPrefix(name, ownTag) {
			out = append(out, Tag{name, value})
		}
	}
	return out
}

// has reports whether the agent has one of the tags that follow from its tally.
func (h *Head) has(tag string) bool {
	t := h.Tally
	switch tag {
	case tagFailed:
		return h.Agent.Status == Failed || t != nil && t.Failures > 0
	case tagGhosts:
		return t != nil && t.Ghosts > 0
	case tagInterrupted:
		return t != nil && t.Interruptions > 0
	}
	return false
}

// Retagged reports whether a change that made before to h may have changed the agent's tags.
func (h *Head) Retagged(before *Head, c *Change) bool {
	if c.Agent != nil {
		return !slices.Equal(h.Tags(), before.Tags())
	}
	for _, name := range []string{tagFailed, tagGhosts, tagInterrupted} {
		if h.has(name) != before.has(name) {
			return true
		}
	}
	return false
}

// Lost returns the users and labels among the tags that before has and h does not.
func (h *Head) Lost(before *Head) []Tag {
	have := h.Tags()
	return slices.DeleteFunc(before.Tags(), func(t Tag) bool {
		_, user := t.User()
		return !user && t.Own() || slices.Contains(have, t)
	})
}

// TagValues is a tag that an agent must have with one of several values.
type TagValues struct {
	Name   string
	Values []string
}

// Tags returns the tags that an agent must have. Those that few agents have come first, as far as
// can be known: a list walks along the first.
func (q *AgentQuery) Tags() []TagValues {
	var out []TagValues
	if len(q.Users) > 0 {
		out = append(out, TagValues{"", q.Users})
	}
	for _, own := range []struct {
		name string
		set  bool
	}{{tagGhosts, q.Ghosts}, {tagFailed, q.Failed}} {
		if own.set {
			out = append(out, TagValues{own.name, []string{""}})
		}
	}
	for _, name := range q.Checks {
		out = append(out, TagValues{tagCheck, []string{name}})
	}
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		out = append(out, TagValues{name, []string{q.Labels[name]}})
	}
	for _, name := range slices.Sorted(maps.Keys(q.Scores)) {
		tag := ScoreTag(name, q.Scores[name])
		out = append(out, TagValues{tag.Name, []string{tag.Value}})
	}
	if q.Interrupted {
		out = append(out, TagValues{tagInterrupted, []string{""}})
	}
	if q.Platform != "" {
		out = append(out, TagValues{tagPlatform, []string{q.Platform}})
	}
	return out
}
