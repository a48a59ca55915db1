package redact

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth limits how deep a document is searched. What is deeper is dropped.
const maxDepth = 128

// shape is what a document is, as far as its members have a meaning for the protocol.
type shape int

const (
	free    shape = iota // anything: nothing stays as it is
	message              // a chat message
	part                 // a part of a message's content, or a list of them
	media                // an object in a part, such as image_url
	call                 // a tool call, or a list of them
	request              // a request for a chat completion
)

// known reports whether a member is known to the protocol, and returns its text as it is stored:
// names of messages and calls by ID, what types things as it is, addresses by link, and what may be
// pictures and sound by data. in is the object.
func (r *Redactor) known(s shape, name, text string, in map[string]any, depth int) (string, bool) {
	if s == free || s == request {
		return "", false
	}
	switch name {
	case "id":
		return r.ID(text), true
	case "type":
		return text, true
	case "tool_call_id":
		return r.ID(text), s != call
	case "role":
		return text, s != call
	}
	if s != part && s != media {
		return "", false
	}
	switch lower := strings.ToLower(name); {
	case lower == "format" || lower == "detail" || lower == "media_type":
		return text, true
	case strings.HasSuffix(lower, "url") || strings.HasSuffix(lower, "uri"):
		return r.link(text, depth), true
	case lower == "data" || lower == "filedata" || strings.HasSuffix(lower, "_data"):
		kind := ""
		for _, beside := range []string{"media_type", "mime_type", "mimeType", "format"} {
			if k, ok := in[beside].(string); ok && kind == "" {
				kind = k
			}
		}
		return r.data(text, kind, depth), true
	}
	return "", false
}

// of returns the shape of a member's value.
func (s shape) of(name string) shape {
	switch {
	case s == part:
		return media
	case s == request && name == "messages":
		return message
	case s == message && name == "content":
		return part
	case s == message && name == "tool_calls":
		return call
	}
	return free
}

// JSON returns a document with the texts, numbers and names of members in it replaced. A text that
// is JSON itself, such as the arguments of a tool call, stays JSON. A document in which nothing is
// replaced is returned as it is, unless a member occurs twice; one that is not JSON is replaced as
// a text.
func (r *Redactor) JSON(doc []byte) []byte { return r.document(doc, free) }

// Message returns a chat message with personal data replaced as by JSON. What types things,
// pictures and sound stay as they are. IDs are replaced as by ID.
func (r *Redactor) Message(doc []byte) []byte { return r.document(doc, message) }

// Parts is Message for the parts of a message's content.
func (r *Redactor) Parts(doc []byte) []byte { return r.document(doc, part) }

// Calls is Message for a list of tool calls.
func (r *Redactor) Calls(doc []byte) []byte { return r.document(doc, call) }

// Request is Message for the body of a request for a chat completion, with its messages. Names that
// are not known yet are replaced in its messages alone: what else it has is the operator's.
func (r *Redactor) Request(body []byte) []byte {
	var members map[string]json.RawMessage
	if !r.Detects() || json.Unmarshal(body, &members) != nil {
		return r.document(body, request)
	}
	changed := false
	for name, v := range members {
		out := v
		if name == "messages" {
			out = r.document(v, message)
		} else {
			out = r.Unasked().JSON(v)
		}
		changed = changed || !bytes.Equal(out, v)
		members[name] = out
	}
	if !changed {
		return body
	}
	return encode(members)
}

func (r *Redactor) document(doc []byte, as shape) []byte {
	if r == nil || len(doc) == 0 {
		return doc
	}
	if out, ok := r.decoded(doc, as, 0); ok {
		return out
	}
	return []byte(r.Text(string(doc)))
}

// decoded returns a document with personal data replaced, or false if it is not JSON. A document
// with a member that occurs twice is encoded again, since only the last one was searched.
func (r *Redactor) decoded(doc []byte, as shape, depth int) ([]byte, bool) {
	if !json.Valid(doc) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	changed := false
	v = r.value(v, as, depth, &changed)
	if !changed && jsontext.Value(doc).IsValid() { // no name occurs twice
		return doc, true
	}
	return encode(v), true
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return []byte("null") // cannot happen: v was decoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (r *Redactor) value(v any, as shape, depth int, changed *bool) any {
	if depth > maxDepth {
		*changed = true
		return nil
	}
	switch v := v.(type) {
	case string:
		out := r.text(v, depth)
		*changed = *changed || out != v
		return out
	case json.Number:
		if out := r.Text(v.String()); out != v.String() {
			*changed = true
			return out
		}
	case []any:
		for i, e := range v {
			v[i] = r.value(e, as, depth+1, changed)
		}
	case map[string]any:
		return r.object(v, as, depth, changed)
	}
	return v
}

// object replaces in the members of an object. Of names that become the same, all but the first get
// a number.
func (r *Redactor) object(in map[string]any, as shape, depth int, changed *bool) map[string]any {
	out := make(map[string]any, len(in))
	renamed := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		v := in[name]
		text, isText := v.(string)
		known := false
		if isText {
			text, known = r.known(as, name, text, in, depth)
		}
		if known {
			*changed = *changed || text != v
			v = text
		} else {
			v = r.value(v, as.of(name), depth+1, changed)
		}
		if as == free || as == request {
			if masked := r.memberName(name); masked != name {
				*changed, name = true, masked
				for taken := true; taken; {
					if renamed[masked]++; renamed[masked] > 1 {
						name = masked + "-" + strconv.Itoa(renamed[masked])
					}
					_, taken = in[name]
				}
			}
		}
		out[name] = v
	}
	return out
}

// text replaces a text, which may be JSON itself.
func (r *Redactor) text(s string, depth int) string {
	t := strings.TrimSpace(s)
	if len(t) >= 2 && (t[0] == '{' || t[0] == '[') {
		if out, ok := r.decoded([]byte(t), free, depth+1); ok {
			if string(out) == t {
				return s
			}
			return string(out)
		}
	}
	return r.Text(s)
}

// CallIDs returns a list of tool calls with only their IDs replaced, as by ID.
func (r *Redactor) CallIDs(doc []byte) []byte {
	if r == nil || len(doc) == 0 {
		return doc
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(doc, &list) != nil {
		return doc
	}
	changed := false
	for _, c := range list {
		var id string
		if json.Unmarshal(c["id"], &id) != nil {
			continue
		}
		if out := r.ID(id); out != id {
			c["id"], changed = encode(out), true
		}
	}
	if !changed {
		return doc
	}
	return encode(list)
}
