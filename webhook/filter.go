package webhook

import (
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
)

// MaxFilter is how many patterns a filter may hold.
const MaxFilter = 32

// CheckFilter checks an endpoint's filter. A pattern is a name, a number, or the start of a name
// and * ("agent.*", "*"). Each must match a type, so that a typo does not become a filter that lets
// nothing through. It fails with fault.Invalid.
func CheckFilter(field string, patterns []string) error {
	if len(patterns) > MaxFilter {
		return fault.At(fault.Invalid, field, "has %d patterns; at most %d are allowed", len(patterns), MaxFilter)
	}
	for i, p := range patterns {
		known := slices.ContainsFunc(event.Types(), func(t event.Type) bool { return matches(p, t.Number) })
		if !known || p == "" {
			return fault.At(fault.Invalid, field+"["+strconv.Itoa(i)+"]", "must match an event type: a name such as agent.left, a number such as 103, or a prefix such as agent.*")
		}
	}
	return nil
}

// Matches reports whether a filter lets the type through. An empty filter lets the default types
// through.
func Matches(patterns []string, number int) bool {
	if len(patterns) == 0 {
		t, _ := event.Of(number)
		return t.Default
	}
	for _, p := range patterns {
		if matches(p, number) {
			return true
		}
	}
	return false
}

func matches(pattern string, number int) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(event.Name(number), start)
	}
	if pattern != "" && pattern[0] >= '0' && pattern[0] <= '9' {
		return pattern == strconv.Itoa(number)
	}
	return pattern == event.Name(number)
}
