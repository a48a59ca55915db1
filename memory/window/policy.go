// Package window is the short-term memory's policy: which messages of a conversation an LLM is given. It is made of pure functions over lists of messages:
// nothing is read or written elsewhere, the lists that come in are never changed, and the same input always gives the same output. docs/guides/policy.md
// tells the fields, the presets and the order of the steps; the numbers of rules that comments cite are those of docs/reference/memory-semantics.md.
package window

import "slices"

// Strategy says what leaves first where a budget is exceeded (004-5).
type Strategy string

// The strategies.
const (
	// SlidingWindow keeps the newest.
	SlidingWindow Strategy = "sliding_window"
	// OldestFirst takes away the oldest. For one list that is the same as SlidingWindow; whether the cut is final is Apply's business.
	OldestFirst Strategy = "oldest_first"
	// Summarize is SlidingWindow of which what leaves is summarised before: see Policy.SummaryDue.
	Summarize Strategy = "summarize"
	// ImportanceBased takes away the least important, of equal ones the oldest: see Score.
	ImportanceBased Strategy = "importance_based"
)

// Apply says when a list is cut.
type Apply string

// The times of the cut.
const (
	OnRead  Apply = "read"  // the memory keeps everything, the context is cut
	OnWrite Apply = "write" // the memory itself is cut when it grows, for good
)

// Integrity says what is done about tool calls without results and results without calls.
type Integrity string

// The kinds of integrity.
const (
	// IntegrityNone leaves the list as the cuts left it.
	IntegrityNone Integrity = "none"
	// IntegrityTrailing takes incomplete pairs away from the end of the list, and only from there (003-14).
	IntegrityTrailing Integrity = "trailing"
	// IntegrityAtomic takes away each result whose call is not in front of it: a call and its results leave together (001-10).
	IntegrityAtomic Integrity = "atomic"
	// IntegrityHeal is IntegrityAtomic, and calls that the conversation moved on from get stand-ins for lost results (001-15).
	IntegrityHeal Integrity = "heal"
)

// Estimate is the value of Policy.Tokens that counts tokens as a quarter of the code points.
const Estimate = "estimate"

// Policy says how a memory is cut for an LLM. The zero value of each field means that this level says nothing of it: the server's default, the agent's own
// policy and that of one request are put together by Merge. Number fields that limit something take 0 as "no limit".
type Policy struct {
	// Preset names the policy that this level starts from, whatever the levels above said.
	Preset string `json:"preset,omitempty"`
	// Enabled false switches memory off: the context is the utterance alone (000-4, 000-7).
	Enabled            *bool `json:"enabled,omitempty"`
	MaxMessages        *int  `json:"max_messages,omitempty"`         // 0 = no limit, at most MaxCount
	MaxTokens          *int  `json:"max_tokens,omitempty"`           // 0 = no limit, at most MaxTokenCount
	MaxRounds          *int  `json:"max_rounds,omitempty"`           // 0 = no limit, at most MaxCount
	KeepSystem         *bool `json:"keep_system,omitempty"`          // cuts pass over system and developer messages
	IncludeSystem      *bool `json:"include_system,omitempty"`       // false: the memory's system and developer messages are left out
	IncludeToolResults *bool `json:"include_tool_results,omitempty"` // false: results are left out, and the calls with them

	Strategy  Strategy   `json:"strategy,omitempty"`
	Apply     Apply      `json:"apply,omitempty"`
	Normalise *Normalise `json:"normalise,omitempty"`
	// ToolCallIntegrity is the last step of reading. See the constants.
	ToolCallIntegrity Integrity `json:"tool_call_integrity,omitempty"`
	// KeepLastUser keeps the newest words of the user and what follows them from being cut by max_tokens, so that no view is empty (001-12).
	KeepLastUser *bool `json:"keep_last_user,omitempty"`
	// Projection is what the model is told of answers that were not heard whole: see docs/guides/projections.md. This package only passes it on.
	Projection string `json:"projection,omitempty"`

	// SummarizeAt is the share of the window at which Summarize summarises, 0 to 1; 0 = never (001-29).
	SummarizeAt *float64 `json:"summarize_at,omitempty"`
	// SummaryModel is the model that is asked for summaries; "" = the agent's own.
	SummaryModel *string `json:"summary_model,omitempty"`
	// KeepRecent is how many of the newest messages a summary leaves alone (001-21).
	KeepRecent *int `json:"keep_recent,omitempty"`
	// Tokens is how tokens are counted: Estimate, or exactly, by one of Families.
	Tokens string `json:"tokens,omitempty"`
}

// Normalise says what is done where new messages meet the last stored one (000-12 to 000-17).
type Normalise struct {
	// DropHangingUser drops a stored user message that is followed by another.
	DropHangingUser *bool `json:"drop_hanging_user,omitempty"`
	// MergeAssistant makes one of two assistant messages that follow each other.
	MergeAssistant *bool `json:"merge_assistant,omitempty"`
	// Separator stands between what is merged.
	Separator *string `json:"separator,omitempty"`
}

// Merge puts levels together, the widest first: a narrower level wins field by field. A level that names a preset starts again from that preset. The
// answer has every field set; without any preset it starts from DefaultPreset. An unknown preset counts as not named: Validate finds it.
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

func known(preset string) bool { return slices.Contains(PresetNames(), preset) }

// Full gives the policy with every field set. See Merge.
func (p Policy) Full() Policy { return Merge(p) }

// IsZero tells whether the policy says nothing.
func (p Policy) IsZero() bool { return p == Policy{} }

// with gives the policy with what q says in place of its own. Fields that q shares are shared: nobody writes to them.
func (p Policy) with(q Policy) Policy {
	return Policy{
		Preset:             or(q.Preset, p.Preset),
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

// or gives a unless it is the zero value, else b.
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

// isFull tells whether every field is set that rules reads. The text fields cannot be told from unset ones; they are set where the others are.
func (p Policy) isFull() bool {
	n := p.Normalise
	return p.Enabled != nil && p.MaxMessages != nil && p.MaxTokens != nil && p.MaxRounds != nil && p.KeepSystem != nil && p.IncludeSystem != nil &&
		p.IncludeToolResults != nil && p.KeepLastUser != nil && n != nil && n.DropHangingUser != nil && n.MergeAssistant != nil && n.Separator != nil &&
		p.Strategy != "" && p.Apply != "" && p.ToolCallIntegrity != ""
}
