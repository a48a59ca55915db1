// Package input reads and checks the parts of messages that clients and platforms send as JSON:
// content, metadata and times. What it refuses it refuses with fault.Invalid, naming the field.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a message's metadata.
const (
	MaxMetadata      = 64       // keys
	MaxMetadataBytes = 16 << 10 // of keys and values together
)

// Content reads a message's content: a string, an array of parts, or null. The texts of the text
// parts, joined by line breaks, are the text then. parts is nil unless the content is an array. The
// text and the parts may have limit bytes each.
func Content(field string, raw json.RawMessage, limit int) (content string, parts json.RawMessage, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil, nil
	}
	switch raw[0] {
	case '"':
		content, err = stringOf(field, raw)
	case '[':
		content, parts, err = partsOf(field, raw, limit)
	default:
		err = fault.At(fault.Invalid, field, "is neither a string nor an array of parts")
	}
	if err != nil {
		return "", nil, err
	}
	content, err = text.Clean(field, content, limit)
	return content, parts, err
}

func stringOf(field string, raw json.RawMessage) (string, error) {
	if !utf8.Valid(raw) {
		// Repair it before encoding/json, which would replace each broken byte on its own. A byte
		// becomes at most three.
		s, err := text.Clean(field, string(raw), 3*len(raw))
		if err != nil {
			return "", err
		}
		raw = []byte(s)
	}
	if bytes.IndexByte(raw, '\\') < 0 { // no escapes
		return string(raw[1 : len(raw)-1]), nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", fault.At(fault.Invalid, field, "is not a valid string")
	}
	return text, nil
}

func partsOf(field string, raw json.RawMessage, limit int) (string, json.RawMessage, error) {
	var list []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", nil, fault.At(fault.Invalid, field, "is not an array of parts such as {\"type\":\"text\",\"text\":…}")
	}
	if len(list) == 0 { // what no model takes
		return "", nil, nil
	}
	raw = ReplaceNUL(raw)
	var texts []string
	for _, p := range list {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", nil, fault.At(fault.Invalid, field, "is not valid JSON")
	}
	if b.Len() > limit {
		return "", nil, fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", b.Len(), limit)
	}
	return strings.Join(texts, "\n"), bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")), nil
}

// Metadata returns the metadata that clients may set, checked; nil if there is none. It leaves out
// the keys that are derived from the message itself.
func Metadata(field string, in map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	size := 0
	var out map[string]json.RawMessage
	for k, v := range in {
		size += len(k) + len(v)
		switch k {
		case "source", "interrupted", "interrupt_timestamp", "original":
			continue
		}
		key, err := text.Clean(field, k, MaxMetadataBytes)
		if err != nil {
			return nil, err
		}
		if v, err = Compact(ReplaceNUL(v)); err != nil {
			return nil, fault.At(fault.Invalid, field+"."+text.Clip(k, 60), "is not valid JSON")
		}
		if out == nil {
			out = make(map[string]json.RawMessage, len(in))
		}
		out[key] = v
	}
	if size > MaxMetadataBytes {
		return nil, fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", size, MaxMetadataBytes)
	}
	return out, nil
}

// Sources returns the sources that a message of a role may have, the default first. It returns nil
// for an unknown role.
func Sources(role memory.Role) []string {
	switch role {
	case memory.User:
		return []string{"message", "asr", "command"}
	case memory.Assistant:
		return []string{"llm", "greeting", "llm_failure", "silence", "command"}
	case memory.Tool:
		return []string{""}
	case memory.System, memory.Developer:
		return []string{"message"}
	}
	return nil
}

// Millis returns a time in Unix milliseconds. Ten digits are taken for seconds; 0 stays 0.
func Millis(field string, v int64) (int64, error) {
	switch {
	case v == 0:
		return 0, nil
	case v >= 1e9 && v < 1e10:
		return v * 1000, nil
	case v < 0 || v > 1e14:
		return 0, fault.At(fault.Invalid, field, "%d is not a time in Unix milliseconds", v)
	}
	return v, nil
}

// AgentID reports whether id can be an agent's ID.
func AgentID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Compact removes white space and replaces broken UTF-8 in a JSON value.
func Compact(v json.RawMessage) (json.RawMessage, error) {
	if len(v) > 0 && v[0] != '{' && v[0] != '[' && utf8.Valid(v) {
		return v, nil // a string, a number or a word has no white space to remove
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return nil, err
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")), nil
}

// nulEscape is how JSON writes NUL.
var nulEscape = []byte(`\u0000`)

// ReplaceNUL returns the JSON value with U+FFFD in place of each NUL: of each escape \u0000 that is
// not itself escaped.
func ReplaceNUL(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, nulEscape) {
		return raw
	}
	out := bytes.Clone(raw)
	for i := 0; i+5 < len(out); i++ {
		if out[i] == '\\' {
			if string(out[i+1:i+6]) == "u0000" {
				copy(out[i+1:], "ufffd")
			}
			i++ // the escaped character
		}
	}
	return out
}

// Error turns an error of encoding/json, or of its successor with the same semantics, into one
// that names the field and what is allowed.
func Error(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.BadRequest, "the body must be a JSON object, not empty")
	}
	typ, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if v2, is := errors.AsType[*jsonv1.UnmarshalTypeError](err); is {
		typ, ok = &json.UnmarshalTypeError{Value: v2.Value, Type: v2.Type, Field: v2.Field}, true
	}
	if ok {
		field := wireField(typ.Field)
		if field == "" {
			return fault.New(fault.BadRequest, "the body must be a JSON object, not a JSON %s", ValueName(typ.Value))
		}
		return fault.At(fault.Invalid, field, "must be %s, not a JSON %s", TypeName(typ.Type), ValueName(typ.Value))
	}
	// Encoding/json has no type for it.
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		return fault.At(fault.Invalid, strings.TrimSuffix(name, `"`), "is not a field of this call")
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if strings.HasSuffix(err.Error(), "after top-level value") {
		return fault.New(fault.BadRequest, "the body holds more than one JSON value")
	}
	return fault.Wrap(fault.BadRequest, err, "the body is not valid JSON: "+err.Error())
}

// wireField returns a field's path with indexes in brackets, and without the names of embedded
// structs, which encoding/json adds to it. Names on the wire are in lower case.
func wireField(path string) string {
	out := ""
	for part := range strings.SplitSeq(path, ".") {
		switch {
		case part == "" || strings.ToLower(part) != part:
		case strings.Trim(part, "0123456789") == "":
			out += "[" + part + "]"
		case out == "":
			out = part
		default:
			out += "." + part
		}
	}
	return out
}

// TypeName returns what a client calls a Go type.
func TypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return TypeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// ValueName returns what a client calls a kind of JSON value that encoding/json names.
func ValueName(kind string) string {
	if kind == "bool" {
		return "boolean"
	}
	return kind
}
