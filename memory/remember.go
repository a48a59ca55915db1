package memory

// Remember is what an agent's settings say about the long-term memory of its caller; see package
// remember. The zero value uses none.
type Remember struct {
	// Inject adds what is remembered to the prompts.
	Inject bool `json:"inject,omitempty"`
	// Recall is when what was said in earlier calls is searched for the caller's newest words:
	// RecallOff, RecallAuto or RecallAlways.
	Recall string `json:"recall,omitempty"`
	// TopK is how many hits a search adds at most.
	TopK int `json:"top_k,omitempty"`
	// BudgetTokens limits what is added to one prompt.
	BudgetTokens int `json:"budget_tokens,omitempty"`
	// Position is the role of the added messages: "user" or "system".
	Position string `json:"position,omitempty"`
	// Tools offers the model tools to remember, recall and forget.
	Tools bool `json:"tools,omitempty"`
	// Extract has a model find facts in the call.
	Extract bool `json:"extract,omitempty"`
	// ExtractSeconds is how often that is done while the call runs, at most; 0 = only at its end.
	ExtractSeconds int `json:"extract_seconds,omitempty"`
	// ExtractionModel is the model for that; "" is the agent's own.
	ExtractionModel string `json:"extraction_model,omitempty"`
	// Patterns are the types of the learned patterns that prompts have, whatever Inject says. At a
	// join nil leaves them to the memory model.
	Patterns []string `json:"patterns,omitempty"`
}

// DefaultRemember returns the settings that an empty object means at a join.
func DefaultRemember() Remember {
	return Remember{Inject: true, Recall: RecallOff, TopK: 5, BudgetTokens: 400, Position: string(User), ExtractSeconds: 30}
}

// PatternTypes lists the types of learned patterns, which are those of OSSA.
var PatternTypes = []string{"task_completion", "error_recovery", "user_preferences", "tool_usage", "delegation_patterns"}

// Known is what was known of a caller, and which patterns were learned, when a call began. The
// call's prompts have it to the end.
type Known struct {
	Text string   `json:"text,omitempty"` // "" for nothing
	IDs  []string `json:"ids,omitempty"`  // of the facts, and of the patterns with "pattern:" in front
}

// The values of Remember.Recall.
const (
	RecallOff    = "off"
	RecallAuto   = "auto"   // adds only what covers most of the words
	RecallAlways = "always" // adds what covers a part of them, too
)

// Prompts reports whether prompts may have something of the long-term memory.
func (r *Remember) Prompts() bool { return r.Inject || len(r.Patterns) > 0 }

// Recalls reports whether the caller's words are searched for.
func (r *Remember) Recalls() bool {
	return r.Inject && (r.Recall == RecallAuto || r.Recall == RecallAlways)
}
