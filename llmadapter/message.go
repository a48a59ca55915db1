package llmadapter

import (
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/internal/peek"
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
	// Raw is the object as the client sent it in this request; nil for others.
	Raw []byte
	// Members are the members that the ledger keeps of a message beside those above: a JSON object,
	// or "".
	Members string
	// Signed is the tool_calls array of the ledger, whose calls may have members that a client has
	// dropped.
	Signed []byte
	// Origin names the upstream that wrote the answer; "" if it is not known.
	Origin string
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
	m := Message{Role: in.Role, Content: in.Content, ToolCalls: in.ToolCalls, ToolCallID: in.ToolCallID, Name: in.Name}
	m.Raw = in.Raw
	return m
}

// calls reports whether the message calls a tool.
func (m *Message) calls() bool { return len(m.ToolCalls) > 0 || m.has(functionCall) }

// has reports whether the message came with a member that says something.
func (m *Message) has(name string) bool {
	v := m.member(name)
	return v != nil && says(v)
}

// member returns a member that came with the message, or nil.
func (m *Message) member(name string) []byte {
	if v, ok := lookup(m.Raw, name); ok {
		return v
	}
	v, _ := lookup([]byte(m.Members), name)
	return v
}

// appendTo appends the message for an upstream.
func (m *Message) appendTo(dst []byte, to *Recipient) []byte {
	role := m.Role
	if role == "tool" && m.ToolCallID == "" && m.Name != "" {
		role = "function" // the older form names the function instead of the call
	}
	dst = append(dst, `{"role":`...)
	dst = text.AppendJSON(dst, role)
	dst = m.appendContent(append(dst, `,"content":`...), to)
	if len(m.ToolCalls) > 0 {
		calls := m.ToolCalls
		if m.Signed != nil && to.wrote(m) {
			calls = withSigned(calls, m.Signed)
		}
		dst = append(append(dst, `,"tool_calls":`...), editCalls(calls, !to.wrote(m))...)
	}
	if m.ToolCallID != "" {
		dst = text.AppendJSON(append(dst, `,"tool_call_id":`...), m.ToolCallID)
	}
	if m.Name != "" {
		dst = text.AppendJSON(append(dst, `,"name":`...), m.Name)
	}
	return append(m.appendMembers(dst, to), '}')
}

// appendContent appends the content. An answer that the upstream gave as parts, such as thoughts
// beside a text, goes back as it came if all of it was heard.
func (m *Message) appendContent(dst []byte, to *Recipient) []byte {
	if m.Members != "" && to.wrote(m) && to.Thoughts != ThoughtsNever && (m.calls() || to.Thoughts == ThoughtsAll) {
		if v, ok := lookup([]byte(m.Members), "content"); ok && ContentText(v) == m.plainText() {
			return append(dst, v...)
		}
	}
	switch {
	case m.isParts():
		return append(dst, editParts(m.Content, func(kind string) bool {
			return to.Custom || isThought(kind) && to.takes(m, kind, m.Raw != nil)
		})...)
	case m.Content != nil:
		return append(dst, m.Content...)
	case m.Text == "" && m.calls():
		return append(dst, "null"...)
	}
	return text.AppendJSON(dst, m.Text)
}

// appendMembers appends the members that have no place of their own: those that came with the
// message, then those that the ledger has kept. In the custom form, the ledger adds its own: a
// client's turn_id and timestamp stay, since the upstream may know the platform's numbers, and the
// metadata is the ledger's, which includes the client's.
func (m *Message) appendMembers(dst []byte, to *Recipient) []byte {
	hasTurn, hasTime := false, false
	var came []string
	put := func(client bool) func(name, v []byte) error {
		return func(quoted, v []byte) error {
			name := peek.Unquote(quoted)
			switch {
			case slices.Contains(came, name), v[0] == 'n' && !to.Custom:
				return nil
			case name == "metadata" && m.Entry != nil:
				return nil
			case name == "refusal" || name == functionCall:
				if !says(v) && !to.Custom {
					return nil
				}
			case !to.takes(m, name, client):
				return nil
			}
			hasTurn, hasTime = hasTurn || name == "turn_id", hasTime || name == "timestamp"
			came = append(came, name)
			dst = append(append(append(append(dst, ','), quoted...), ':'), v...)
			return nil
		}
	}
	if m.Raw != nil {
		_ = peek.Object(m.Raw, put(true))
	}
	if m.Members != "" {
		_ = peek.Object([]byte(m.Members), put(m.Origin == ""))
	}
	if to.Custom && m.Entry != nil {
		if !hasTurn {
			dst = strconv.AppendInt(append(dst, `,"turn_id":`...), m.Entry.TurnID, 10)
		}
		if !hasTime {
			dst = strconv.AppendInt(append(dst, `,"timestamp":`...), m.Entry.Timestamp, 10)
		}
		dst = m.Entry.appendMetadata(append(dst, `,"metadata":`...))
	}
	return dst
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
		peek.Array(content, put)
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
