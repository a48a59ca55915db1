package echo

import (
	"encoding/json"
	"slices"
	"strings"
)

// pairTool pairs a tool's result, or a message that calls tools, by the IDs of the calls, or else
// by the functions and arguments.
func (x *aligner) pairTool(i int, known []int) bool {
	in := &x.in[i]
	if in.ToolCalls != nil {
		return x.pairCall(i, known)
	}
	id := in.CallID
	if ours, ok := x.called[id]; ok {
		id = ours
	}
	for _, j := range known {
		k := &x.known[j]
		if k.Role != "tool" || x.said[j] {
			continue
		}
		// The older form has no call ID.
		if id != "" && slices.Contains(k.CallIDs, id) || id == "" && x.normIn(i) == x.normKnown(j) {
			x.result.Pair[i], x.said[j] = j, true
			return true
		}
	}
	return false
}

// pairCall pairs a message that calls tools.
func (x *aligner) pairCall(i int, known []int) bool {
	ids := x.in[i].CallIDs
	for _, j := range known {
		if k := &x.known[j]; k.Role == "assistant" && slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(k.CallIDs, id) }) {
			x.result.Pair[i] = j
			return true
		}
	}
	if len(ids) == 0 {
		return false
	}
	called := callsIn(x.in[i].ToolCalls)
	for _, j := range known {
		k := &x.known[j]
		if k.Role != "assistant" || len(k.CallIDs) != len(ids) || len(called) == 0 || !slices.Equal(called, x.callsOf(j)) || slices.Contains(x.result.Pair, j) {
			continue
		}
		if x.called == nil {
			x.called = map[string]string{}
		}
		for n, id := range ids {
			x.called[id] = k.CallIDs[n]
		}
		x.result.Pair[i] = j
		return true
	}
	return false
}

// callsIn returns the functions that a tool_calls array calls, with their arguments.
func callsIn(list []byte) (out []string) {
	var calls []json.RawMessage
	if json.Unmarshal(list, &calls) != nil {
		return nil
	}
	for _, call := range calls {
		var c struct {
			Function struct{ Name, Arguments string }
		}
		if json.Unmarshal(call, &c) == nil {
			out = append(out, c.Function.Name+" "+strings.Join(strings.Fields(c.Function.Arguments), ""))
		}
	}
	return out
}

// callsOf returns callsIn of a known message.
func (x *aligner) callsOf(j int) []string {
	list, ok := x.calls[j]
	if !ok {
		if x.calls == nil {
			x.calls = map[int][]string{}
		}
		list = callsIn(x.known[j].ToolCalls)
		x.calls[j] = list
	}
	return list
}

// ran reports whether one of the turn's messages is the result of a call of k.
func (x *aligner) ran(k *Known, turn []int) bool {
	return len(k.CallIDs) > 0 && slices.ContainsFunc(turn, func(j int) bool {
		r := &x.known[j]
		return r.Role == "tool" && len(r.CallIDs) > 0 && slices.Contains(k.CallIDs, r.CallIDs[0])
	})
}
