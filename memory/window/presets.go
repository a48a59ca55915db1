package window

// DefaultPreset is what a server has that sets no policy.
const DefaultPreset = "agora"

// Named is a preset: a full policy and its name.
type Named struct {
	Name   string `json:"name"`
	Policy Policy `json:"policy"`
}

// PresetNames gives the names that Policy.Preset takes, the default first.
func PresetNames() []string { return []string{"agora", "ovos", "orbiter", "lauren", "ossa", "full"} }

// Presets gives the presets in full, the default first.
func Presets() []Named {
	var out []Named
	for _, name := range PresetNames() {
		p, _ := PresetNamed(name)
		out = append(out, Named{name, p})
	}
	return out
}

// PresetNamed gives the preset of that name. Each call makes it anew, so that nobody can write to another's.
func PresetNamed(name string) (Policy, bool) {
	p := Policy{
		Preset:  name,
		Enabled: new(true), MaxMessages: new(0), MaxTokens: new(0), MaxRounds: new(0),
		KeepSystem: new(true), IncludeSystem: new(true), IncludeToolResults: new(true),
		Strategy: SlidingWindow, Apply: OnRead,
		Normalise:         &Normalise{DropHangingUser: new(false), MergeAssistant: new(false), Separator: new("\n")},
		ToolCallIntegrity: IntegrityNone, KeepLastUser: new(true), Projection: "heard_only",
		SummarizeAt: new(0.8), SummaryModel: new(""), KeepRecent: new(DefaultKeepRecent), Tokens: Estimate,
	}
	switch name {
	case "agora":
		// Agora's memory is the newest max_history messages, without system messages (002-2, 002-8). The ledger keeps the others, so the cut is one of reading.
		*p.MaxMessages, *p.IncludeSystem, p.ToolCallIntegrity = 32, false, IntegrityAtomic
	case "ovos":
		// OVOS keeps five messages, cuts for good and tidies the seam (000-1, 000-12 to 000-18); its cut takes system messages too.
		*p.MaxMessages, *p.KeepSystem, *p.KeepLastUser, p.Apply = 5, false, false, OnWrite
		*p.Normalise.DropHangingUser, *p.Normalise.MergeAssistant = true, true
	case "orbiter":
		// Orbiter has no limit unless one is given, and mends the tail (003-1, 003-14, 003-22).
		*p.KeepRecent, p.ToolCallIntegrity = 4, IntegrityTrailing
	case "lauren":
		// lauren-ai has a budget of tokens and completes what tools left open (001-1, 001-15).
		*p.MaxTokens, p.ToolCallIntegrity = 40000, IntegrityHeal
	case "ossa":
		// OSSA limits both (004-4).
		*p.MaxMessages, *p.MaxTokens, p.ToolCallIntegrity = 100, 32000, IntegrityAtomic
	case "full":
		// The whole list as it stands, as clients of OpenAI send it.
	default:
		return Policy{}, false
	}
	return p, true
}
