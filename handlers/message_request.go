package handlers

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/input"
)

// messageRequest is one message to append.
type messageRequest struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"` // a string, an array of parts, or null
	TurnID  *int64          `json:"turn_id"`
	// Unix ms; ten digits are taken for seconds.
	Timestamp  int64                      `json:"timestamp"`
	Source     string                     `json:"source"` // here or in metadata
	Metadata   map[string]json.RawMessage `json:"metadata"`
	ToolCalls  json.RawMessage            `json:"tool_calls"`
	ToolCallID string                     `json:"tool_call_id"`
	Name       string                     `json:"name"`
	Status     string                     `json:"status"` // accepted, draft or discard
	Scope      *messageScope              `json:"scope"`
	Importance *float64                   `json:"importance"` // 0 to 1
	Category   string                     `json:"category"`
}

// providerMessage is a message with what its provider added to it, such as refusal and annotations.
// That becomes metadata.
type providerMessage struct {
	messageRequest
	More map[string]json.RawMessage `json:",embed"` // decoded by go-json-experiment only
}

// appendRequest is a batch, or one message without a list.
type appendRequest struct {
	providerMessage
	Messages messageList `json:"messages"`
}

// empty reports whether no member of the message is given.
func (m providerMessage) empty() bool {
	if !given(m.Content) {
		m.Content = nil
	}
	if !given(m.ToolCalls) {
		m.ToolCalls = nil
	}
	maps.DeleteFunc(m.More, func(_ string, v json.RawMessage) bool { return !given(v) })
	if len(m.More) == 0 {
		m.More = nil
	}
	return reflect.ValueOf(m).IsZero()
}

// messageList is read into a new list. Of two members "messages" the second counts; without this
// it would be written over the first and keep fields that it does not name.
type messageList []providerMessage

// UnmarshalJSONFrom implements json.UnmarshalerFrom of go-json-experiment.
func (l *messageList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*l = nil
	return fastjson.UnmarshalDecode(dec, (*[]providerMessage)(l))
}

// messages checks the messages and returns them as the domain takes them. Those without an ID get
// one made from key, if it is not "".
func (in *appendRequest) messages(key string, now time.Time) ([]memory.Message, error) {
	list, single := in.Messages, in.Messages == nil
	if single {
		list = []providerMessage{in.providerMessage}
	} else if !in.empty() {
		return nil, fault.At(fault.Invalid, "messages", "cannot be combined with a single message; send one or the other")
	}
	if len(list) > memory.MaxBatch {
		return nil, fault.At(fault.Invalid, "messages", "has %d messages; at most %d are allowed", len(list), memory.MaxBatch)
	}
	msgs := make([]memory.Message, len(list))
	for i, m := range list {
		at := ""
		if !single {
			at = "messages[" + strconv.Itoa(i) + "]."
		}
		if err := m.addMore(at); err != nil {
			return nil, err
		}
		if err := checkBlocks(at+"content", m.Content); err != nil {
			return nil, err
		}
		var err error
		if msgs[i], err = m.message(at, now); err != nil {
			return nil, err
		}
		if key != "" && msgs[i].ID == "" {
			msgs[i].ID = key + ":" + strconv.Itoa(i)
		}
	}
	return msgs, nil
}

// Limits of a message's smaller parts.
const (
	maxToolCalls = 64 << 10 // bytes
	maxToolName  = 256
)

// message checks a message and returns it as the domain takes it. at is its path for errors.
func (m messageRequest) message(at string, now time.Time) (memory.Message, error) {
	switch m.Role { // the names of other APIs
	case "human":
		m.Role = "user"
	case "ai":
		m.Role = "assistant"
	}
	m.ToolCallID, m.Name, m.ToolCalls = withoutNUL(m.ToolCallID), withoutNUL(m.Name), input.ReplaceNUL(m.ToolCalls)
	out := memory.Message{ID: m.ID, Role: memory.Role(m.Role), ToolCallID: m.ToolCallID, ToolName: m.Name}
	if m.ID != "" {
		if err := text.ValidName(at+"id", m.ID, 128); err != nil {
			return out, err
		}
	}
	if m.TurnID != nil {
		if *m.TurnID < 0 || *m.TurnID > 1<<53 {
			return out, fault.At(fault.Invalid, at+"turn_id", "must be a number from 0 to 2^53, not %d", *m.TurnID)
		}
		out.TurnID, out.GivenTurn = *m.TurnID, true
	}
	var err error
	if out.Timestamp, err = input.Millis(at+"timestamp", m.Timestamp); err != nil {
		return out, err
	}
	if out.Content, out.Parts, err = input.Content(at+"content", m.Content, memory.MaxContent); err != nil {
		return out, err
	}
	if err := m.setSource(&out, at); err != nil {
		return out, err
	}
	if err := m.setTools(&out, at); err != nil {
		return out, err
	}
	if err := m.setLabels(&out, at); err != nil {
		return out, err
	}
	if out.Role == memory.User && onlyResults(out.Parts) {
		out.Role, out.Source = memory.Tool, "" // a tool's answer in blocks, not something said
	}
	return out, m.setMetadata(&out, at, now)
}

// maxCategory is the maximum length of a category in bytes.
const maxCategory = 64

// setLabels checks and sets status, scope, importance and category.
func (m messageRequest) setLabels(out *memory.Message, at string) error {
	switch m.Status {
	case "", "accepted":
	case string(memory.Draft), string(memory.Discarded):
		out.Status = memory.MessageStatus(m.Status)
	default:
		return fault.At(fault.Invalid, at+"status", "must be one of accepted, draft, discard, not %q", text.Clip(m.Status, 40))
	}
	if f := m.Importance; f != nil {
		if !(*f >= 0 && *f <= 1) {
			return fault.At(fault.Invalid, at+"importance", "must be from 0 to 1, not %v", *f)
		}
		out.Amend(func(r *memory.Details) { r.Importance = f })
	}
	if m.Category != "" {
		if err := text.ValidName(at+"category", m.Category, maxCategory); err != nil {
			return err
		}
		out.Amend(func(r *memory.Details) { r.Category = m.Category })
	}
	return m.Scope.setScope(out, at+"scope")
}

// setSource checks the role and sets the source.
func (m messageRequest) setSource(out *memory.Message, at string) error {
	source := m.Source
	if raw, ok := m.Metadata["source"]; ok && source == "" {
		if err := json.Unmarshal(raw, &source); err != nil {
			return fault.At(fault.Invalid, at+"metadata.source", "must be a string")
		}
	}
	allowed := input.Sources(out.Role)
	switch {
	case m.Role == "":
		return fault.At(fault.Missing, at+"role", "is required: user, assistant, tool, system or developer")
	case allowed == nil:
		return fault.At(fault.Invalid, at+"role", "must be one of user, assistant, tool, system, developer, not %q", text.Clip(m.Role, 40))
	case source == "", out.Role == memory.Tool && source == string(memory.SourceTool):
		source = allowed[0]
	case !slices.Contains(allowed, source):
		return fault.At(fault.Invalid, at+"source", "must be one of %s for role %s, not %q", strings.Join(allowed, ", "), m.Role, text.Clip(source, 40))
	}
	out.Source = memory.Source(source)
	return nil
}

// setTools checks the fields about tools and sets the tool calls.
func (m messageRequest) setTools(out *memory.Message, at string) (err error) {
	if out.ToolCalls, err = m.toolCalls(out.Role, at+"tool_calls"); err != nil {
		return err
	}
	switch {
	case out.Role == memory.Tool && m.ToolCallID == "":
		return fault.At(fault.Missing, at+"tool_call_id", "is required for role tool")
	case out.Role != memory.Tool && m.ToolCallID != "":
		return fault.At(fault.Invalid, at+"tool_call_id", "is allowed in tool messages only")
	case len(m.ToolCallID) > maxToolName || len(m.Name) > maxToolName:
		return fault.At(fault.Invalid, at+"tool_call_id", "and name must have at most %d characters", maxToolName)
	case len(m.Content) == 0 && len(out.ToolCalls) == 0:
		return fault.At(fault.Missing, at+"content", "is required")
	}
	return nil
}

// toolCalls returns the tool calls without white space, nil for none.
func (m messageRequest) toolCalls(role memory.Role, field string) (json.RawMessage, error) {
	if len(m.ToolCalls) == 0 || string(m.ToolCalls) == "null" {
		return nil, nil
	}
	var calls []json.RawMessage
	switch {
	case role != memory.Assistant:
		return nil, fault.At(fault.Invalid, field, "is allowed in assistant messages only")
	case json.Unmarshal(m.ToolCalls, &calls) != nil:
		return nil, fault.At(fault.Invalid, field, "must be an array")
	case len(m.ToolCalls) > maxToolCalls:
		return nil, fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", len(m.ToolCalls), maxToolCalls)
	}
	for i, c := range calls {
		if len(c) == 0 || c[0] != '{' {
			return nil, fault.At(fault.Invalid, field+"["+strconv.Itoa(i)+"]", "must be an object")
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, m.ToolCalls); err != nil {
		return nil, fault.At(fault.Invalid, field, "must be valid JSON")
	}
	return b.Bytes(), nil
}

// addMore adds what a provider adds to its messages to the metadata. It refuses members that look
// like a misspelt field.
func (m *providerMessage) addMore(at string) error {
	if len(m.More) == 0 {
		return nil
	}
	names := map[string]reflect.Type{}
	addNames(names, reflect.TypeFor[appendRequest]())
	known := slices.Sorted(maps.Keys(names))
	for _, name := range slices.Sorted(maps.Keys(m.More)) {
		if n := text.Nearest(name, known); n != "" {
			return stray{path: at + text.Clip(name, 60), name: name, nearest: n}.unknown()
		}
		if _, ok := m.Metadata[name]; ok || string(m.More[name]) == "null" {
			continue
		}
		if m.Metadata == nil {
			m.Metadata = map[string]json.RawMessage{}
		}
		m.Metadata[name] = m.More[name]
	}
	return nil
}

// setMetadata keeps unknown metadata and reads the rest: an assistant message may be interrupted.
func (m messageRequest) setMetadata(out *memory.Message, at string, now time.Time) error {
	if len(m.Metadata) > input.MaxMetadata {
		return fault.At(fault.Invalid, at+"metadata", "has %d keys; at most %d are allowed", len(m.Metadata), input.MaxMetadata)
	}
	var err error
	if out.Metadata, err = input.Metadata(at+"metadata", m.Metadata); err != nil {
		return err
	}
	if out.Role != memory.Assistant {
		return nil
	}
	out.Method = memory.AssumedFull
	var interrupted bool
	if raw, ok := m.Metadata["interrupted"]; ok && json.Unmarshal(raw, &interrupted) != nil {
		return fault.At(fault.Invalid, at+"metadata.interrupted", "must be true or false")
	}
	if !interrupted {
		return nil
	}
	return m.setInterruption(out, at, now)
}

// setInterruption reads what is known of an interruption. The content is what was heard.
func (m messageRequest) setInterruption(out *memory.Message, at string, now time.Time) error {
	out.Interrupted, out.Method, out.InterruptBy = true, memory.VendorText, memory.ByStartOfSpeech
	if raw, ok := m.Metadata["original"]; ok {
		var original string
		if json.Unmarshal(raw, &original) != nil {
			return fault.At(fault.Invalid, at+"metadata.original", "must be a string")
		}
		clean, err := text.Clean(at+"metadata.original", original, memory.MaxContent)
		if err != nil {
			return err
		}
		out.Generated = clean
	}
	if _, ok := heard.Align(out.Original(), out.Content); !ok {
		return fault.At(fault.Invalid, at+"metadata.original", "must contain the content, which is the part of it that was heard")
	}
	if out.InterruptMS = out.Timestamp; out.InterruptMS == 0 {
		out.InterruptMS = now.UnixMilli()
	}
	if raw, ok := m.Metadata["interrupt_timestamp"]; ok {
		var ms int64
		if json.Unmarshal(raw, &ms) != nil {
			return fault.At(fault.Invalid, at+"metadata.interrupt_timestamp", "must be a whole number of milliseconds")
		}
		ms, err := input.Millis(at+"metadata.interrupt_timestamp", ms)
		if err != nil {
			return err
		}
		if ms != 0 { // clients send zero or null for absent
			out.InterruptMS, out.EvidenceMS = ms, ms
		}
	}
	return nil
}

// onlyResults reports whether a content consists of Anthropic's tool_result blocks only.
func onlyResults(parts json.RawMessage) bool {
	if !bytes.Contains(parts, []byte(`"tool_result"`)) {
		return false
	}
	var blocks []struct{ Type string }
	if json.Unmarshal(parts, &blocks) != nil {
		return false
	}
	for _, b := range blocks {
		if b.Type != "tool_result" {
			return false
		}
	}
	return true
}
