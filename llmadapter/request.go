package llmadapter

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// MaxMessages limits the messages of one request.
const MaxMessages = 4096

// Request is a chat completions request as a client sent it. Its byte slices are parts of the body
// and must not be changed.
type Request struct {
	Messages []Incoming
	Stream   bool   // the client wants server-sent events
	Model    string // as sent; see modelGivesWay
	AgentID  string // metadata.agent_id; never sent upstream
	// members are the top-level members except messages, in their order.
	members []Member
}

// Incoming is one message of a Request.
type Incoming struct {
	Raw        []byte // the whole object
	Role       string
	Content    []byte // JSON: a string, an array or null; nil for none
	ToolCalls  []byte // JSON array; nil for none
	ToolCallID string
	Name       string
	TurnID     int64 // valid if HasTurn
	HasTurn    bool
	Timestamp  int64  // as sent; 0 for none
	Metadata   []byte // JSON object; nil for none
	// AnswerID is the ID of the answer that an assistant message is, if the client has kept it:
	// Heardlog's packages put it into extra_content.livekit.heardlog, which LiveKit's own plugins
	// send back. It is removed from the message.
	AnswerID string
	more     bool // it has members beside these
}

// takeAnswerID sets AnswerID.
func (m *Incoming) takeAnswerID() {
	if !m.more || m.Role != "assistant" || !bytes.Contains(m.Raw, []byte(`"heardlog"`)) {
		return
	}
	livekit := func(of []byte) []byte {
		return appendEdited(nil, of, func(dst, name, v []byte) []byte {
			if peek.Unquote(name) == "heardlog" {
				if v[0] == '"' {
					m.AnswerID = peek.Unquote(v)
				}
				return dst
			}
			return append(append(append(dst, name...), ':'), v...)
		})
	}
	// without leaves out the member that edit changes, if nothing is left of it.
	without := func(of []byte, member string, edit func([]byte) []byte) []byte {
		return appendEdited(nil, of, func(dst, name, v []byte) []byte {
			if peek.Unquote(name) == member && v[0] == '{' {
				if v = edit(v); len(v) == 2 {
					return dst
				}
			}
			return append(append(append(dst, name...), ':'), v...)
		})
	}
	m.Raw = without(m.Raw, "extra_content", func(extra []byte) []byte { return without(extra, "livekit", livekit) })
}

// MoreMembers returns the members of the message that have no field here, as a JSON object, or "".
// null says nothing.
func (m *Incoming) MoreMembers() string {
	if !m.more {
		return ""
	}
	out := appendEdited(nil, m.Raw, func(dst, name, v []byte) []byte {
		switch peek.Unquote(name) {
		case "role", "content", "tool_calls", "tool_call_id", "name", "turn_id", "timestamp", "metadata":
			return dst
		}
		if v[0] == 'n' {
			return dst
		}
		return append(append(append(dst, name...), ':'), v...)
	})
	if len(out) == 2 {
		return ""
	}
	return string(out)
}

// IsSystem reports whether the message instructs the model instead of being part of the
// conversation.
func (m *Incoming) IsSystem() bool { return m.Role == "system" || m.Role == "developer" }

// Text returns the message's text: the string itself, or the text parts of an array joined by line
// breaks. Invalid UTF-8 becomes U+FFFD.
func (m *Incoming) Text() string { return ContentText(m.Content) }

// IsParts reports whether the content is an array of parts.
func (m *Incoming) IsParts() bool { return len(m.Content) > 0 && m.Content[0] == '[' }

// lenient accepts invalid UTF-8, which is replaced where text is read: a lone surrogate must not
// fail a turn. Duplicate names are refused, since two readers could use different ones.
var lenient = jsontext.AllowInvalidUTF8(true)

// ParseRequest reads and checks the body of a chat completions call. It fails with fault.BadRequest
// if the body is not JSON, and with fault.Missing or fault.Invalid for a wrong field, which the
// error names (messages[2].content).
func ParseRequest(body []byte) (*Request, error) {
	r := &Request{}
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(body), lenient)
	err := r.parse(d)
	d.Reset(noBody) // it must not hold the body
	decoders.Put(d)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// decoders holds decoders between two requests, with the memory in which they look for repeated
// names.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(noBody) }}

var noBody = &bytes.Buffer{} // never read or written

func (r *Request) parse(d *jsontext.Decoder) error {
	if k := d.PeekKind(); k != '{' {
		if k == 0 {
			_, err := d.ReadToken()
			return notJSON(err)
		}
		return fault.New(fault.BadRequest, "the body is not a JSON object")
	}
	hasMessages := false
	err := eachMember(d, func(name string) error {
		if name == "messages" {
			hasMessages = true
			return r.parseMessages(d)
		}
		v, err := d.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		if v.Kind() == 'n' { // as if it were missing
			return nil
		}
		r.members = append(r.members, Member{name, v})
		return r.known(name, v)
	})
	if err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return fault.New(fault.BadRequest, "the body holds more than one JSON value")
	}
	if !hasMessages {
		return fault.At(fault.Missing, "messages", "is required: an array of messages")
	}
	r.nameTurn()
	return nil
}

// nameTurn copies the top-level turn_id and timestamp, which describe the turn that is asked for,
// to the last user message if it has none itself. Agora sends them that way.
func (r *Request) nameTurn() {
	m := &r.Messages[len(r.Messages)-1]
	if m.Role != "user" {
		return
	}
	for _, name := range []string{"turn_id", "timestamp"} {
		if v, ok := find(r.members, name); ok && (name == "turn_id" && !m.HasTurn || name == "timestamp" && m.Timestamp == 0) {
			_ = m.set(len(r.Messages)-1, []byte(`"`+name+`"`), v) // never fails for these two
		}
	}
}

// known reads the top-level members that we use.
func (r *Request) known(name string, v jsontext.Value) error {
	switch name {
	case "stream":
		switch v.Kind() {
		case 't':
			r.Stream = true
		case 'f':
		default:
			return fault.At(fault.Invalid, "stream", "must be true or false")
		}
	case "model":
		if v.Kind() != '"' {
			return fault.At(fault.Invalid, "model", "must be a string")
		}
		r.Model = peek.Unquote(v)
	case "metadata":
		if v.Kind() == '{' {
			r.AgentID = peek.At(v, "agent_id").Str()
		}
	}
	return nil
}

// parseMessages reads the array of messages.
func (r *Request) parseMessages(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		if _, err := d.ReadValue(); err != nil {
			return notJSON(err)
		}
		return fault.At(fault.Invalid, "messages", "must be an array of messages")
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	for i := 0; d.PeekKind() != ']'; i++ {
		if i == MaxMessages {
			return fault.At(fault.Invalid, "messages", "holds more than %d messages", MaxMessages)
		}
		if k := d.PeekKind(); k != '{' {
			if _, err := d.ReadValue(); err != nil {
				return notJSON(err)
			}
			return fault.At(fault.Invalid, field(i, ""), "must be an object with role and content")
		}
		if r.Messages == nil {
			r.Messages = make([]Incoming, 0, 2) // most calls bring one new message
		}
		raw, err := d.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		m, err := parseIncoming(raw, i)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	if len(r.Messages) == 0 {
		return fault.At(fault.Missing, "messages", "is empty; at least one message is required")
	}
	return nil
}

// parseIncoming reads message i. raw is a valid JSON object.
func parseIncoming(raw []byte, i int) (Incoming, error) {
	m := Incoming{Raw: raw}
	err := peek.Object(raw, func(name, v []byte) error { return m.set(i, name, v) })
	if err != nil {
		return m, err
	}
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool", "function":
	case "":
		return m, fault.At(fault.Missing, field(i, "role"), "is required: system, developer, user, assistant, tool or function")
	default:
		return m, fault.At(fault.Invalid, field(i, "role"), "must be system, developer, user, assistant, tool or function, not %q", text.Clip(m.Role, 40))
	}
	if m.Content == nil && m.Role != "assistant" {
		return m, fault.At(fault.Missing, field(i, "content"), "is required: a string or an array of parts")
	}
	if m.Role == "tool" && m.ToolCallID == "" {
		return m, fault.At(fault.Missing, field(i, "tool_call_id"), "is required with role tool")
	}
	m.takeAnswerID()
	return m, nil
}

// set sets the field for a member of message i.
func (m *Incoming) set(i int, name, v []byte) error {
	kind := jsontext.Value(v).Kind()
	text := func(s *string) error {
		if kind == 'n' {
			return nil
		}
		if kind != '"' {
			return fault.At(fault.Invalid, field(i, peek.Unquote(name)), "must be a string")
		}
		*s = peek.Unquote(v)
		return nil
	}
	switch string(name) {
	case `"role"`:
		return text(&m.Role)
	case `"content"`:
		if kind != '"' && kind != '[' && kind != 'n' {
			return fault.At(fault.Invalid, field(i, "content"), "must be a string, an array of parts or null")
		}
		m.Content = v
		if kind == '[' && emptyArray(v) { // what no model takes
			m.Content = []byte(`""`)
		} else if kind == '[' {
			return checkObjects(field(i, "content"), v, "must be an object with a type")
		}
	case `"tool_calls"`:
		if kind == 'n' {
			return nil
		}
		if kind != '[' {
			return fault.At(fault.Invalid, field(i, "tool_calls"), "must be an array")
		}
		if err := checkObjects(field(i, "tool_calls"), v, "must be an object"); err != nil {
			return err
		}
		if !emptyArray(v) {
			m.ToolCalls = v
		}
	case `"tool_call_id"`:
		return text(&m.ToolCallID)
	case `"name"`:
		return text(&m.Name)
	case `"turn_id"`:
		// Anything but a number is ignored.
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && n >= 0 {
			m.TurnID, m.HasTurn = n, true
		}
	case `"timestamp"`:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && n > 0 {
			m.Timestamp = n
		}
	case `"metadata"`:
		if kind == '{' {
			m.Metadata = v
		}
	default:
		m.more = true
	}
	return nil
}

// checkObjects refuses a list with entries that are not objects.
func checkObjects(name string, v []byte, must string) error {
	n := 0
	var err error
	peek.Array(v, func(entry []byte) {
		if err == nil && (len(entry) == 0 || entry[0] != '{') {
			err = fault.At(fault.Invalid, name+"["+strconv.Itoa(n)+"]", "%s", must)
		}
		n++
	})
	return err
}

// field returns the name of a field of message i in errors.
func field(i int, name string) string {
	f := "messages[" + strconv.Itoa(i) + "]"
	if name != "" {
		f += "." + name
	}
	return f
}

// notJSON returns the error for a body that cannot be parsed.
func notJSON(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) {
		return fault.New(fault.BadRequest, "the body is empty; a JSON object is required")
	}
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		if errors.Is(syn.Err, jsontext.ErrDuplicateName) {
			return fault.Wrap(fault.BadRequest, err, "the body names a member twice: "+text.Clip(string(syn.JSONPointer), 100))
		}
		return fault.Wrap(fault.BadRequest, err, "the body is not valid JSON near byte "+strconv.FormatInt(syn.ByteOffset, 10))
	}
	return fault.Wrap(fault.BadRequest, err, "the body is not valid JSON")
}

// MetadataString returns a string of the message's metadata, or "".
func (m *Incoming) MetadataString(name string) string {
	if m.Metadata == nil {
		return ""
	}
	return peek.At(m.Metadata, name).Str()
}

// Member returns a top-level member of the request, messages excepted, or nil.
func (r *Request) Member(name string) []byte {
	v, _ := find(r.members, name)
	return v
}
