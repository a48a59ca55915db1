package responses

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Request is a request for a response.
type Request struct {
	Stream   bool
	Previous string // previous_response_id
	// Conversation is the ID in conversation, which may be an object or the ID itself.
	Conversation string
	AgentID      string // metadata.agent_id
	// References are the IDs of item_reference items, whose contents Chat needs.
	References []string

	members map[string]jsontext.Value // those that are not null
	items   []inputItem
	from    []string // where each message of the chat request comes from, such as input[2]
}

// lenient accepts invalid UTF-8, which becomes U+FFFD.
var lenient = jsontext.AllowInvalidUTF8(true)

// Parse reads and checks the body of a request. It fails with fault.BadRequest if the body is not a
// JSON object, with fault.Missing for a missing field, and with fault.Invalid for a wrong one and
// for what chat completions cannot do.
func Parse(body []byte) (*Request, error) {
	r := &Request{}
	if err := json.Unmarshal(body, &r.members, lenient); err != nil || r.members == nil {
		return nil, fault.Wrap(fault.BadRequest, err, "the body is not a JSON object, or names a member twice")
	}
	maps.DeleteFunc(r.members, func(_ string, v jsontext.Value) bool { return v.Kind() == 'n' })
	if err := r.refuse(); err != nil {
		return nil, err
	}
	for name, into := range map[string]any{"stream": &r.Stream, "previous_response_id": &r.Previous} {
		if err := r.read(name, into); err != nil {
			return nil, err
		}
	}
	if err := r.readConversation(); err != nil {
		return nil, err
	}
	var metadata map[string]jsontext.Value
	if err := r.read("metadata", &metadata); err != nil {
		return nil, err
	}
	_ = json.Unmarshal(metadata["agent_id"], &r.AgentID, lenient) // anything but a string names no agent
	return r, r.readInput()
}

// readConversation reads conversation: an ID, or an object with one.
func (r *Request) readConversation() error {
	v, ok := r.members["conversation"]
	if !ok {
		return nil
	}
	in := InConversation{}
	if v.Kind() != '"' {
		if err := json.Unmarshal(v, &in, lenient); err != nil || in.ID == "" {
			return fault.At(fault.Invalid, "conversation", "must be the ID of a conversation, or an object such as %s", `{"id":"conv_…"}`)
		}
	} else if err := r.read("conversation", &in.ID); err != nil {
		return err
	}
	if r.Previous != "" {
		return fault.At(fault.Invalid, "conversation", "cannot be combined with previous_response_id; send one or the other")
	}
	r.Conversation = in.ID
	return nil
}

// ParseItems reads and checks an array of items, as Parse does that of a request.
func ParseItems(items []byte) (*Request, error) {
	if v := jsontext.Value(items); v.Kind() != '[' {
		return nil, fault.At(fault.Invalid, "items", "must be an array of items")
	}
	return Parse(append(append([]byte(`{"input":`), items...), '}'))
}

// Member returns a top-level member of the request, or nil.
func (r *Request) Member(name string) []byte { return r.members[name] }

// read reads a member into a string, a boolean or a map. One that is not there changes nothing.
func (r *Request) read(name string, into any) error {
	v, ok := r.members[name]
	if !ok {
		return nil
	}
	return decode(name, v, into)
}

// decode reads a value into into; field is its name in errors.
func decode(field string, v jsontext.Value, into any) error {
	err := json.Unmarshal(v, into, lenient)
	if err == nil {
		return nil
	}
	want := "an object"
	switch into.(type) {
	case *string:
		want = "a string"
	case *bool:
		want = "true or false"
	case *[]jsontext.Value:
		want = "an array"
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && e.JSONPointer != "" { // all that is read inside objects
		field, want = field+strings.ReplaceAll(string(e.JSONPointer), "/", "."), "a string"
	}
	return fault.At(fault.Invalid, field, "must be %s", want)
}

// refuse refuses what chat completions have no place for.
func (r *Request) refuse() error {
	if _, ok := r.members["prompt"]; ok {
		return fault.At(fault.Invalid, "prompt", "is not supported; send the prompt's text as instructions")
	}
	if string(r.members["background"]) == "true" {
		return fault.At(fault.Invalid, "background", "is not supported; send stream: true, or wait for the answer")
	}
	if n, ok := r.members["top_logprobs"]; ok && string(n) != "0" {
		return fault.At(fault.Invalid, "top_logprobs", "is not supported; leave it out")
	}
	var include []string
	if err := r.read("include", &include); err != nil {
		return fault.At(fault.Invalid, "include", "must be an array of strings")
	}
	for i, what := range include {
		if what != "reasoning.encrypted_content" { // there never is any
			return fault.At(fault.Invalid, "include["+strconv.Itoa(i)+"]", "%q is not supported; leave it out", text.Clip(what, 80))
		}
	}
	return nil
}

// own are the members that are not copied into the chat request.
var own = []string{
	"input", "instructions", "previous_response_id", "conversation", "metadata", "store", "include", "truncation", "stream_options", "background", "top_logprobs",
	"max_output_tokens", "max_tool_calls", "text", "tools", "tool_choice", "parallel_tool_calls", "reasoning",
}

// Chat returns the request as the body of a chat completions request. stored has the item for each
// of References.
func (r *Request) Chat(stored map[string]jsontext.Value) ([]byte, error) {
	chat := map[string]jsontext.Value{}
	for name, v := range r.members {
		if !slices.Contains(own, name) {
			chat[name] = v
		}
	}
	if r.AgentID != "" {
		chat["metadata"] = encode(map[string]string{"agent_id": r.AgentID})
	}
	if r.Stream {
		chat["stream_options"] = jsontext.Value(`{"include_usage":true}`)
	}
	if v, ok := r.members["max_output_tokens"]; ok {
		chat["max_completion_tokens"] = v
	}
	var reasoning struct {
		Effort jsontext.Value `json:"effort"`
	}
	if err := r.read("reasoning", &reasoning); err != nil {
		return nil, err
	}
	put(chat, "reasoning_effort", reasoning.Effort)
	for _, translate := range []func(map[string]jsontext.Value) error{r.format, r.tools} {
		if err := translate(chat); err != nil {
			return nil, err
		}
	}
	messages, err := r.messages(stored)
	if err != nil {
		return nil, err
	}
	chat["messages"] = encode(messages)
	return encode(chat), nil
}

// put sets a member unless the value is missing or null.
func put(chat map[string]jsontext.Value, name string, v jsontext.Value) {
	if len(v) > 0 && v.Kind() != 'n' {
		chat[name] = v
	}
}

// format translates text, which says how the answer is to be written.
func (r *Request) format(chat map[string]jsontext.Value) error {
	var in struct {
		Format    map[string]jsontext.Value `json:"format"`
		Verbosity jsontext.Value            `json:"verbosity"`
	}
	if err := r.read("text", &in); err != nil {
		return fault.At(fault.Invalid, "text", "must be an object such as %s", `{"format":{"type":"text"}}`)
	}
	put(chat, "verbosity", in.Verbosity)
	if in.Format == nil {
		return nil
	}
	switch kind := stringIn(in.Format, "type"); kind {
	case "text":
	case "json_object":
		chat["response_format"] = jsontext.Value(`{"type":"json_object"}`)
	case "json_schema":
		schema := maps.Clone(in.Format)
		delete(schema, "type")
		chat["response_format"] = encode(map[string]any{"type": kind, "json_schema": schema})
	default:
		return fault.At(fault.Invalid, "text.format.type", "must be text, json_object or json_schema, not %q", text.Clip(kind, 40))
	}
	return nil
}

// tools translates the tools and how they may be used.
func (r *Request) tools(chat map[string]jsontext.Value) error {
	var list []map[string]jsontext.Value
	if err := r.read("tools", &list); err != nil {
		return fault.At(fault.Invalid, "tools", "must be an array of tools such as %s", `{"type":"function","name":…,"parameters":{…}}`)
	}
	out := make([]any, len(list))
	for i, tool := range list {
		if kind := stringIn(tool, "type"); kind != "function" {
			return fault.At(fault.Invalid, fmt.Sprintf("tools[%d].type", i), "%q is not supported; only tools of type function are, which the client runs", text.Clip(kind, 40))
		}
		function := maps.Clone(tool)
		delete(function, "type")
		maps.DeleteFunc(function, func(_ string, v jsontext.Value) bool { return v.Kind() == 'n' })
		out[i] = map[string]any{"type": "function", "function": function}
	}
	if len(out) == 0 { // what follows is refused without tools
		return nil
	}
	chat["tools"] = encode(out)
	put(chat, "parallel_tool_calls", r.members["parallel_tool_calls"])
	choice := r.members["tool_choice"]
	if choice.Kind() != '{' {
		put(chat, "tool_choice", choice)
		return nil
	}
	var in map[string]jsontext.Value
	if err := decode("tool_choice", choice, &in); err != nil {
		return err
	}
	if kind := stringIn(in, "type"); kind != "function" {
		return fault.At(fault.Invalid, "tool_choice.type", "%q is not supported; function is, and the strings none, auto and required", text.Clip(kind, 40))
	}
	chat["tool_choice"] = encode(map[string]any{"type": "function", "function": map[string]string{"name": stringIn(in, "name")}})
	return nil
}

// stringIn returns a member that is a string, or "".
func stringIn(object map[string]jsontext.Value, name string) string {
	var s string
	_ = json.Unmarshal(object[name], &s, lenient)
	return s
}

// encode encodes a value that cannot fail to be encoded. The same value always has the same bytes.
func encode(v any) jsontext.Value {
	b, err := json.Marshal(v, lenient, json.Deterministic(true))
	if err != nil {
		return jsontext.Value("null")
	}
	return b
}
