package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory/window"
)

// policyOf returns the policy in a request's member "heardlog", or nil. The member is ours alone;
// other fields in it are refused, so that a misspelled policy is not ignored.
func policyOf(req *llmadapter.Request) (*window.Policy, error) {
	raw := req.Member(llmadapter.OwnMember)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	own := peek.Parse(raw)
	if !own.IsObject() {
		return nil, fault.At(fault.Invalid, llmadapter.OwnMember, "must be an object with the field policy")
	}
	err := peek.Object(own, func(name, _ []byte) error {
		if !peek.NameIs(name, "policy") {
			return fault.At(fault.Invalid, llmadapter.OwnMember+"."+text.Clip(peek.Unquote(name), 60), "is not a field of this call; the only one here is policy")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	policy := own.At("policy")
	if policy.IsNull() {
		return nil, nil
	}
	p, err := window.Decode(llmadapter.OwnMember+".policy", policy)
	if err != nil {
		return nil, err
	}
	return &p, nil
}

// applyWindow cuts a platform's own list to the turn's policy. Nothing is added from the ledger:
// the list is what the platform remembers.
func (p *Prompt) applyWindow(list []llmadapter.Message) []llmadapter.Message {
	w := p.turn.Window
	if w == nil {
		return list
	}
	if !*w.Policy.Enabled {
		return lastWords(list)
	}
	views := make([]window.Message, len(list))
	for i := range list {
		m := &list[i]
		views[i] = window.Message{Role: window.Role(m.Role), Text: m.Text, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.Name}
		if m.Content != nil {
			if m.Content[0] == '"' {
				views[i].Text = llmadapter.ContentText(m.Content)
			} else {
				views[i].Parts = m.Content
			}
		}
	}
	policy := w.Policy
	if policy.ToolCallIntegrity == window.IntegrityNone || policy.ToolCallIntegrity == window.IntegrityTrailing {
		// LLMs refuse a list with a result without its call.
		policy.ToolCallIntegrity = window.IntegrityAtomic
	}
	read := policy.Read(views, w.Counter, window.Extras{Question: true})
	out := make([]llmadapter.Message, 0, len(read.Entries))
	for _, e := range read.Entries {
		if e.Kind == window.Kept {
			out = append(out, list[e.Index])
			continue
		}
		m := llmadapter.Message{Role: string(e.Message.Role), Text: e.Message.Text, ToolCalls: e.Message.ToolCalls, ToolCallID: e.Message.ToolCallID, Name: e.Message.ToolName}
		if e.Index >= 0 {
			m.Seq = list[e.Index].Seq
		}
		if len(e.Message.Parts) > 0 {
			m.Content = e.Message.Parts
		}
		out = append(out, m)
	}
	if !slices.ContainsFunc(out, func(m llmadapter.Message) bool { return m.Role != "system" && m.Role != "developer" }) {
		return lastWords(list) // tool results alone exceed the limit
	}
	return out
}

// lastWords returns the user's newest message and what follows it.
func lastWords(list []llmadapter.Message) []llmadapter.Message {
	for i, m := range slices.Backward(list) {
		if m.Role == "user" {
			return list[i:]
		}
	}
	return list
}
