package llmadapter

import (
	"bytes"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// Limits of what is kept of an answer beside its text and its tool calls: bytes, JSON values, and
// their depth. An answer that exceeds them is passed on whole, and keeps none of these members.
const (
	maxMerged = 1 << 20
	maxValues = 16384
	maxDepth  = 32
)

// merged is a JSON value that grows by the deltas of a stream. Strings append, objects merge, and
// the elements of arrays merge by their id, else by their index. null says nothing. Any other value
// replaces the one before. The zero value is null.
type merged struct {
	kind  byte // '"', '{', '[', or 0 for a value that cannot grow
	raw   []byte
	text  pieces
	names []string  // of an object's members, in the order in which they came
	of    []*merged // the members or elements
}

// budget limits all merged values of one answer.
type budget struct {
	bytes, values int
	exceeded      bool
}

// take books n bytes and one value, and reports whether they fit.
func (b *budget) take(n int) bool {
	b.bytes, b.values = b.bytes+n, b.values+1
	b.exceeded = b.exceeded || b.bytes > maxMerged || b.values > maxValues
	return !b.exceeded
}

// labels are members that name or sign something. Servers repeat them in each delta, where a text
// would go on.
var labels = map[string]bool{
	"id": true, "type": true, "role": true, "name": true, "object": true, "format": true, "status": true, "index": true, "model": true,
	"provider": true, "signature": true, "thought_signature": true, "encrypted_content": true, "data": true, "call_id": true,
}

// merge adds a delta; name is the member that holds it, or "".
func (m *merged) merge(name string, v []byte, b *budget, depth int) {
	if len(v) == 0 || v[0] == 'n' || depth > maxDepth || !b.take(len(v)) {
		b.exceeded = b.exceeded || depth > maxDepth
		return
	}
	switch v[0] {
	case '"':
		if m.kind != '"' {
			*m = merged{kind: '"'}
		}
		if labels[name] && len(m.text.whole) > 0 && peek.Unquote(v) == string(m.text.whole) {
			return
		}
		m.text.add(v)
	case '{':
		if m.kind != '{' {
			*m = merged{kind: '{'}
		}
		_ = peek.Object(v, func(name, v []byte) error {
			n := peek.Unquote(name)
			m.member(n).merge(n, v, b, depth+1)
			return nil
		})
	case '[':
		if m.kind != '[' {
			*m = merged{kind: '['}
		}
		parts := name == "content" || name == "thinking"
		peek.Array(v, func(v []byte) { m.element(v, parts).merge(name, v, b, depth+1) })
	default:
		if peek.Valid(v) {
			*m = merged{raw: bytes.Clone(v)}
		}
	}
}

// member returns the member of an object, which it adds if it is not there yet.
func (m *merged) member(name string) *merged {
	if out := m.get(name); out != nil {
		return out
	}
	out := &merged{}
	m.names, m.of = append(m.names, name), append(m.of, out)
	return out
}

// get returns the member of an object, or nil.
func (m *merged) get(name string) *merged {
	for i, n := range m.names {
		if n == name {
			return m.of[i]
		}
	}
	return nil
}

// element returns the element of an array that v goes on with. It adds one if there is none. Parts
// of a text have neither id nor index: one goes on with the last part if that has the same type.
func (m *merged) element(v []byte, parts bool) *merged {
	if v[0] == '{' {
		id := peek.At(v, "id").Str()
		index, indexed := lookup(v, "index")
		indexed = indexed && index[0] != 'n'
		for i := len(m.of) - 1; i >= 0; i-- {
			e := m.of[i]
			if e.kind != '{' {
				continue
			}
			other := e.label("id")
			switch {
			case id != "" && id == other:
				return e
			case indexed && (id == "" || other == "") && e.label("index") == string(index):
				return e
			case parts && id == "" && !indexed && i == len(m.of)-1 && e.label("type") == peek.At(v, "type").Str():
				return e
			}
		}
	}
	out := &merged{}
	m.of = append(m.of, out)
	return out
}

// label returns a member that is a string or a number as a text, or "".
func (m *merged) label(name string) string {
	switch e := m.get(name); {
	case e == nil:
		return ""
	case e.kind == '"':
		return string(e.text.whole)
	default:
		return string(e.raw)
	}
}

// appendJSON appends the value as JSON.
func (m *merged) appendJSON(dst []byte) []byte {
	switch m.kind {
	case '"':
		return text.AppendJSON(dst, m.text.String())
	case '{':
		return append(m.appendMembers(append(dst, '{')), '}')
	case '[':
		dst = append(dst, '[')
		for i, e := range m.of {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.appendJSON(dst)
		}
		return append(dst, ']')
	}
	if m.raw == nil {
		return append(dst, "null"...)
	}
	return append(dst, m.raw...)
}

// appendMembers appends an object's members after an opening brace or other members.
func (m *merged) appendMembers(dst []byte) []byte {
	for i, name := range m.names {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = m.of[i].appendJSON(append(text.AppendJSON(dst, name), ':'))
	}
	return dst
}

// empty reports whether the value says nothing: null, or an empty string, object or array.
func (m *merged) empty() bool {
	return m.raw == nil && len(m.of) == 0 && len(m.text.whole)+len(m.text.held) == 0
}

// pieces joins the pieces of a text. A character that the sender has cut in two, as servers do that
// count UTF-16 units or bytes, is one character again.
type pieces struct {
	whole []byte
	held  []byte // the beginning of a character, as it stands in JSON
}

// add adds a JSON string and returns the text that it completes.
func (p *pieces) add(v []byte) string {
	said := p.next(v)
	p.whole = append(p.whole, said...)
	return said
}

// next returns the text that a JSON string completes.
func (p *pieces) next(v []byte) string {
	in := v[1:]
	if n := len(in); n > 0 && in[n-1] == '"' {
		in = in[:n-1]
	}
	cut := cutCharacter(in)
	if len(p.held) == 0 && cut == len(in) {
		return peek.Unquote(v)
	}
	quoted := make([]byte, 0, len(p.held)+len(in)+2)
	quoted = append(append(append(quoted, '"'), p.held...), in[:cut]...)
	p.held = append(p.held[:0], in[cut:]...)
	return peek.Unquote(append(quoted, '"'))
}

// rest returns what of an unfinished character is to be shown: U+FFFD.
func (p *pieces) rest() string {
	if len(p.held) == 0 {
		return ""
	}
	return "\uFFFD"
}

// String returns the text.
func (p *pieces) String() string { return string(p.whole) + p.rest() }

// cutCharacter returns where the contents of a JSON string end without the beginning of a character
// at their end: the first half of a surrogate pair, or the first bytes of a UTF-8 sequence.
func cutCharacter(in []byte) int {
	n := len(in)
	if n == 0 {
		return 0
	}
	if last := in[n-1]; last >= utf8.RuneSelf {
		for i := n - 1; i >= max(0, n-utf8.UTFMax); i-- {
			if utf8.RuneStart(in[i]) {
				if !utf8.FullRune(in[i:]) {
					return i
				}
				break
			}
		}
		return n
	}
	if n < 6 || in[n-6] != '\\' || in[n-5] != 'u' || in[n-4]|0x20 != 'd' {
		return n
	}
	if c := in[n-3] | 0x20; c != '8' && c != '9' && c != 'a' && c != 'b' {
		return n
	}
	slashes := 1
	for i := n - 7; i >= 0 && in[i] == '\\'; i-- {
		slashes++
	}
	if slashes%2 == 0 { // the backslash is a letter of the text
		return n
	}
	return n - 6
}
