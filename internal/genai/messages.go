package genai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

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
	list := gjson.GetBytes(body, "messages").Array()
	for _, m := range slices.Backward(list) {
		text := llmadapter.ContentText([]byte(m.Get("content").Raw))
		calls := m.Get("tool_calls").Raw
		if size += len(text) + len(calls); size > MaxContent {
			if len(out) > 0 {
				break
			}
			text, calls = newest(text), "" // else the question itself would be missing
		}
		out = append(out, message{Role: m.Get("role").String(), Parts: parts(text, calls)})
	}
	slices.Reverse(out)
	return encode(out)
}

// OutputMessages returns what the model said, as JSON for the attribute gen_ai.output.messages.
func OutputMessages(rec *llmadapter.Record) string {
	text, calls := rec.Generated(), string(rec.ToolCalls())
	text = newest(text)
	if len(text)+len(calls) > MaxContent {
		calls = ""
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

func parts(text, calls string) []part {
	out := []part{}
	if text != "" {
		out = append(out, part{Type: "text", Content: text})
	}
	for _, c := range gjson.Parse(calls).Array() {
		args := json.RawMessage(c.Get("function.arguments").Raw)
		out = append(out, part{Type: "tool_call", ID: c.Get("id").String(), Name: c.Get("function.name").String(), Arguments: args})
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
