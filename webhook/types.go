package webhook

import (
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// The numbers of the event types. Those below 10000 are Agora's (reference/agora-api.md 5.4), the others tell of what Agora has no event
// for. They are API: added to, never changed.
const (
	TypeJoined      = 101
	TypeLeft        = 102
	TypeHistory     = 103
	TypeExpiring    = 104
	TypeError       = 110
	TypeMetrics     = 111
	TypeTurns       = 112
	TypeInterrupted = 10001
	TypeMessage     = 10002
	TypeDead        = 10011 // a delivery was given up; sent to the project's other endpoints
	TypeDisabled    = 10012 // an endpoint was disabled; sent to the project's other endpoints
	TypeTest        = 10021 // asked for by hand; goes to one endpoint, whatever its filter
)

// EventType is one row of the list of types.
type EventType struct {
	Number  int
	Name    string
	Default bool // sent to endpoints without a filter
}

// EventTypes lists every type by number. The default ones are what Agora sends unasked.
func EventTypes() []EventType {
	return []EventType{
		{TypeJoined, "agent.joined", byDefault(TypeJoined)},
		{TypeLeft, "agent.left", byDefault(TypeLeft)},
		{TypeHistory, "agent.history", byDefault(TypeHistory)},
		{TypeExpiring, "agent.expiring", byDefault(TypeExpiring)},
		{TypeError, "agent.error", byDefault(TypeError)},
		{TypeMetrics, "agent.metrics", byDefault(TypeMetrics)},
		{TypeTurns, "agent.turns", byDefault(TypeTurns)},
		{TypeInterrupted, "agent.interrupted", byDefault(TypeInterrupted)},
		{TypeMessage, "agent.message", byDefault(TypeMessage)},
		{TypeDead, "delivery.dead", byDefault(TypeDead)},
		{TypeDisabled, "endpoint.disabled", byDefault(TypeDisabled)},
		{TypeTest, "webhook.test", byDefault(TypeTest)},
	}
}

// TypeName gives the name of a type, its number in digits where it has none.
func TypeName(number int) string {
	// A switch and no search through EventTypes: this runs for every event of an endpoint with a filter.
	switch number {
	case TypeJoined:
		return "agent.joined"
	case TypeLeft:
		return "agent.left"
	case TypeHistory:
		return "agent.history"
	case TypeExpiring:
		return "agent.expiring"
	case TypeError:
		return "agent.error"
	case TypeMetrics:
		return "agent.metrics"
	case TypeTurns:
		return "agent.turns"
	case TypeInterrupted:
		return "agent.interrupted"
	case TypeMessage:
		return "agent.message"
	case TypeDead:
		return "delivery.dead"
	case TypeDisabled:
		return "endpoint.disabled"
	case TypeTest:
		return "webhook.test"
	}
	return strconv.Itoa(number)
}

// TypeNumber reads a type's name, or its number in digits; false where there is no such type.
func TypeNumber(name string) (int, bool) {
	for _, t := range EventTypes() {
		if t.Name == name || strconv.Itoa(t.Number) == name {
			return t.Number, true
		}
	}
	return 0, false
}

// MaxFilter is how many patterns a filter may hold.
const MaxFilter = 32

// CheckFilter checks an endpoint's filter: names, numbers, and names that end in * ("agent.*", "*"). Each must match a type, so that a
// slip of the pen is not a filter that lets nothing through. It fails with fault.Invalid.
func CheckFilter(field string, patterns []string) error {
	if len(patterns) > MaxFilter {
		return fault.At(fault.Invalid, field, "%d patterns; at most %d are allowed", len(patterns), MaxFilter)
	}
	for i, p := range patterns {
		known := slices.ContainsFunc(EventTypes(), func(t EventType) bool { return matches(p, t.Number) })
		if !known || p == "" {
			return fault.At(fault.Invalid, field+"["+strconv.Itoa(i)+"]", "no event type matches it: give a name such as agent.left, a number such as 103, or a beginning such as agent.*")
		}
	}
	return nil
}

// Matches tells whether a filter lets the type through; an empty one lets the default types through.
func Matches(patterns []string, number int) bool {
	if len(patterns) == 0 {
		return byDefault(number)
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
		return strings.HasPrefix(TypeName(number), start)
	}
	if pattern != "" && pattern[0] >= '0' && pattern[0] <= '9' {
		return pattern == strconv.Itoa(number)
	}
	return pattern == TypeName(number)
}
