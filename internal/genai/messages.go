package genai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/llmadapter"
)

// MaxContent limits how many bytes of each side of a call a trace holds.
const MaxContent = 64 << 10

// message is a message as the conventions for generative AI write it.
type message struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// InputMessages returns the newest messages of a request, as many as fit, as JSON for the attribute
// gen_ai.input.messages.
func InputMessages(body []byte) string {
	out := []message{}
	size := 0
	list := peek.At(body, "messages").List()
	for _, m := range slices.Backward(list) {
		text := llmadapter.ContentText(m.At("content"))
		calls := m.At("tool_calls")
		if size += len(text) + len(calls); size > MaxContent {
			if len(out) > 0 {
				break
			}
			text, calls = newest(text), nil // else the question itself would be missing
		}
		out = append(out, message{Role: m.At("role").Text(), Parts: parts(text, calls)})
	}
	slices.Reverse(out)
	return encode(out)
}

// OutputMessages returns what the model said, as JSON for the attribute gen_ai.output.messages.
func OutputMessages(rec *llmadapter.Record) string {
	text, calls := rec.Generated(), rec.ToolCalls()
	text = newest(text)
	if len(text)+len(calls) > MaxContent {
		calls = nil
	}
	return encode([]message{{Role: "assistant", Parts: parts(text, calls), Finish: rec.Finish}})
}

// newest returns the end of a text, at most MaxContent bytes.
func newest(text string) string {
	if len(text) <= MaxContent {
		return text
	}
	return strings.ToValidUTF8(text[len(text)-MaxContent:], "") // a character may be cut in two
}

func parts(text string, calls []byte) []part {
	out := []part{}
	if text != "" {
		out = append(out, part{Type: "text", Content: text})
	}
	for _, c := range peek.Parse(calls).List() {
		args := json.RawMessage(c.At("function", "arguments"))
		out = append(out, part{Type: "tool_call", ID: c.At("id").Text(), Name: c.At("function", "name").Text(), Arguments: args})
	}
	return out
}

// encode returns messages as JSON, or an empty list if tool arguments are not valid JSON.
func encode(msgs []message) string {
	b, err := json.Marshal(msgs)
	if err != nil {
		return "[]"
	}
	return string(b)
}
