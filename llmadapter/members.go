package llmadapter

import (
	"slices"
	"strings"
)

// Thoughts says which answers' thoughts go back to the upstream that thought them.
const (
	ThoughtsCalls = "calls" // of answers that call tools; the default
	ThoughtsAll   = "all"
	ThoughtsNever = "never"
)

// fate is where a member of a message goes.
type fate int

// Where the members of a message go. Those that are not in the table below are others.
const (
	others fate = iota
	// always goes to every upstream.
	always
	// answers is what an upstream wrote into its own answer. It goes back to that upstream alone,
	// with that answer; see Recipient.Thoughts.
	answers
	// listed passes if Recipient.Members names it.
	listed
	// ours describes the message in the ledger. It goes to vendor "custom" only.
	ours
)

// fates is where each member of a message goes. docs/reference/members.md has the same table, which
// a test compares.
var fates = map[string]fate{
	"role": always, "content": always, "name": always, "tool_calls": always, "tool_call_id": always, "refusal": always, functionCall: always,

	"reasoning_content": answers, "reasoning": answers, "reasoning_details": answers, "reasoning_text": answers, "reasoning_opaque": answers,
	"thinking": answers, "thinking_blocks": answers, "thoughts": answers, "extra_content": answers, "provider_specific_fields": answers,
	"signature": answers, "thought_signature": answers, "encrypted_content": answers, "audio": answers, "annotations": answers,

	"cache_control": listed, "prefix": listed, "partial": listed,

	"turn_id": ours, "timestamp": ours, "metadata": ours,
}

// PassedMembers are the members of clients' messages that pass unless llm.message_members lists
// others.
func PassedMembers() []string { return []string{"cache_control", "partial", "prefix"} }

// isThought reports whether a member of a message, or the type of a part, holds what a model
// thought.
func isThought(name string) bool {
	return strings.HasPrefix(name, "reasoning") || strings.HasPrefix(name, "thinking") || strings.HasPrefix(name, "thought") || name == "redacted_thinking"
}

// Recipient is an upstream that messages are written for.
type Recipient struct {
	// Custom is llm.vendor "custom": every member is sent.
	Custom bool
	// Members are those of clients' messages that pass beside those that always do.
	Members []string
	// Thoughts is ThoughtsCalls, the default, ThoughtsAll or ThoughtsNever.
	Thoughts string
	// Origin names the upstream; see Message.Origin.
	Origin string
	// Fallback is set if it is not the upstream that clients mean: what only that one understands
	// is not for it.
	Fallback bool
}

// takes reports whether the recipient is sent a member of a message that has no place of its own.
// client is set if the message came with it from a client.
func (to *Recipient) takes(m *Message, name string, client bool) bool {
	is := fates[name]
	if is == others && isThought(name) {
		is = answers
	}
	switch {
	case is == always:
		return false
	case to.Custom:
		return client || to.wrote(m)
	case is == ours:
		return false
	case client && slices.Contains(to.Members, name):
		return true
	case client && is != answers, m.Role != "assistant", !to.wrote(m):
		return false
	case to.Thoughts == ThoughtsNever && isThought(name):
		return false
	}
	return client || m.calls() || to.Thoughts == ThoughtsAll
}

// wrote reports whether the recipient is the upstream that an answer came from. A client does not
// say whose answer it sends: it means the first upstream.
func (to *Recipient) wrote(m *Message) bool {
	if m.Origin == "" {
		return !to.Fallback
	}
	return m.Origin == to.Origin
}
