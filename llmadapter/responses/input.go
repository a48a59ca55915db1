package responses

import (
	"cmp"

	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// maxItems limits the items of one request. Every item becomes at most one message, of which a chat
// request may have as many.
const maxItems = 4096

// inputItem is an element of input, with the members that its type has.
type inputItem struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"`
	Output    jsontext.Value `json:"output"`
	Summary   jsontext.Value `json:"summary"`
}

// readInput reads input: a string, which is what the user says, or an array of items.
func (r *Request) readInput() error {
	v, ok := r.members["input"]
	if !ok {
		return fault.At(fault.Missing, "input", "is required: a string or an array of items")
	}
	switch v.Kind() {
	case '"':
		r.items = []inputItem{{Type: "message", Role: "user", Content: v}}
		return nil
	case '[':
	default:
		return fault.At(fault.Invalid, "input", "must be a string or an array of items")
	}
	var list []jsontext.Value
	if err := decode("input", v, &list); err != nil {
		return err
	}
	if len(list) > maxItems {
		return fault.At(fault.Invalid, "input", "holds more than %d items", maxItems)
	}
	for i, v := range list {
		it, err := readItem("input["+strconv.Itoa(i)+"]", v)
		if err != nil {
			return err
		}
		if it.Type == "item_reference" {
			r.References = append(r.References, it.ID)
		}
		r.items = append(r.items, it)
	}
	return nil
}

// readItem reads one item; field is its name in errors.
func readItem(field string, v jsontext.Value) (inputItem, error) {
	var it inputItem
	if err := decode(field, v, &it); err != nil {
		return it, err
	}
	required := func(name, value string) error {
		if value == "" {
			return fault.At(fault.Missing, field+"."+name, "is required in an item of type %s", it.Type)
		}
		return nil
	}
	switch it.Type {
	case "", "message":
		it.Type = "message"
		switch it.Role {
		case "user", "assistant", "system", "developer":
			return it, nil
		}
		return it, fault.At(fault.Invalid, field+".role", "must be user, assistant, system or developer, not %q", text.Clip(it.Role, 40))
	case "function_call":
		if err := required("name", it.Name); err != nil {
			return it, err
		}
		return it, required("call_id", it.CallID)
	case "function_call_output":
		return it, required("call_id", it.CallID)
	case "item_reference":
		return it, required("id", it.ID)
	case "reasoning":
		return it, nil
	}
	return it, fault.At(fault.Invalid, field+".type", "%q is not supported; message, function_call, function_call_output, item_reference and reasoning are", text.Clip(it.Type, 40))
}

// chatMessage is a message of a chat request.
type chatMessage struct {
	Role       string         `json:"role"`
	Content    jsontext.Value `json:"content"`
	ToolCalls  []chatCall     `json:"tool_calls,omitzero"`
	ToolCallID string         `json:"tool_call_id,omitzero"`
	Thoughts   string         `json:"reasoning_content,omitzero"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// messages translates instructions and input. Tool calls join the assistant's words right before
// them, as in the answer that they come from.
func (r *Request) messages(stored map[string]jsontext.Value) ([]chatMessage, error) {
	var out []chatMessage
	if v, ok := r.members["instructions"]; ok {
		if v.Kind() != '"' {
			return nil, fault.At(fault.Invalid, "instructions", "must be a string")
		}
		out, r.from = append(out, chatMessage{Role: "system", Content: v}), append(r.from, "instructions")
	}
	own := false // the last message is an answer that the next item may go on with
	thoughts := ""
	for i, it := range r.items {
		field := "input[" + strconv.Itoa(i) + "]"
		if it.Type == "item_reference" {
			v, ok := stored[it.ID]
			if !ok {
				return nil, fault.At(fault.NotFound, field+".id", "there is no item %q", text.Clip(it.ID, 200))
			}
			var err error
			if it, err = readItem(field, v); err != nil {
				return nil, err
			}
		}
		m := chatMessage{Role: it.Role}
		var err error
		switch it.Type {
		case "reasoning": // of the answer or the call that follows
			thoughts = cmp.Or(texts(it.Content), texts(it.Summary))
			own = false
			continue
		case "message":
			m.Content, err = content(field+".content", it.Content, it.Role == "assistant")
		case "function_call":
			call := chatCall{it.CallID, "function", chatFunction{it.Name, it.Arguments}}
			if own && thoughts == "" {
				last := &out[len(out)-1]
				last.ToolCalls = append(last.ToolCalls, call)
				continue
			}
			m.Role, m.ToolCalls = "assistant", []chatCall{call}
		case "function_call_output":
			m.Role, m.ToolCallID = "tool", it.CallID
			m.Content, err = content(field+".output", it.Output, true)
		}
		if err != nil {
			return nil, err
		}
		if own = m.Role == "assistant"; own {
			m.Thoughts = thoughts
		}
		thoughts = ""
		out, r.from = append(out, m), append(r.from, field)
	}
	return out, nil
}

// texts returns the texts of an array of parts.
func texts(v jsontext.Value) string {
	if v.Kind() != '[' {
		return ""
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(v, &parts, lenient) // parts of another form have none
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// part is a part of an item's content.
type part struct {
	Type       string         `json:"type"`
	Text       *string        `json:"text"`
	Refusal    *string        `json:"refusal"`
	ImageURL   string         `json:"image_url"`
	Detail     string         `json:"detail"`
	InputAudio jsontext.Value `json:"input_audio"`
}

// content translates the content of an item: a string or an array of parts. It is a string again if
// it has a single text, or if only text is allowed.
func content(field string, v jsontext.Value, onlyText bool) (jsontext.Value, error) {
	switch v.Kind() {
	case '"':
		return v, nil
	case '[':
	default:
		return nil, fault.At(fault.Missing, field, "is required: a string or an array of parts")
	}
	var list []jsontext.Value
	if err := decode(field, v, &list); err != nil {
		return nil, err
	}
	var texts []string
	var out []any
	for i, v := range list {
		at := field + "[" + strconv.Itoa(i) + "]"
		var p part
		if err := decode(at, v, &p); err != nil {
			return nil, err
		}
		switch p.Type {
		case "input_text", "output_text", "text", "refusal":
			name, words := "text", p.Text
			if p.Type == "refusal" {
				name, words = "refusal", p.Refusal
			}
			if words == nil {
				return nil, fault.At(fault.Missing, at+"."+name, "is required in a part of type %s", p.Type)
			}
			texts = append(texts, *words)
			out = append(out, map[string]string{"type": "text", "text": *words})
			continue
		case "input_image":
			if p.ImageURL == "" {
				return nil, fault.At(fault.Invalid, at+".image_url", "is required; files of OpenAI (file_id) are not supported")
			}
			image := map[string]string{"url": p.ImageURL}
			if p.Detail != "" {
				image["detail"] = p.Detail
			}
			out = append(out, map[string]any{"type": "image_url", "image_url": image})
		case "input_audio":
			out = append(out, map[string]any{"type": "input_audio", "input_audio": p.InputAudio})
		default:
			return nil, fault.At(fault.Invalid, at+".type", "%q is not supported; input_text, output_text, refusal, input_image and input_audio are", text.Clip(p.Type, 40))
		}
		if onlyText {
			return nil, fault.At(fault.Invalid, at+".type", "%q is not supported here; texts are", text.Clip(p.Type, 40))
		}
	}
	if onlyText || len(out) == 1 && len(texts) == 1 {
		return encode(strings.Join(texts, "\n")), nil
	}
	return encode(out), nil
}

// Locate renames the field of an error about the chat request to the one that the client sent.
func (r *Request) Locate(err error) error {
	e, ok := err.(*fault.Error) //nolint:errorlint // only its outermost text begins with the field
	if !ok {
		return err
	}
	if e.Field == "messages" {
		return fault.At(e.Code, "input", "%s", strings.TrimPrefix(e.Msg, "messages: "))
	}
	rest, ok := strings.CutPrefix(e.Field, "messages[")
	number, rest, closed := strings.Cut(rest, "]")
	if i, bad := strconv.Atoi(number); ok && closed && bad == nil && i < len(r.from) {
		field := r.from[i] + strings.TrimPrefix(rest, ".content")
		if strings.HasPrefix(r.from[i], "input[") {
			field = r.from[i] + rest
		}
		moved := *e
		moved.Field, moved.Msg = field, field+strings.TrimPrefix(e.Msg, e.Field)
		return &moved
	}
	return err
}
