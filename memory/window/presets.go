package window

import "cmp"

// DefaultPreset is what a server has that sets no policy.
const DefaultPreset = "recent"

// Named is a preset: a full policy and its name.
type Named struct {
	Name   string `json:"name"`
	Policy Policy `json:"policy"`
}

// PresetNames returns the values of Policy.Preset, the default first.
func PresetNames() []string {
	return []string{"recent", "pairs", "rounds", "tokens", "limits", "full"}
}

// aliases are the names of the systems that presets follow.
var aliases = map[string]string{"agora": "recent", "ovos": "pairs", "orbiter": "rounds", "lauren": "tokens", "ossa": "limits"}

// PresetName returns the name of a preset for a name or an alias of it, and any other name as it
// is.
func PresetName(name string) string { return cmp.Or(aliases[name], name) }

// Presets returns the presets in full, the default first.
func Presets() []Named {
	var out []Named
	for _, name := range PresetNames() {
		p, _ := PresetNamed(name)
		out = append(out, Named{name, p})
	}
	return out
}

// PresetNamed returns the preset with the name or alias. Each call makes a new one.
func PresetNamed(name string) (Policy, bool) {
	name = PresetName(name)
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
	case "recent":
		// As Agora's memory, which is the newest max_history messages without system messages. The
		// ledger keeps the others, so it is cut on reading.
		*p.MaxMessages, *p.IncludeSystem, p.ToolCallIntegrity = 32, false, IntegrityAtomic
	case "pairs":
		// As OVOS, which keeps five messages in pairs, cuts for good and normalises the seam; its
		// cut includes system messages.
		*p.MaxMessages, *p.KeepSystem, *p.KeepLastUser, p.Apply = 5, false, false, OnWrite
		*p.Normalise.DropHangingUser, *p.Normalise.MergeAssistant = true, true
	case "rounds":
		// As Orbiter, which has no limit by default, and repairs the tail.
		*p.KeepRecent, p.ToolCallIntegrity = 4, IntegrityTrailing
	case "tokens":
		// As lauren-ai, which has a token budget and completes lost tool results.
		*p.MaxTokens, p.ToolCallIntegrity = 40000, IntegrityHeal
	case "limits":
		// As OSSA, which limits messages and tokens.
		*p.MaxMessages, *p.MaxTokens, p.ToolCallIntegrity = 100, 32000, IntegrityAtomic
	case "full":
		// The whole list as it is, as clients of OpenAI send it.
	default:
		return Policy{}, false
	}
	return p, true
}
