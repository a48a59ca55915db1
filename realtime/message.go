package realtime

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// pending is the metadata of a caller's words that are not known yet.
const pending = "transcript"

// message returns an item as the ledger keeps it. It reports false for items that it does not keep.
func (r *record) message(it *item) (memory.Message, bool) {
	if it.made != nil {
		return *it.made, true
	}
	m := memory.Message{ID: it.id, Role: it.role, Content: it.text, Source: memory.SourceMessage, Timestamp: it.at.UnixMilli()}
	switch it.kind {
	case call:
		m.Source, m.Method, m.Content, m.ToolCalls = memory.SourceLLM, memory.AssumedFull, "", it.toolCalls()
		return m, it.callID != ""
	case result:
		m.Source, m.ToolCallID, m.ToolName = "", it.callID, r.calledName(it.callID)
		return m, it.callID != ""
	case other:
		return m, false
	}
	switch it.role {
	case memory.User:
		if it.voiced {
			m.Source = memory.SourceASR
		}
		if it.speech {
			m.Status, m.Content, m.Metadata = memory.Draft, "", map[string]json.RawMessage{pending: json.RawMessage(`"pending"`)}
			return m, true
		}
	case memory.Assistant:
		m.Source, m.Method = memory.SourceLLM, memory.AssumedFull
	case memory.System, memory.Developer:
	default:
		return m, false
	}
	return m, it.text != ""
}

// calledName returns the name of the function that a call was of.
func (r *record) calledName(callID string) string {
	for _, it := range r.known {
		if it.kind == call && it.callID == callID {
			return it.name
		}
	}
	return ""
}

// toolCalls returns the call of a function in the form of chat completions.
func (it *item) toolCalls() json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	raw, err := json.Marshal([]struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{{it.callID, "function", function{it.name, cmp.Or(it.args, "{}")}}})
	if err != nil {
		return nil
	}
	return raw
}

// answer returns an item that the model has made. v is the response's final object, nil for one
// that was cut.
func (r *record) answer(it *item, resp *response, status string, v peek.Value) memory.Message {
	now := r.now()
	m := memory.Message{
		ID: it.id, UpstreamID: it.id, Role: memory.Assistant, Source: memory.SourceLLM, Content: it.text, Method: memory.AssumedFull,
		Timestamp: it.at.UnixMilli(), Timings: &memory.Timings{StartMS: resp.from.UnixMilli(), TotalMS: max(1, now.Sub(resp.from).Milliseconds())},
	}
	if !resp.first.IsZero() {
		m.Timings.FirstTokenMS = max(1, resp.first.Sub(resp.from).Milliseconds())
	}
	switch status {
	case "completed":
		if m.FinishRsn = "stop"; it.kind == call {
			m.FinishRsn = "tool_calls"
		}
	case "incomplete":
		m.FinishRsn = text.Clip(cmp.Or(v.Path("status_details.reason").Str(), "length"), 64)
	case "failed":
		m.CutGenerated, m.Method = true, memory.DisconnectOnly
		m.Failure = &memory.Failure{
			Reason: "LLM_REQUEST_ERR", Code: 502, Error: "upstream",
			Message: text.Clip(cmp.Or(v.Path("status_details.error.message").Str(), v.Path("status_details.error.code").Str(), "the response failed"), 500),
		}
	case broken:
		m.CutGenerated, m.Method = !it.complete, memory.DisconnectOnly
	default: // cancelled
		m.CutGenerated = !it.complete
		m.Interrupted, m.InterruptMS, m.InterruptBy, m.Method = true, cutTime(it, now).UnixMilli(), memory.ByStartOfSpeech, memory.DisconnectOnly
	}
	if it.kind == call {
		m.Content, m.ToolCalls, m.Interrupted, m.InterruptMS, m.InterruptBy = "", it.toolCalls(), false, 0, ""
	}
	switch {
	case resp.aside && !it.added:
		m.State, m.Method = memory.Superseded, memory.DisconnectOnly
	case m.Content == "" && len(m.ToolCalls) == 0:
		m.State = memory.Empty
	}
	if !resp.noted {
		resp.noted = true
		r.note(&m, resp, v)
	}
	return m
}

func cutTime(it *item, now time.Time) time.Time {
	if it.cutAt.IsZero() {
		return now
	}
	return it.cutAt
}

// note adds to the first message of a response what is known of the whole of it: tokens, cost, and
// what the server said beside it.
func (r *record) note(m *memory.Message, resp *response, v peek.Value) {
	if usage := note(v.At("usage")); usage != nil {
		m.Usage = usage
	}
	model := text.Clip(r.model, memory.MaxModel)
	cost := r.prices.CostOf(model, m.Usage, 0, m.Content)
	m.Amend(func(d *memory.Details) { d.Model, d.Cost = model, cost })
	for key, value := range map[string]json.RawMessage{"rate_limits": r.limits, "response_metadata": resp.metadata, "errors": r.takeErrors()} {
		if len(value) == 0 || string(value) == "{}" {
			continue
		}
		if m.Metadata == nil {
			m.Metadata = map[string]json.RawMessage{}
		}
		m.Metadata[key] = value
	}
	r.limits = nil
}

// takeErrors returns the errors that the server has reported since the last answer.
func (r *record) takeErrors() json.RawMessage {
	list := r.errors
	r.errors = nil
	var known []json.RawMessage
	for _, e := range list {
		if e != nil {
			known = append(known, e)
		}
	}
	if len(known) == 0 {
		return nil
	}
	raw, err := json.Marshal(known)
	if err != nil {
		return nil
	}
	return raw
}
