package llmadapter

import (
	"strconv"

	"github.com/heardlog/heardlog/internal/text"
)

// Message is one message of the conversation, ready to go upstream.
type Message struct {
	Role string
	Text string // the content, unless Content is set
	// Content is the content as JSON: a string, an array of parts, or null.
	Content    []byte
	ToolCalls  []byte // JSON array, of an assistant. Without text the content is null
	ToolCallID string
	Name       string

	Seq int64 // its place in the ledger, 0 if it has none; not sent

	// Entry is what the ledger adds in the custom form; it may be nil.
	Entry *Entry
	// Raw is the object as the client sent it. The custom form takes unknown members from it.
	Raw []byte
}

// Entry is what the ledger adds to a message.
type Entry struct {
	TurnID      int64
	Timestamp   int64 // Unix ms
	Source      string
	Metadata    []Member // besides source, interrupted, interrupt_timestamp and original
	Interrupted bool
	InterruptMS int64  // Unix ms; 0 = not known
	Original    string // all that was generated; sent if Interrupted
}

// Member is one member of a JSON object; Value is JSON.
type Member struct {
	Name  string
	Value []byte
}

// FromIncoming returns a client's message for an upstream, its content unchanged.
func FromIncoming(in *Incoming) Message {
	return Message{
		Role: in.Role, Content: in.Content, ToolCalls: in.ToolCalls, ToolCallID: in.ToolCallID, Name: in.Name, Raw: in.Raw,
	}
}

// appendCore appends the members that all OpenAI-compatible servers take, and leaves the object
// open. Strict servers refuse other members.
func (m *Message) appendCore(dst []byte) []byte {
	role := m.Role
	if role == "tool" && m.ToolCallID == "" && m.Name != "" {
		role = "function" // the older form names the function instead of the call
	}
	dst = append(dst, `{"role":`...)
	dst = text.AppendJSON(dst, role)
	dst = append(dst, `,"content":`...)
	switch {
	case m.Content != nil:
		dst = append(dst, m.Content...)
	case m.Text == "" && len(m.ToolCalls) > 0:
		dst = append(dst, "null"...)
	default:
		dst = text.AppendJSON(dst, m.Text)
	}
	if len(m.ToolCalls) > 0 {
		dst = append(append(dst, `,"tool_calls":`...), m.ToolCalls...)
	}
	if m.ToolCallID != "" {
		dst = text.AppendJSON(append(dst, `,"tool_call_id":`...), m.ToolCallID)
	}
	if m.Name != "" {
		dst = text.AppendJSON(append(dst, `,"name":`...), m.Name)
	}
	return dst
}

// standardParts returns content without parts of types that only some vendor knows. If none is
// left, it is an empty text.
func standardParts(content []byte) []byte {
	out, left := []byte{'['}, false
	walkArray(content, func(part []byte) {
		if !standardPart(part) {
			left = true
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, part...)
	})
	switch {
	case !left:
		return content
	case len(out) == 1:
		return []byte(`""`)
	}
	return append(out, ']')
}

// standardPart reports whether OpenAI-compatible servers may know the type of a part.
func standardPart(part []byte) bool {
	if len(part) == 0 || part[0] != '{' {
		return true
	}
	kind, ok := lookup(part, "type")
	if !ok {
		return true
	}
	switch unquote(kind) {
	case "text", "refusal", "image_url", "input_audio", "audio_url", "video_url", "file", "tool_use", "tool_result":
		return true
	}
	return false
}

// appendCustom appends the form with every field. A client's unknown members are kept, and so are
// its turn_id and timestamp, since the upstream may know the platform's numbers. The metadata is
// the ledger's, which includes the client's.
func (m *Message) appendCustom(dst []byte) []byte {
	dst = m.appendCore(dst)
	hasTurn, hasTime := false, false
	if m.Raw != nil {
		_ = walkObject(m.Raw, func(name, v []byte) error {
			switch n := unquote(name); n {
			case "role", "content", "tool_call_id", "name", "tool_calls":
				return nil
			case "turn_id":
				hasTurn = true
			case "timestamp":
				hasTime = true
			case "metadata":
				if m.Entry != nil {
					return nil
				}
			}
			dst = append(append(append(append(dst, ','), name...), ':'), v...)
			return nil
		})
	}
	if m.Entry != nil {
		if !hasTurn {
			dst = strconv.AppendInt(append(dst, `,"turn_id":`...), m.Entry.TurnID, 10)
		}
		if !hasTime {
			dst = strconv.AppendInt(append(dst, `,"timestamp":`...), m.Entry.Timestamp, 10)
		}
		dst = m.Entry.appendMetadata(append(dst, `,"metadata":`...))
	}
	return append(dst, '}')
}

// appendMetadata appends the metadata object.
func (m *Entry) appendMetadata(dst []byte) []byte {
	dst = append(dst, '{')
	sep := func() {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	if m.Source != "" {
		dst = text.AppendJSON(append(dst, `"source":`...), m.Source)
	}
	for _, kv := range m.Metadata {
		sep()
		dst = append(append(text.AppendJSON(dst, kv.Name), ':'), kv.Value...)
	}
	if m.Interrupted {
		sep()
		dst = append(dst, `"interrupted":true`...)
		if m.InterruptMS > 0 {
			dst = strconv.AppendInt(append(dst, `,"interrupt_timestamp":`...), m.InterruptMS, 10)
		}
		dst = text.AppendJSON(append(dst, `,"original":`...), m.Original)
	}
	return append(dst, '}')
}

// contentOf returns the message's content as JSON.
func (m *Message) contentOf() []byte {
	if m.Content != nil {
		return m.Content
	}
	return text.AppendJSON(nil, m.Text)
}

// mergeUsers merges each run of unanswered user messages into one, as Agora does for its models;
// the ledger keeps each of them. Texts are joined by a line break. If one of them has parts, the
// result is an array of all parts in order. The merged message has the turn, time and metadata of
// the last one. mergeUsers changes msgs in place.
func mergeUsers(msgs []Message) []Message {
	out := msgs[:0]
	for _, m := range msgs {
		if n := len(out); n > 0 && m.Role == "user" && out[n-1].Role == "user" && m.Name == out[n-1].Name {
			out[n-1] = merge(&out[n-1], m)
			continue
		}
		out = append(out, m)
	}
	return out
}

// merge returns b with the content of a in front.
func merge(a *Message, b Message) Message {
	if a.isParts() || b.isParts() {
		content := append([]byte(nil), '[')
		content = appendParts(content, a.contentOf())
		content = appendParts(content, b.contentOf())
		b.Content = append(content, ']')
		return b
	}
	at, bt := a.plainText(), b.plainText()
	switch {
	case at == "":
	case bt == "":
		b.Text, b.Content = at, nil
	default:
		b.Text, b.Content = at+"\n"+bt, nil
	}
	return b
}

func (m *Message) isParts() bool { return len(m.Content) > 0 && m.Content[0] == '[' }

// plainText returns the text of the content.
func (m *Message) plainText() string {
	if m.Content != nil {
		return ContentText(m.Content)
	}
	return m.Text
}

// appendParts appends content as elements of an array of parts.
func appendParts(dst, content []byte) []byte {
	put := func(part []byte) {
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = append(dst, part...)
	}
	switch content[0] {
	case '[':
		walkArray(content, put)
	case '"':
		if len(content) > 2 {
			put(append(append([]byte(`{"type":"text","text":`), content...), '}'))
		}
	}
	return dst
}

// Prefix puts a text in front of the message's content, as a part of its own if the content has
// parts.
func (m *Message) Prefix(prefix string) {
	if m.isParts() {
		content := append(text.AppendJSON([]byte(`[{"type":"text","text":`), prefix), '}')
		m.Content = append(appendParts(content, m.Content), ']')
		return
	}
	m.Text, m.Content = prefix+m.plainText(), nil
}

// UnknownCall returns the message that must precede a result whose call is unknown: a call without
// arguments.
func UnknownCall(id, name string) Message {
	if name == "" {
		name = "unknown"
	}
	calls := text.AppendJSON([]byte(`[{"id":`), id)
	calls = text.AppendJSON(append(calls, `,"type":"function","function":{"name":`...), name)
	return Message{Role: "assistant", ToolCalls: append(calls, `,"arguments":"{}"}}]`...)}
}

// maxCallIDs limits how many calls of one message are read.
const maxCallIDs = 256

// CallIDs returns the IDs of a tool_calls array, at most maxCallIDs.
func CallIDs(toolCalls []byte) []string {
	var out []string
	if len(toolCalls) > 0 && toolCalls[0] == '[' {
		walkArray(toolCalls, func(call []byte) {
			if call[0] != '{' {
				return
			}
			if id := stringMember(call, "id"); id != "" && len(out) < maxCallIDs {
				out = append(out, id)
			}
		})
	}
	return out
}
