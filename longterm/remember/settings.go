package remember

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// The roles of what is added to a prompt: values of memory.Remember.Position.
const (
	PositionUser   = "user"
	PositionSystem = "system"
)

// Bounds of the settings.
const (
	maxTopK   = 20
	minBudget = 50
	maxBudget = 4000
	maxModel  = 256 // bytes of extraction_model
	maxEvery  = 3600
)

// Decode reads settings: a JSON object, whose absent and null fields are those of base, or the
// string "off" for none. A zero base means the defaults. field is the path of the value. It returns
// fault.Invalid for unknown fields, wrong types and values out of limits.
func Decode(field string, raw json.RawMessage, base memory.Remember) (memory.Remember, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return base, nil
	}
	var fields map[string]json.RawMessage
	if string(raw) == `"off"` {
		return memory.Remember{}, nil
	}
	if json.Unmarshal(raw, &fields) != nil {
		return memory.Remember{}, fault.At(fault.Invalid, field, `must be an object or "off"`)
	}
	out := base
	if out.Position == "" {
		out = memory.DefaultRemember()
	}
	targets := map[string]target{
		"inject": {&out.Inject, "true or false"}, "recall": {&out.Recall, "a string"}, "position": {&out.Position, "a string"},
		"extract": {&out.Extract, "true or false"}, "extract_seconds": {&out.ExtractSeconds, "a whole number"}, "tools": {&out.Tools, "true or false"}, "extraction_model": {&out.ExtractionModel, "a string"},
		"patterns": {&out.Patterns, "a list of strings"},
		"top_k":    {&out.TopK, "a whole number"}, "budget_tokens": {&out.BudgetTokens, "a whole number"},
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		to, ok := targets[name]
		if !ok {
			return out, fault.At(fault.Invalid, field, "has no field %q; it may have %s", text.Clip(name, 60), strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
		}
		if json.Unmarshal(fields[name], to.into) != nil {
			return out, fault.At(fault.Invalid, field+"."+name, "must be %s", to.kind)
		}
	}
	return out, check(field, &out)
}

// ParseSetting reads a setting of the server: off, or a JSON object for Decode.
func ParseSetting(value string) (memory.Remember, error) {
	if value = strings.TrimSpace(value); value == memory.RecallOff {
		value = `"off"`
	}
	return Decode("", json.RawMessage(value), memory.Remember{})
}

// target is where the value of a field goes, and what it must be.
type target struct {
	into any
	kind string
}

func check(field string, r *memory.Remember) error {
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{
		{"recall", r.Recall, []string{memory.RecallOff, memory.RecallAuto, memory.RecallAlways}},
		{"position", r.Position, []string{PositionUser, PositionSystem}},
	} {
		if !slices.Contains(f.allowed, f.value) {
			return fault.At(fault.Invalid, field+"."+f.name, "must be one of %s, not %s", strings.Join(f.allowed, ", "), strconv.Quote(text.Clip(f.value, 40)))
		}
	}
	for i, p := range r.Patterns {
		if !slices.Contains(memory.PatternTypes, p) {
			return fault.At(fault.Invalid, fmt.Sprintf("%s.patterns[%d]", field, i), "must be one of %s, not %q", strings.Join(memory.PatternTypes, ", "), text.Clip(p, 40))
		}
	}
	if n := len(r.ExtractionModel); n > maxModel {
		return fault.At(fault.Invalid, field+".extraction_model", "has %d bytes; at most %d are allowed", n, maxModel)
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{{"top_k", r.TopK, 1, maxTopK}, {"budget_tokens", r.BudgetTokens, minBudget, maxBudget}, {"extract_seconds", r.ExtractSeconds, 0, maxEvery}} {
		if f.value < f.min || f.value > f.max {
			return fault.At(fault.Invalid, field+"."+f.name, "must be from %d to %d, not %d", f.min, f.max, f.value)
		}
	}
	return nil
}
