package llmadapter

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// The package reads JSON in two ways. Requests of clients are checked by jsontext. JSON that is
// known to be valid, or need not be checked, is read by package peek, which decodes nothing.

// eachMember reads the object at d and calls f with the name of each member; f reads the value.
func eachMember(d *jsontext.Decoder, f func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		if err := f(peek.Unquote(name)); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	return nil
}

// lookup returns the value of a member of a valid JSON object, the first one if there are several.
func lookup(obj []byte, name string) ([]byte, bool) {
	v := peek.At(obj, name)
	return v, v.Exists()
}

// emptyArray reports whether a JSON array has no elements.
func emptyArray(arr []byte) bool {
	empty := true
	peek.Array(arr, func([]byte) { empty = false })
	return empty
}

// textOf returns the text of a JSON string, "" for null, and any other value as it is.
func textOf(v []byte) string {
	switch {
	case len(v) == 0, v[0] == 'n':
		return ""
	case v[0] == '"':
		return peek.Unquote(v)
	}
	return string(v)
}

// isJSONObject reports whether b is a JSON object.
func isJSONObject(b []byte) bool {
	t := bytes.TrimSpace(b)
	return len(t) > 0 && t[0] == '{' && peek.Valid(t)
}

// fillJSON appends a JSON value with variables filled into its strings: see text.Fill. "{{" cannot
// occur in JSON outside a string.
func fillJSON(dst, value []byte, variables map[string]string) []byte {
	if len(variables) == 0 || !bytes.Contains(value, []byte("{{")) {
		return append(dst, value...)
	}
	quoted := make(map[string]string, len(variables))
	for name, v := range variables {
		q := text.AppendJSON(nil, v)
		quoted[name] = string(q[1 : len(q)-1])
	}
	return append(dst, text.Fill(string(value), quoted)...)
}
