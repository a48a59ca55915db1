package llmadapter

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/text"
)

// The package reads JSON in two ways. Requests of clients are checked by jsontext. The walkers
// below read JSON that is known to be valid, or need not be checked: they find members and elements
// without decoding or allocating. They read a chunk of a stream in a tenth of the time that
// encoding/json takes, which would be half the CPU of a call with 40 chunks. Bytes that are not
// JSON give meaningless results, but no error and no panic.

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
		if err := f(unquote(name)); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(err)
	}
	return nil
}

// walkObject calls f with each member of a valid JSON object: the quoted name and the value. An
// error ends the walk. It calls f for nothing if obj is another value.
func walkObject(obj []byte, f func(name, value []byte) error) error {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return nil
	}
	i++
	for {
		i = skipSpace(obj, i)
		if i >= len(obj) || obj[i] == '}' {
			return nil
		}
		if obj[i] == ',' {
			i++
			continue
		}
		end := valueEnd(obj, i)
		name := obj[i:end]
		i = skipSpace(obj, end)
		i = skipSpace(obj, i+1) // the colon
		if i >= len(obj) {
			return nil
		}
		end = valueEnd(obj, i)
		if err := f(name, obj[i:end]); err != nil {
			return err
		}
		i = end
	}
}

// walkArray calls f with each element of a valid JSON array.
func walkArray(arr []byte, f func(value []byte)) {
	i := skipSpace(arr, 0) + 1
	for {
		i = skipSpace(arr, i)
		if i >= len(arr) || arr[i] == ']' {
			return
		}
		if arr[i] == ',' {
			i++
			continue
		}
		end := valueEnd(arr, i)
		f(arr[i:end])
		i = end
	}
}

// emptyArray reports whether a JSON array has no elements.
func emptyArray(arr []byte) bool {
	empty := true
	walkArray(arr, func([]byte) { empty = false })
	return empty
}

// skipSpace returns the index of the first byte from i on that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns the end of the value that begins at i. It is always after i.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = stringEnd(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	}
	for i++; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r', ':':
			return i
		}
	}
	return len(b)
}

// stringEnd returns the end of the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return len(b)
		}
		end := i + j
		slashes := 0
		for k := end - 1; k >= i && b[k] == '\\'; k-- {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// lookup returns the value of a member of a valid JSON object, the first one if there are several.
func lookup(obj []byte, name string) ([]byte, bool) {
	var out []byte
	_ = walkObject(obj, func(n, v []byte) error {
		if out == nil && nameIs(n, name) {
			out = v
		}
		return nil
	})
	return out, out != nil
}

// nameIs reports whether a quoted name is name.
func nameIs(quoted []byte, name string) bool {
	if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
		return true
	}
	return bytes.IndexByte(quoted, '\\') >= 0 && unquote(quoted) == name
}

// stringMember returns the text of a member that is a string, or "".
func stringMember(obj []byte, name string) string {
	v, ok := lookup(obj, name)
	if !ok || v[0] != '"' {
		return ""
	}
	return unquote(v)
}

// textOf returns the text of a JSON string, "" for null, and any other value as it is.
func textOf(v []byte) string {
	switch {
	case len(v) == 0, v[0] == 'n':
		return ""
	case v[0] == '"':
		return unquote(v)
	}
	return string(v)
}

// validJSON reports whether b is a JSON value, invalid UTF-8 and duplicate names allowed.
func validJSON(b []byte) bool {
	return jsontext.Value(b).IsValid(lenient, jsontext.AllowDuplicateNames(true))
}

// isJSONObject reports whether b is a JSON object.
func isJSONObject(b []byte) bool {
	t := bytes.TrimSpace(b)
	return len(t) > 0 && t[0] == '{' && validJSON(t)
}

// unquote returns the text of a JSON string, or of the beginning of one, with invalid UTF-8
// replaced by U+FFFD.
func unquote(v []byte) string {
	if len(v) >= 2 && v[len(v)-1] == '"' && bytes.IndexByte(v, '\\') < 0 {
		if in := v[1 : len(v)-1]; utf8.Valid(in) {
			return string(in)
		}
	}
	out, _ := jsontext.AppendUnquote(nil, v) // the error only reports that something was repaired
	return string(out)
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
