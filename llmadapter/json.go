package llmadapter

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// This file walks JSON that is known to be valid, which needs no state machine and no memory: it is what keeps assembly
// and the reading of deltas cheap (reference/proxies.md 4.4). What it finds in bytes that are no JSON means nothing, but it
// neither fails nor panics on them, so that an upstream's chunks need not be checked first.

// eachMember reads the object that d stands before and calls f with each name; f reads the value.
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

// walkObject calls f with each member of a valid JSON object: the quoted name and the value. An error ends the walk.
func walkObject(obj []byte, f func(name, value []byte) error) error {
	return walkMembers(obj, skipSpace(obj, 0)+1, f)
}

// walkMembers is walkObject from i on, which is where a member may begin.
func walkMembers(obj []byte, i int, f func(name, value []byte) error) error {
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

func emptyArray(arr []byte) bool {
	empty := true
	walkArray(arr, func([]byte) { empty = false })
	return empty
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// valueEnd gives where the value that begins at i ends; always behind i.
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

// lookup gives the value of the member of a valid JSON object; the first one if there are several.
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

// nameIs tells whether a quoted name is the plain name.
func nameIs(quoted []byte, name string) bool {
	if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
		return true
	}
	return bytes.IndexByte(quoted, '\\') >= 0 && unquote(quoted) == name
}

func stringMember(obj []byte, name string) string {
	v, ok := lookup(obj, name)
	if !ok || v[0] != '"' {
		return ""
	}
	return unquote(v)
}

// unquote gives the text of a JSON string, repaired where it is not valid UTF-8.
func unquote(v []byte) string {
	if len(v) >= 2 && bytes.IndexByte(v, '\\') < 0 {
		if in := v[1 : len(v)-1]; utf8.Valid(in) {
			return string(in)
		}
	}
	out, _ := jsontext.AppendUnquote(nil, v) // the error says only that something was repaired
	return string(out)
}

// appendQuote appends s as a JSON string, repaired where it is not valid UTF-8.
func appendQuote(dst []byte, s string) []byte {
	if plain(s) {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// plain tells whether s needs no escaping at all; most words of a conversation do not. It looks at eight bytes at once:
// in front of each call stand some thousand characters of memory.
func plain(s string) bool {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	ascii := true
	i := 0
	for b := unsafe.Slice(unsafe.StringData(s), len(s)); i+8 <= len(b); i += 8 { // only read
		w := binary.LittleEndian.Uint64(b[i:])
		// A byte below n borrows into its high bit in w - n*low, and so does the one that a quote or backslash becomes by xor, 0.
		quote, slash := w^('"'*low), w^('\\'*low)
		if ((w-0x20*low)&^w|(quote-low)&^quote|(slash-low)&^slash)&high != 0 {
			return false // or a false alarm next to such a byte, which costs only time
		}
		ascii = ascii && w&high == 0
	}
	for ; i < len(s); i++ {
		c := s[i]
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s)
}

// fillJSON puts variables into the strings inside a JSON value: {{name}} becomes the value of name. Values are not looked at again, and a name that is
// not known stays as it is (reference/agora-api.md 2.1). "{{" cannot stand in JSON outside a string.
func fillJSON(dst, value []byte, variables map[string]string) []byte {
	if len(variables) == 0 || !bytes.Contains(value, []byte("{{")) {
		return append(dst, value...)
	}
	return fill(dst, string(value), variables, func(dst []byte, v string) []byte {
		quoted := appendQuote(nil, v)
		return append(dst, quoted[1:len(quoted)-1]...)
	})
}

func fill(dst []byte, text string, variables map[string]string, put func([]byte, string) []byte) []byte {
	for {
		before, rest, ok := strings.Cut(text, "{{")
		dst = append(dst, before...)
		if !ok {
			return dst
		}
		name, after, ok := strings.Cut(rest, "}}")
		// The innermost opening counts: "{{ {{who}}" holds one variable.
		if i := strings.LastIndex(name, "{{"); ok && i >= 0 {
			dst = append(dst, "{{"+name[:i]...)
			name = name[i+2:]
		}
		v, known := variables[strings.TrimSpace(name)]
		if !ok || !known {
			dst = append(dst, "{{"...)
			if ok {
				dst = append(append(dst, name...), "}}"...)
				text = after
				continue
			}
			return append(dst, rest...)
		}
		dst = put(dst, v)
		text = after
	}
}
