package turn

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/heardlog/heardlog/llmadapter"
)

// maxTraced is how many bytes of one side of a call a trace holds, where it may hold any.
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

// inputMessages gives what a request tells the model: the newest messages, as many as there is room for.
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
			text, calls = newest(text), "" // else nothing would be left of the message that asks
		}
		out = append(out, tracedMessage{Role: m.Get("role").String(), Parts: parts(text, calls)})
	}
	slices.Reverse(out)
	return marshalled(out)
}

// outputMessages gives what the model said.
func outputMessages(rec *llmadapter.Record) string {
	text, calls := rec.Generated(), string(rec.ToolCalls())
	text = newest(text)
	if len(text)+len(calls) > maxTraced {
		calls = ""
	}
	return marshalled([]tracedMessage{{Role: "assistant", Parts: parts(text, calls), Finish: rec.Finish}})
}

// newest gives the end of a text, as far as a trace holds it.
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

func marshalled(msgs []tracedMessage) string {
	b, err := json.Marshal(msgs)
	if err != nil { // arguments that are no JSON
		return "[]"
	}
	return string(b)
}
