package prompt

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// messages returns incoming messages as the ledger stores them. The last user message gets the
// call's key as its ID.
func (p *Plan) messages(which []int, lastTurn int64) ([]memory.Message, error) {
	var out []memory.Message
	afterUser := false
	reached := lastTurn // the latest turn that the messages before may have opened
	for _, i := range which {
		in := &p.req.Messages[i]
		m, err := toMemory(in, i, afterUser)
		if err != nil {
			return nil, err
		}
		if part, ok := p.rec.Part[i]; ok && p.mode == ModeReconcile {
			if m.Content, err = text.Clean(field(i), part, memory.MaxContent); err != nil {
				return nil, err
			}
			m.Parts = nil
		}
		afterUser = in.Role == "user" || afterUser && in.Role != "assistant" || in.ToolCalls != nil
		switch {
		case in.Role == "user" && in.HasTurn && in.TurnID > lastTurn && in.TurnID >= reached:
			m.TurnID, m.GivenTurn = in.TurnID, true
			lastTurn, reached = in.TurnID, in.TurnID
		case in.Role == "user", m.Role == memory.Assistant && m.Source != memory.SourceLLM:
			reached++
		}
		out = append(out, m)
	}
	if p.key != "" {
		for i, m := range slices.Backward(out) {
			if m.Role == memory.User {
				out[i].ID = p.key
				break
			}
		}
	}
	return out, nil
}

// toMemory returns message i for the ledger. It copies what it keeps, since the ledger outlives the
// request.
func toMemory(in *llmadapter.Incoming, i int, afterUser bool) (memory.Message, error) {
	m := memory.Message{Role: memory.Role(in.Role), ToolCallID: in.ToolCallID, ToolName: in.Name, ToolCalls: bytes.Clone(in.ToolCalls)}
	if in.Role == "function" {
		m.Role = memory.Tool
	}
	if more := in.MoreMembers(); more != "" {
		m.Amend(func(r *memory.Details) { r.Members = more })
	}
	var err error
	if m.Content, err = text.Clean(field(i), in.Text(), memory.MaxContent); err != nil {
		return m, err
	}
	if in.IsParts() {
		m.Parts = bytes.Clone(in.Content)
	}
	if in.Timestamp > 0 {
		m.Timestamp = in.Timestamp
		if m.Timestamp < 1e11 { // printed examples have seconds
			m.Timestamp *= 1000
		}
	}
	m.Source = sourceOf(in, memory.SourceMessage, memory.SourceASR, memory.SourceCommand)
	if m.Role != memory.User {
		m.Source = sourceOf(in, memory.SourceCommand, memory.SourceLLM, memory.SourceGreeting, memory.SourceSilence, memory.SourceLLMFailure)
		if m.Source == memory.SourceCommand && afterUser {
			m.Source = memory.SourceLLM
		}
		m.Method = memory.EchoDiff // the platform reports what it said
	}
	if m.Role == memory.Tool {
		m.Source, m.Method = "", ""
	}
	return m, metadata(in, &m)
}

// field returns the name of message i's content in errors.
func field(i int) string {
	return "messages[" + strconv.Itoa(i) + "].content"
}

// sourceOf returns the source that a message names, if it is one of those allowed, or else the
// first of them.
func sourceOf(in *llmadapter.Incoming, allowed ...memory.Source) memory.Source {
	s := memory.Source(in.MetadataString("source"))
	if slices.Contains(allowed, s) {
		return s
	}
	return allowed[0]
}

// metadata copies a message's metadata, without the keys that have fields of their own.
func metadata(in *llmadapter.Incoming, m *memory.Message) error {
	if in.Metadata == nil {
		return nil
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(in.Metadata, &all); err != nil {
		return fault.Wrap(fault.Invalid, err, "metadata of a message is not a JSON object")
	}
	for _, own := range []string{"source", "interrupted", "interrupt_timestamp", "original", "agent_id"} {
		if raw, ok := all[own]; ok {
			if m.Role == memory.Assistant {
				takeInterruption(m, own, raw)
			}
			delete(all, own)
		}
	}
	if len(all) > 0 {
		m.Metadata = all
	}
	if !m.Interrupted {
		m.InterruptMS, m.Generated = 0, ""
	}
	return nil
}

// takeInterruption reads a metadata field of a platform about an answer that was cut.
func takeInterruption(m *memory.Message, key string, raw json.RawMessage) {
	switch key {
	case "interrupted":
		m.Interrupted = string(raw) == "true"
	case "interrupt_timestamp":
		_ = json.Unmarshal(raw, &m.InterruptMS) // anything but a number is ignored
	case "original":
		_ = json.Unmarshal(raw, &m.Generated)
		if strings.TrimSpace(m.Generated) == strings.TrimSpace(m.Content) {
			m.Generated = ""
		}
	}
}
