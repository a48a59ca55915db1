package prompt

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// maxPending bounds, in bytes, an object that only says that a tool is still running.
const maxPending = 1 << 10

// isPending reports whether a tool's result only says that the tool is still running. Pipecat
// writes IN_PROGRESS or an object with the status "running" into its context, and the result in its
// place once the tool has returned.
func isPending(result string) bool {
	status := strings.Trim(result, "\" ")
	if strings.HasPrefix(status, "{") && len(status) <= maxPending {
		var only struct {
			Status      string `json:"status"`
			Type        any    `json:"type"`
			ToolCallID  any    `json:"tool_call_id"`
			Description any    `json:"description"`
			Message     any    `json:"message"`
		}
		d := json.NewDecoder(strings.NewReader(status))
		d.DisallowUnknownFields() // an object with more is a result
		if d.Decode(&only) != nil {
			return false
		}
		status = only.Status
	}
	switch strings.ToLower(status) {
	case "in_progress", "pending", "running":
		return true
	}
	return false
}

// lateResults adds to the plan the results in a re-sent list of tools that were still running in
// the ledger.
func (p *Plan) lateResults(recent []memory.Message, out *agents.Plan) error {
	for i := range p.req.Messages {
		k := p.rec.Pair[i]
		if k < 0 || p.req.Messages[i].ToolCallID == "" {
			continue
		}
		at := latest(recent, func(m *memory.Message) bool { return m.Seq == p.known[k] })
		if _, err := p.lateResult(i, &recent[at], out); err != nil {
			return err
		}
	}
	return nil
}

// injectResults is lateResults for a list of what is new. It returns those of the messages which
// that replaces nothing for.
func (p *Plan) injectResults(which []int, recent []memory.Message, out *agents.Plan) ([]int, error) {
	var err error
	return slices.DeleteFunc(which, func(i int) bool {
		id := p.req.Messages[i].ToolCallID
		if id == "" || err != nil {
			return false
		}
		for j := range slices.Backward(recent) {
			if m := &recent[j]; m.Role == memory.Tool && m.ToolCallID == id {
				var late bool
				late, err = p.lateResult(i, m, out)
				return late
			}
		}
		return false
	}), err
}

// withoutResent returns those of the messages which that the ledger does not have yet. The usual
// loop of an SDK sends the model's tool calls back together with their results: the calls are those
// of the ledger, and so are results that an earlier try has brought. by replaces as in the ledger.
func (p *Plan) withoutResent(which []int, recent []memory.Message, by *redact.Redactor) []int {
	asked := false // the caller has said something new before
	return slices.DeleteFunc(slices.Clone(which), func(i int) bool {
		in := &p.req.Messages[i]
		asked = asked || in.Role == "user"
		if asked {
			return false
		}
		if in.ToolCallID != "" {
			at := latest(recent, func(m *memory.Message) bool { return m.Role == memory.Tool && m.ToolCallID == in.ToolCallID })
			call := latest(recent, func(m *memory.Message) bool {
				return m.Role == memory.Assistant && slices.Contains(llmadapter.CallIDs(m.ToolCalls), in.ToolCallID)
			})
			if call < 0 || at <= call {
				return false
			}
			result := by.Text(in.Text()) // first: names in it become known
			return recent[at].Renamed(by).Content == result
		}
		if in.ToolCalls == nil {
			return false
		}
		calls := by.Calls(in.ToolCalls)
		return latest(recent, func(m *memory.Message) bool { return llmadapter.SameCalls(m.ToolCalls, calls) }) >= 0
	})
}

// latest returns the index of the last message that is meant, or -1.
func latest(recent []memory.Message, meant func(*memory.Message) bool) int {
	for i := range slices.Backward(recent) {
		if meant(&recent[i]) {
			return i
		}
	}
	return -1
}

// lateResult adds message i to the plan if it is the result of a tool that was still running in m.
func (p *Plan) lateResult(i int, m *memory.Message, out *agents.Plan) (bool, error) {
	result := p.req.Messages[i].Text()
	if m.Role != memory.Tool || !isPending(m.Content) || result == "" || isPending(result) {
		return false, nil
	}
	result, err := text.Clean(field(i), result, memory.MaxContent)
	out.Results = append(out.Results, agents.Extension{Seq: m.Seq, Content: result})
	return true, err
}

// placeBefore notes which new messages of the agent a re-sent list has right before an answer of
// the model: a filler of the platform, which was heard before that answer although it comes later.
func (p *Plan) placeBefore(recent []memory.Message, out *agents.Plan) {
	for j, i := range p.rec.New {
		in := &p.req.Messages[i]
		if in.Role != "assistant" || in.ToolCalls != nil {
			continue
		}
		next := i + 1
		for next < len(p.req.Messages) && p.req.Messages[next].IsSystem() {
			next++
		}
		if next == len(p.req.Messages) || p.req.Messages[next].Role != "assistant" || p.rec.Pair[next] < 0 {
			continue
		}
		at := latest(recent, func(m *memory.Message) bool { return m.Seq == p.known[p.rec.Pair[next]] })
		if _, replaces := p.rec.Place[i]; !replaces && sentByProxy(&recent[at]) {
			if out.Before == nil {
				out.Before = map[int]int64{}
			}
			out.Before[j] = recent[at].Seq
		}
	}
}

// removeThoughts removes what a model thought from the platform's copies of its answers.
func (p *Plan) removeThoughts() {
	for i := len(p.req.Messages) - 1; i >= 0; i-- {
		in := &p.req.Messages[i]
		if in.Role != "assistant" || in.IsParts() {
			continue
		}
		whole := in.Text()
		spoken := llmadapter.Spoken(whole)
		if spoken != whole && (spoken != "" || in.ToolCalls != nil || len(p.req.Messages) > 1) {
			p.setText(i, spoken)
		}
	}
}
