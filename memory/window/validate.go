package window

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Bounds of a policy.
const (
	MaxCount      = 100_000    // max_messages, max_rounds, keep_recent
	MaxTokenCount = 10_000_000 // max_tokens
	MaxSeparator  = 64         // bytes of normalise.separator
	MaxModelName  = 256        // bytes of summary_model
)

// Projections returns the values of Policy.Projection, the default first.
func Projections() []string {
	return []string{"heard_only", "heard_marked", "heard_and_unsaid", "generated"}
}

// Families returns the values of Policy.Tokens other than Estimate: the encodings, then the model
// families that use them.
func Families() []string {
	return []string{"o200k", "cl100k", "gpt-5", "gpt-4.1", "gpt-4o", "o1", "o3", "o4", "gpt-4", "gpt-3.5"}
}

// Validate returns fault.Invalid, with the field and what is allowed, unless every value that is
// set is within its limits. field is the path of the policy, or "".
func (p Policy) Validate(field string) error {
	at := func(name string) string {
		if field == "" {
			return name
		}
		return field + "." + name
	}
	for _, n := range []struct {
		name string
		v    *int
		most int
	}{
		{"max_messages", p.MaxMessages, MaxCount}, {"max_tokens", p.MaxTokens, MaxTokenCount}, {"max_rounds", p.MaxRounds, MaxCount}, {"keep_recent", p.KeepRecent, MaxCount},
	} {
		if n.v != nil && (*n.v < 0 || *n.v > n.most) {
			none := " (0 means no limit)"
			if n.name == "keep_recent" {
				none = ""
			}
			return fault.At(fault.Invalid, at(n.name), "must be from 0 to %d%s, not %d", n.most, none, *n.v)
		}
	}
	for _, n := range []struct {
		name, v string
		allowed []string
	}{
		{"preset", PresetName(p.Preset), PresetNames()},
		{"strategy", string(p.Strategy), []string{string(SlidingWindow), string(OldestFirst), string(Summarize), string(ImportanceBased)}},
		{"apply", string(p.Apply), []string{string(OnRead), string(OnWrite)}},
		{"tool_call_integrity", string(p.ToolCallIntegrity), []string{string(IntegrityNone), string(IntegrityTrailing), string(IntegrityAtomic), string(IntegrityHeal)}},
		{"projection", p.Projection, Projections()},
		{"tokens", p.Tokens, append([]string{Estimate}, Families()...)},
	} {
		if n.v != "" && !slices.Contains(n.allowed, n.v) {
			return notOneOf(at(n.name), n.v, n.allowed...)
		}
	}
	if v := p.SummarizeAt; v != nil && !(*v >= 0 && *v <= 1) { // NaN too
		return fault.At(fault.Invalid, at("summarize_at"), "must be from 0 (never) to 1, not %v", *v)
	}
	if p.SummaryModel != nil {
		if err := checkText(at("summary_model"), *p.SummaryModel, MaxModelName); err != nil {
			return err
		}
	}
	if p.Normalise != nil && p.Normalise.Separator != nil {
		return checkText(at("normalise.separator"), *p.Normalise.Separator, MaxSeparator)
	}
	return nil
}

func checkText(field, s string, most int) error {
	switch {
	case len(s) > most:
		return fault.At(fault.Invalid, field, "has %d bytes; at most %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		return fault.At(fault.Invalid, field, "must be UTF-8")
	case strings.ContainsRune(s, 0):
		return fault.At(fault.Invalid, field, "must not contain a NUL character")
	}
	return nil
}

// Decode reads a policy from a JSON object and validates it. field is its path. It returns
// fault.Invalid for unknown fields, wrong types and values out of limits. A null field is not set;
// null or an empty input is the zero policy.
func Decode(field string, raw []byte) (Policy, error) {
	var p Policy
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return p, nil
	}
	if err := decodeObject(field, raw, targetsOf(&p)); err != nil {
		return Policy{}, err
	}
	if err := p.Validate(field); err != nil {
		return Policy{}, err
	}
	p.Preset = PresetName(p.Preset)
	return p, nil
}

// ParseSetting reads a policy from a setting of the server: the name of a preset, or a JSON object
// for Decode. "" is the zero policy.
func ParseSetting(field, value string) (Policy, error) {
	value = strings.TrimSpace(value)
	if value == "" || strings.HasPrefix(value, "{") {
		return Decode(field, []byte(value))
	}
	if _, ok := PresetNamed(value); !ok {
		return Policy{}, notOneOf(orPolicy(field), value, append(PresetNames(), "a JSON object")...)
	}
	return Policy{Preset: PresetName(value)}, nil
}

// target is where a field's value goes, and what a value of it is called.
type target struct {
	name string
	into any
	kind string
}

func targetsOf(p *Policy) []target {
	return []target{
		{"preset", &p.Preset, "a string"}, {"enabled", &p.Enabled, "true or false"},
		{"max_messages", &p.MaxMessages, "a whole number"}, {"max_tokens", &p.MaxTokens, "a whole number"}, {"max_rounds", &p.MaxRounds, "a whole number"},
		{"keep_system", &p.KeepSystem, "true or false"}, {"include_system", &p.IncludeSystem, "true or false"}, {"include_tool_results", &p.IncludeToolResults, "true or false"},
		{"strategy", &p.Strategy, "a string"}, {"apply", &p.Apply, "a string"}, {"normalise", &p.Normalise, "an object"},
		{"tool_call_integrity", &p.ToolCallIntegrity, "a string"}, {"keep_last_user", &p.KeepLastUser, "true or false"}, {"projection", &p.Projection, "a string"},
		{"summarize_at", &p.SummarizeAt, "a number"}, {"summary_model", &p.SummaryModel, "a string"}, {"keep_recent", &p.KeepRecent, "a whole number"}, {"tokens", &p.Tokens, "a string"},
	}
}

func decodeObject(field string, raw []byte, targets []target) error {
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(raw, &obj); err != nil {
		return fault.At(fault.Invalid, orPolicy(field), "must be a JSON object")
	}
	names := make([]string, 0, len(obj))
	for name := range obj {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		i := slices.IndexFunc(targets, func(t target) bool { return t.name == name })
		path := name
		if field != "" {
			path = field + "." + name
		}
		if i < 0 {
			allowed := make([]string, 0, len(targets))
			for _, t := range targets {
				allowed = append(allowed, t.name)
			}
			return fault.At(fault.Invalid, text.Clip(path, 60), "is not known; known are %s", strings.Join(allowed, ", "))
		}
		if string(obj[name]) == "null" {
			continue
		}
		if n, ok := targets[i].into.(**Normalise); ok {
			*n = &Normalise{}
			err := decodeObject(path, obj[name], []target{
				{"drop_hanging_user", &(*n).DropHangingUser, "true or false"}, {"merge_assistant", &(*n).MergeAssistant, "true or false"}, {"separator", &(*n).Separator, "a string"},
			})
			if err != nil {
				return err
			}
			continue
		}
		if json.Unmarshal(obj[name], targets[i].into) != nil {
			return fault.At(fault.Invalid, path, "must be %s, not %s", targets[i].kind, text.Clip(string(obj[name]), 60))
		}
	}
	return nil
}

func orPolicy(field string) string { return or(field, "policy") }
