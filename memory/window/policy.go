// Package window decides which messages of a conversation an LLM is given. A Policy has the limits
// and rules; Policy.Read applies it to a list of messages and returns a View. Policies for reading
// and for cutting on write, search and summaries are pure functions: they change no list, and the
// same input always has the same result. docs/guides/policy.md documents the fields, the presets
// and the order of the steps; docs/reference/memory-semantics.md has the rules that tests cite by
// number.
package window

import "slices"

// Strategy is what leaves first if a budget is exceeded.
type Strategy string

// The strategies.
const (
	// SlidingWindow keeps the newest.
	SlidingWindow Strategy = "sliding_window"
	// OldestFirst removes the oldest messages. For one list that equals SlidingWindow; Apply
	// decides whether the cut is final.
	OldestFirst Strategy = "oldest_first"
	// Summarize is SlidingWindow of which what leaves is summarised before: see Policy.SummaryDue.
	Summarize Strategy = "summarize"
	// ImportanceBased takes away the least important, of equal ones the oldest: see Score.
	ImportanceBased Strategy = "importance_based"
)

// Apply is when a list is cut.
type Apply string

// The times of the cut.
const (
	OnRead  Apply = "read"  // the memory keeps everything, the context is cut
	OnWrite Apply = "write" // the memory itself is cut when it grows, for good
)

// Integrity is how to handle tool calls without results and results without calls.
type Integrity string

// The kinds of integrity.
const (
	// IntegrityNone leaves the list as the cuts left it.
	IntegrityNone Integrity = "none"
	// IntegrityTrailing removes incomplete pairs from the end of the list only.
	IntegrityTrailing Integrity = "trailing"
	// IntegrityAtomic removes each result without its call before it: a call and its results leave
	// together.
	IntegrityAtomic Integrity = "atomic"
	// IntegrityHeal is IntegrityAtomic, and adds stand-ins for the lost results of calls that the
	// conversation moved on from.
	IntegrityHeal Integrity = "heal"
)

// Estimate is the value of Policy.Tokens that counts tokens as a quarter of the code points.
const Estimate = "estimate"

// Policy is how a memory is cut for an LLM. The zero value of a field leaves it to another level:
// Merge combines the server's, the agent's and a request's policy. For limits 0 is "no limit".
type Policy struct {
	// Preset names the policy that this level starts from, whatever the levels above set.
	Preset string `json:"preset,omitempty"`
	// Enabled false switches the memory off: the context is the utterance alone.
	Enabled     *bool `json:"enabled,omitempty"`
	MaxMessages *int  `json:"max_messages,omitempty"` // 0 = no limit, at most MaxCount
	MaxTokens   *int  `json:"max_tokens,omitempty"`   // 0 = no limit, at most MaxTokenCount
	MaxRounds   *int  `json:"max_rounds,omitempty"`   // 0 = no limit, at most MaxCount
	// Cuts pass over system and developer messages.
	KeepSystem *bool `json:"keep_system,omitempty"`
	// False: the memory's system and developer messages are left out.
	IncludeSystem *bool `json:"include_system,omitempty"`
	// False: results are left out, and the calls with them.
	IncludeToolResults *bool `json:"include_tool_results,omitempty"`

	Strategy  Strategy   `json:"strategy,omitempty"`
	Apply     Apply      `json:"apply,omitempty"`
	Normalise *Normalise `json:"normalise,omitempty"`
	// ToolCallIntegrity is the last step of reading. See the constants.
	ToolCallIntegrity Integrity `json:"tool_call_integrity,omitempty"`
	// KeepLastUser keeps the user's last words, and what follows them, if max_tokens would cut
	// them, so that no view is empty.
	KeepLastUser *bool `json:"keep_last_user,omitempty"`
	// Projection is how the model is shown answers that were not heard to the end; see
	// docs/guides/projections.md. This package only passes it on.
	Projection string `json:"projection,omitempty"`

	// SummarizeAt is the share of the limit at which Summarize summarizes, 0 to 1; 0 is never.
	SummarizeAt *float64 `json:"summarize_at,omitempty"`
	// SummaryModel is the model for summaries; "" is the agent's own.
	SummaryModel *string `json:"summary_model,omitempty"`
	// KeepRecent is how many of the newest messages summaries leave alone.
	KeepRecent *int `json:"keep_recent,omitempty"`
	// Tokens is how tokens are counted: Estimate, or exactly, by one of Families.
	Tokens string `json:"tokens,omitempty"`
}

// Normalise is what to do where new messages meet the last stored one.
type Normalise struct {
	// DropHangingUser drops a stored user message that is followed by another.
	DropHangingUser *bool `json:"drop_hanging_user,omitempty"`
	// MergeAssistant merges two consecutive assistant messages.
	MergeAssistant *bool `json:"merge_assistant,omitempty"`
	// Separator is put between merged texts.
	Separator *string `json:"separator,omitempty"`
}

// Merge combines levels, the most general first: a later level wins field by field. A level that
// names a preset starts again from that preset. The result has every field set; without any preset
// it starts from DefaultPreset. Unknown presets are ignored; Validate reports them.
func Merge(levels ...Policy) Policy {
	var out Policy
	if len(levels) == 0 || !known(levels[0].Preset) {
		out, _ = PresetNamed(DefaultPreset)
	}
	for _, p := range levels {
		if base, ok := PresetNamed(p.Preset); ok {
			out = base
		}
		out = out.with(p)
	}
	return out
}

func known(preset string) bool { return slices.Contains(PresetNames(), PresetName(preset)) }

// Full returns the policy with every field set. See Merge.
func (p Policy) Full() Policy { return Merge(p) }

// IsZero reports whether the policy sets nothing.
func (p Policy) IsZero() bool { return p == Policy{} }

// with returns the policy with the fields that q sets. It shares them with q: do not change them.
func (p Policy) with(q Policy) Policy {
	return Policy{
		Preset:             or(PresetName(q.Preset), p.Preset),
		Enabled:            or(q.Enabled, p.Enabled),
		MaxMessages:        or(q.MaxMessages, p.MaxMessages),
		MaxTokens:          or(q.MaxTokens, p.MaxTokens),
		MaxRounds:          or(q.MaxRounds, p.MaxRounds),
		KeepSystem:         or(q.KeepSystem, p.KeepSystem),
		IncludeSystem:      or(q.IncludeSystem, p.IncludeSystem),
		IncludeToolResults: or(q.IncludeToolResults, p.IncludeToolResults),
		Strategy:           or(q.Strategy, p.Strategy),
		Apply:              or(q.Apply, p.Apply),
		Normalise:          p.Normalise.with(q.Normalise),
		ToolCallIntegrity:  or(q.ToolCallIntegrity, p.ToolCallIntegrity),
		KeepLastUser:       or(q.KeepLastUser, p.KeepLastUser),
		Projection:         or(q.Projection, p.Projection),
		SummarizeAt:        or(q.SummarizeAt, p.SummarizeAt),
		SummaryModel:       or(q.SummaryModel, p.SummaryModel),
		KeepRecent:         or(q.KeepRecent, p.KeepRecent),
		Tokens:             or(q.Tokens, p.Tokens),
	}
}

func (n *Normalise) with(q *Normalise) *Normalise {
	if n == nil || q == nil {
		return or(q, n)
	}
	return &Normalise{
		DropHangingUser: or(q.DropHangingUser, n.DropHangingUser),
		MergeAssistant:  or(q.MergeAssistant, n.MergeAssistant),
		Separator:       or(q.Separator, n.Separator),
	}
}

// or returns a unless it is the zero value, else b.
func or[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

// rules is a full policy in the form in which the steps use it.
type rules struct {
	enabled, keepSystem, includeSystem, includeResults, keepLastUser bool
	maxMessages, maxTokens, maxRounds                                int
	importance                                                       bool
	write                                                            bool
	integrity                                                        Integrity
	dropHanging, mergeAssistant                                      bool
	separator                                                        string
}

func (p Policy) rules() rules {
	if !p.isFull() {
		p = p.Full()
	}
	return rules{
		enabled: *p.Enabled, keepSystem: *p.KeepSystem, includeSystem: *p.IncludeSystem, includeResults: *p.IncludeToolResults, keepLastUser: *p.KeepLastUser,
		maxMessages: max(*p.MaxMessages, 0), maxTokens: max(*p.MaxTokens, 0), maxRounds: max(*p.MaxRounds, 0),
		importance: p.Strategy == ImportanceBased, write: p.Apply == OnWrite, integrity: p.ToolCallIntegrity,
		dropHanging: *p.Normalise.DropHangingUser, mergeAssistant: *p.Normalise.MergeAssistant, separator: *p.Normalise.Separator,
	}
}

// isFull reports whether every field that rules needs is set. Text fields cannot be told from unset
// ones; they are set if the others are.
func (p Policy) isFull() bool {
	n := p.Normalise
	return p.Enabled != nil && p.MaxMessages != nil && p.MaxTokens != nil && p.MaxRounds != nil && p.KeepSystem != nil && p.IncludeSystem != nil &&
		p.IncludeToolResults != nil && p.KeepLastUser != nil && n != nil && n.DropHangingUser != nil && n.MergeAssistant != nil && n.Separator != nil &&
		p.Strategy != "" && p.Apply != "" && p.ToolCallIntegrity != ""
}
