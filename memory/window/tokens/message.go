package tokens

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory/window"
)

// What a message costs beside its texts, as OpenAI's chat format has it.
const (
	PerMessage = 4 // the marks around a message, and its role
	PerCall    = 3 // the marks around a tool call
	// A picture of 1024 × 1024 at high detail; what one costs really depends on its size and the
	// model.
	PerPicture = 765
)

// Size returns the tokens of a message: m.Tokens if known, else PerMessage plus those of its texts,
// of the names and arguments of its calls, and of the name of the tool that answers. IDs cost
// nothing.
func (k *counter) Size(m *window.Message) int {
	if m.Tokens > 0 {
		return m.Tokens
	}
	n := PerMessage + k.text(m.ToolName)
	if len(m.ToolCalls) > 0 {
		n += k.json(1, m.ToolCalls, k.calls)
	}
	if len(m.Parts) == 0 {
		return n + k.text(m.Text)
	}
	return n + k.json(2, m.Parts, k.content)
}

func (k *counter) calls(raw json.RawMessage) int {
	var calls []struct {
		Function struct{ Name, Arguments string }
	}
	if json.Unmarshal(raw, &calls) != nil {
		return k.text(string(raw))
	}
	n := 0
	for _, c := range calls {
		n += PerCall + k.text(c.Function.Name) + k.text(c.Function.Arguments)
	}
	return n
}

// content returns the tokens of a text, a list of texts and blocks, or null.
func (k *counter) content(raw json.RawMessage) int {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return 0
	case raw[0] == '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return k.text(s)
		}
	case raw[0] == '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			n := 0
			for _, el := range list {
				n += k.block(el)
			}
			return n
		}
	}
	return k.text(string(raw))
}

func (k *counter) block(raw json.RawMessage) int {
	if len(raw) == 0 || raw[0] != '{' {
		return k.content(raw)
	}
	var b struct {
		Type, Name           string
		Text, Content, Input json.RawMessage
	}
	if json.Unmarshal(raw, &b) != nil {
		return k.text(string(raw))
	}
	switch b.Type {
	case "image_url", "image", "input_image", "input_audio", "file":
		return PerPicture // its data are not text
	case "tool_use":
		return PerCall + k.text(b.Name) + k.text(string(b.Input))
	}
	if len(b.Text) == 0 && len(b.Content) == 0 {
		return k.text(string(raw))
	}
	n := 0
	if len(b.Text) > 0 {
		n += k.content(b.Text)
	}
	if len(b.Content) > 0 {
		n += k.content(b.Content)
	}
	return n
}
