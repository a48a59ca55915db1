package turn

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/heardlog/heardlog/llmadapter"
)

// maxTraced limits how many bytes of each side of a call a trace holds.
const maxTraced = 64 << 10

// tracedMessage is a message as the conventions for generative AI write it.
type tracedMessage struct {
	Role   string       `json:"role"`
	Parts  []tracedPart `json:"parts"`
	Finish string       `json:"finish_reason,omitempty"`
}

type tracedPart struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// inputMessages returns the newest messages of a request, as many as fit.
func inputMessages(body []byte) string {
	out := []tracedMessage{}
	size := 0
	list := gjson.GetBytes(body, "messages").Array()
	for _, m := range slices.Backward(list) {
		text := llmadapter.ContentText([]byte(m.Get("content").Raw))
		calls := m.Get("tool_calls").Raw
		if size += len(text) + len(calls); size > maxTraced {
			if len(out) > 0 {
				break
			}
			text, calls = newest(text), "" // else the question itself would be missing
		}
		out = append(out, tracedMessage{Role: m.Get("role").String(), Parts: parts(text, calls)})
	}
	slices.Reverse(out)
	return encodeTraced(out)
}

// outputMessages returns what the model said.
func outputMessages(rec *llmadapter.Record) string {
	text, calls := rec.Generated(), string(rec.ToolCalls())
	text = newest(text)
	if len(text)+len(calls) > maxTraced {
		calls = ""
	}
	return encodeTraced([]tracedMessage{{Role: "assistant", Parts: parts(text, calls), Finish: rec.Finish}})
}

// newest returns the end of a text, at most maxTraced bytes.
func newest(text string) string {
	if len(text) <= maxTraced {
		return text
	}
	return strings.ToValidUTF8(text[len(text)-maxTraced:], "") // a character may be cut in two
}

func parts(text, calls string) []tracedPart {
	out := []tracedPart{}
	if text != "" {
		out = append(out, tracedPart{Type: "text", Content: text})
	}
	for _, c := range gjson.Parse(calls).Array() {
		args := json.RawMessage(c.Get("function.arguments").Raw)
		out = append(out, tracedPart{Type: "tool_call", ID: c.Get("id").String(), Name: c.Get("function.name").String(), Arguments: args})
	}
	return out
}

// encodeTraced returns messages as JSON, or an empty list if tool arguments are not valid JSON.
func encodeTraced(msgs []tracedMessage) string {
	b, err := json.Marshal(msgs)
	if err != nil {
		return "[]"
	}
	return string(b)
}
