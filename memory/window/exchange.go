package window

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// Outcome says how a call of a tool ended (001-18).
type Outcome string

// The outcomes.
const (
	Executed  Outcome = "executed"
	Failed    Outcome = "error"
	Rejected  Outcome = "rejected"
	Cancelled Outcome = "cancelled"
	TimedOut  Outcome = "timed_out"
	Synthetic Outcome = "synthetic" // a stand-in that was made later
)

// Outcomes gives all of them.
func Outcomes() []Outcome {
	return []Outcome{Executed, Failed, Rejected, Cancelled, TimedOut, Synthetic}
}

// Exchange is a message that calls tools, whose results are to be stored together or not at all.
type Exchange struct {
	Call Message
	IDs  []string // of the calls, in their order
}

// Begin opens the exchange of a message. It fails with fault.Invalid if the message calls no tools, or if an id is empty or there twice.
func Begin(call Message) (Exchange, error) {
	if err := CheckCalls("tool_calls", &call); err != nil {
		return Exchange{}, err
	}
	ids := call.links().Calls
	if len(ids) == 0 {
		return Exchange{}, fault.At(fault.Invalid, "tool_calls", "is empty; an exchange begins with a message that calls tools")
	}
	return Exchange{Call: call, IDs: ids}, nil
}

// CheckCalls refuses a message of which a call's id is empty or there twice; field is the path of the calls.
func CheckCalls(field string, m *Message) error {
	seen := map[string]bool{}
	for i, id := range m.links().Calls {
		switch {
		case id == "":
			return fault.At(fault.Invalid, field, "call %d has no id (%s)", i, EmptyCallID)
		case seen[id]:
			return fault.At(fault.Invalid, field, "the id %q is there twice (%s)", clip(id), DuplicateCallID)
		}
		seen[id] = true
	}
	return nil
}

// Commit closes the exchange with its results, one for each call, in any order, and gives them as they are to be stored. It fails with fault.Invalid if one is
// missing, there twice, or of no call of the exchange: part of an answer is none.
func (x Exchange) Commit(results []Message) ([]Message, error) {
	seen, calls := map[string]bool{}, map[string]bool{}
	for _, id := range x.IDs {
		calls[id] = true
	}
	for i := range results {
		for _, id := range results[i].links().Results {
			switch {
			case id == "":
				return nil, fault.At(fault.Invalid, "results", "result %d does not say what call it answers (%s)", i, EmptyResultID)
			case !calls[id]:
				return nil, fault.At(fault.Invalid, "results", "no call has the id %q (%s)", clip(id), UnknownResultID)
			case seen[id]:
				return nil, fault.At(fault.Invalid, "results", "there are two results of the call %q (%s)", clip(id), DuplicateResultID)
			}
			seen[id] = true
		}
	}
	var missing []string
	for _, id := range x.IDs {
		if !seen[id] {
			missing = append(missing, clip(id))
		}
	}
	if len(missing) > 0 {
		return nil, fault.At(fault.Invalid, "results", "no result of %s (%s)", strings.Join(missing, ", "), MissingResults)
	}
	return JoinResults(results), nil
}

// Abort closes the exchange without its results, and gives what is to be stored in their place.
func (x Exchange) Abort(why Outcome) []Message {
	return Lost(&x.Call, x.IDs, "[no result: "+string(why)+"]")
}

// JoinResults gives the results of a batch as one user message with all blocks where they are blocks of Anthropic's (001-19). One result, and results of role tool, stay as they are.
func JoinResults(results []Message) []Message {
	if len(results) < 2 || slices.ContainsFunc(results, func(m Message) bool { return m.Role == Tool || !m.isResult() }) {
		return results
	}
	var all []json.RawMessage
	for i := range results {
		var blocks []json.RawMessage
		if json.Unmarshal(results[i].Parts, &blocks) != nil {
			return results
		}
		all = append(all, blocks...)
	}
	joined := results[0]
	joined.Parts, joined.Links, joined.Chars, joined.Tokens = encode(all, nil), nil, 0, 0
	return []Message{joined}
}
